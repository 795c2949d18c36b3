"""Reading what is not quite JSON, so that one bad object never costs the others.

A kube-apiserver writes nothing of the kind; an old CRD that keeps unknown fields can hold an object nested deeper than
a decoder goes, and a broken proxy or a stub whatever it likes. Used only after a body or an object could not be read.
"""

import re
from typing import Any, Final

import msgspec

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[][{},:]', re.DOTALL)
_OPENING, _CLOSING = frozenset(b"[{"), frozenset(b"]}")
_ITEMS_DEPTH: Final = 2
"""Of what stands between the brackets of a list's items: inside the list, inside the array."""


def split_items(body: bytes) -> tuple[bytes, list[bytes]] | None:
    """A list without its items, and each item as it stands; None when no items can be told apart.

    Only strings and brackets are looked at, and without recursion: what is wrong within an item stays within it, unless
    it is a bracket too many or a quote too few.
    """
    depth, key, items = 0, b"", list[bytes]()
    begin = start = end = -1
    for token in _TOKEN.finditer(body):
        text = token[0]
        if depth == 1 and text[0] == ord('"'):
            key = text
        if text[0] in _OPENING:
            if depth == 1 and key == b'"items"' and text == b"[" and begin < 0:
                begin = start = token.end()
            depth += 1
        elif text[0] in _CLOSING:
            depth -= 1
        if start < 0:
            continue
        if (depth == _ITEMS_DEPTH and text == b",") or depth < _ITEMS_DEPTH:
            items.append(body[start : token.start()].strip())
            start = token.end()
        if depth < _ITEMS_DEPTH:
            end, start = token.start(), -1
    if end < 0:
        return None
    return body[:begin] + body[end:], [item for item in items if item]


def without_nulls(raw: bytes | msgspec.Raw) -> Any:  # noqa: ANN401 # JSON
    """The JSON with every null left out of its object, as Go takes a null for a field: as if it were not there.

    Raises:
        msgspec.DecodeError: it is not JSON.
        RecursionError: it is nested too deep.
    """
    return _without_nulls(msgspec.json.decode(raw))


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value
