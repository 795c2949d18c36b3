"""The sockets towards kube-apiserver, which notice by themselves that nothing arrives any more.

Where packets are dropped on an open connection, each side sends again after pauses that double. After 20 s that is
rarer than every 10 s, so that a connection goes on long after the network does, while a new one would work at once. A
connection that is quiet notices nothing at all. So what is unanswered for 6 s is closed, and connected anew.
"""

import socket
from typing import Final

from aiohttp.connector import AddrInfoType

UNANSWERED_SECONDS: Final = 6
"""Sending again comes after 0.2, 0.6, 1.4, 3.0, 6.2, 12.6 s: up to here the next time is less than 4 s away."""
QUIET_SECONDS: Final = 2
"""After so long without a byte, and again and again, the other side's kernel is asked whether it is there."""

_OPTIONS: Final = (
    ("TCP_KEEPIDLE", QUIET_SECONDS),
    ("TCP_KEEPINTVL", QUIET_SECONDS),
    ("TCP_KEEPCNT", UNANSWERED_SECONDS // QUIET_SECONDS),
    ("TCP_USER_TIMEOUT", UNANSWERED_SECONDS * 1000),
)


def open_socket(address: AddrInfoType) -> socket.socket:
    """A socket for an address, as the connector of a session asks for it.

    The kernel closes the connection when nothing that was sent is acknowledged for `UNANSWERED_SECONDS`, as far as it
    knows such options: Linux knows all. A process that is frozen still acknowledges.
    """
    family, kind, protocol, *_ = address
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _OPTIONS:
        option = getattr(socket, name, None)
        if option is not None:
            opened.setsockopt(socket.IPPROTO_TCP, option, value)
    return opened
