"""The loop that tests run in: it ends after its connections."""

import contextlib
import gc
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import aiohttp

from apiserver.serving.certificates import self_signed
from tests import loops

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
BUSY_SECONDS = 0.3


@contextlib.contextmanager
def busy_server(directory: Path) -> Iterator[tuple[str, ssl.SSLContext]]:
    """Answers one request over TLS, and looks at what else comes only after a while; its URL and who trusts it."""
    certificate, key = self_signed(["localhost"], ["127.0.0.1"])
    file = directory / "pair.pem"
    file.write_bytes(certificate + key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file)

    def serve(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        with context.wrap_socket(plain, server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(ANSWER)
            time.sleep(BUSY_SECONDS)
            with contextlib.suppress(OSError):
                connection.recv(1)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        yield f"https://127.0.0.1:{listener.getsockname()[1]}", ssl.create_default_context(cafile=file)
        thread.join(10)


async def ask(url: str, context: ssl.SSLContext) -> int:
    """The code of an answer after which the connection is closed."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.get(url) as response,
    ):
        return response.status


def test_no_socket_is_left(tmp_path: Path) -> None:
    """Though the server says goodbye only after the session has closed."""
    gc.collect()  # what others left is none of ours
    with warnings.catch_warnings(record=True) as caught, busy_server(tmp_path) as (url, context):
        warnings.simplefilter("always")
        began = time.monotonic()
        assert loops.run(ask(url, context)) == 200
        seconds = time.monotonic() - began
        gc.collect()
    assert [str(each.message) for each in caught] == []
    assert seconds >= BUSY_SECONDS
    assert seconds < loops.GOODBYE_SECONDS
