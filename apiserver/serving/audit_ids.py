"""Audit-Ids, by which a request is found again in the logs of every server that it went through.

Source: apiserver pkg/endpoints/filters/with_auditid.go of Kubernetes 1.37.
"""

import os
from collections.abc import Iterator
from typing import Final

_LONGEST: Final = 256
_MADE_AT_ONCE: Final = 32
_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def audit_id(given: str) -> str:
    """The id that a client gave its request, if that can stand in a header and a log; else a new one."""
    usable = given and len(given) <= _LONGEST and given.isascii() and given.isprintable()
    return given if usable else next(_new)


def _make() -> Iterator[str]:
    """Random UUIDs without end, as uuid.uuid4 makes them: many from what is asked of the kernel once."""
    while True:
        many = os.urandom(16 * _MADE_AT_ONCE).hex()
        for at in range(0, len(many), 32):
            digits = many[at : at + 32]
            variant = _VARIANT[digits[16]]
            yield f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


_new = _make()
