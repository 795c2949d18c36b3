"""The page of one class: what is free, where, and why the rest is not, to be read in ten seconds.

It is made from the `catalog` of a class as the API answers it.
"""

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from apiserver.terminal.tables import GAP, TableWriter
from apiserver.terminal.text import Ink, Style, plain, width

Object = Mapping[str, Any]

_LEAST_COLUMNS: Final = 40
_ENDLESS: Final = 10_000
_BAR_COLUMNS: Final = 40
_PLACEMENTS: Final = 4
_LEAST_REASON: Final = 24
_INDENT: Final = "    "
_HELD, _FREE, _OUT = ("█", "#"), ("░", "-"), ("·", ".")
_NODE_COLUMNS: Final[Sequence[Mapping[str, Any]]] = (
    {"name": "Node", "type": "string", "format": "name", "priority": 0},
    *({"name": name, "type": "integer", "priority": 0} for name in ("Free", "Requested", "Allocatable", "Capacity")),
    {"name": "Why not free", "type": "string", "priority": 0},
)


def format_page(page: Object, *, ink: Ink, columns: int | None) -> str:
    """The page in lines.

    Args:
        page: a GPUClassCatalog.
        ink: what the text is made of.
        columns: how much room there is; None for any, and then nothing goes on in another line.
    """
    room = max(_LEAST_COLUMNS, columns or _ENDLESS)
    blocks = (
        _head(page, ink, room),
        _figures(page["capacity"], ink, room),
        _orders(page, room),
        _nodes(page, ink, room),
        _notes(page["notes"], ink, room),
    )
    return "\n".join("".join(f"{line}\n" for line in block) for block in map(list, blocks) if block)


def _head(page: Object, ink: Ink, room: int) -> Iterator[str]:
    offer = page["offer"]
    name = plain(page["metadata"]["name"])
    verdict = "offered" if offer["offered"] else f"not offered: {plain(offer['reason'])}"
    yield f"{ink.paint(name, Style.BOLD)}  {ink.paint(verdict, Style.GREEN if offer['offered'] else Style.RED)}"
    yield from _wrapped(", ".join(filter(None, _terms(offer))), room)
    yield from _wrapped(plain(offer["message"]), room)


def _terms(offer: Object) -> Iterator[str]:
    """What is sold, as far as it is known."""
    yield " ".join(plain(offer[key]) for key in ("vendor", "model") if key in offer) or "no vendor or model"
    mode = {"vgpu": "vGPU", "passthrough": "whole card"}.get(offer.get("mode", ""), plain(offer.get("mode", "")))
    yield " ".join(filter(None, (mode, plain(offer.get("profile", "")))))
    if "memory" in offer:
        yield plain(offer["memory"])
    if "maxCount" in offer:
        yield f"at most {offer['maxCount']} in one instance"
    if offer["licenseRequired"]:
        yield "needs a licence"


def _figures(capacity: Object, ink: Ink, room: int) -> Iterator[str]:
    """The devices as a bar, and the same in words with the marks of the bar."""
    held = capacity["allocatable"] - capacity["free"]
    parts = [(held, *_HELD), (capacity["free"], *_FREE), (capacity["unavailable"], *_OUT)]
    styles = (None, Style.GREEN, Style.FAINT)
    drawn = ink.bar(parts, min(_BAR_COLUMNS, room))
    if drawn:
        yield "".join(ink.paint(each, style) for each, style in zip(drawn, styles, strict=True))
    words = ("held", "free", "unavailable")
    legend = [
        ink.paint(f"{mark if ink.unicode else ascii_mark} {figure} {word}", style)
        for (figure, mark, ascii_mark), word, style in zip(parts, words, styles, strict=True)
    ]
    yield "   ".join([*legend, f"of {capacity['capacity']}"])
    if capacity["overcommitted"]:
        said = f"{capacity['overcommitted']} more are held than their nodes offer ({capacity['requested']} requested)."
        yield from (ink.paint(line, Style.RED) for line in _wrapped(said, room))
    if capacity["pending"]:
        nominated = f", {capacity['nominated']} of them with a node in view" if capacity["nominated"] else ""
        said = f"{capacity['pending']} pending: asked for by pods that have no node yet{nominated}."
        yield from (ink.paint(line, Style.YELLOW) for line in _wrapped(said, room))


def _orders(page: Object, room: int) -> Iterator[str]:
    """How many instances of which size would be placed."""
    placement = page["placement"]
    if not placement:
        yield "No instance would be placed now."
        return
    sizes = [f"{each['instances']} x {_devices(each['devices'])}" for each in placement]
    if len(sizes) > _PLACEMENTS:
        sizes[_PLACEMENTS - 1 :] = ["...", sizes[-1]]
    more = ", and larger ones" if page["placementTruncated"] else ""
    most = page["capacity"]["maxPerInstance"]
    yield from _wrapped(f"One instance gets at most {most}. Would be placed: {' or '.join(sizes)}{more}.", room)


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"


def _nodes(page: Object, ink: Ink, room: int) -> Iterator[str]:
    """The nodes, those first that have most free; each reason begins a line, beside the figures if there is room."""
    nodes: list[Object] = sorted(page["nodes"], key=lambda each: (not each["eligible"], -each["free"], each["name"]))
    if nodes:
        left = room - _columns_before_reasons(nodes)
        yield from _nodes_beside(nodes, ink, left) if left >= _LEAST_REASON else _nodes_below(nodes, ink, room)
    without = page["nodesWithoutResource"]
    if without or not nodes:
        others = "other " if nodes else ""
        yield f"{without} {others}{'node has' if without == 1 else 'nodes have'} nothing to do with this class."


def _columns_before_reasons(nodes: Sequence[Object]) -> int:
    names = max(width(plain(node["name"])) for node in nodes)
    return names + sum(len(column["name"]) for column in _NODE_COLUMNS[1:-1]) + len(GAP) * (len(_NODE_COLUMNS) - 1)


def _nodes_beside(nodes: Sequence[Object], ink: Ink, room: int) -> Iterator[str]:
    """The nodes with their reasons beside the figures, in so much room."""
    rows: list[Sequence[object]] = []
    for node in nodes:
        first, *others = [line for each in node["reasons"] for line in _wrapped(_reason(each), room)] or [""]
        rows += [[*_cells(node), first], *(["", "", "", "", "", line] for line in others)]
    yield from _written(rows, _NODE_COLUMNS, ink)


def _nodes_below(nodes: Sequence[Object], ink: Ink, room: int) -> Iterator[str]:
    """The nodes with their reasons below them."""
    head, *lines = _written([_cells(node) for node in nodes], _NODE_COLUMNS[:-1], ink)
    yield head
    for node, line in zip(nodes, lines, strict=True):
        yield line
        for each in node["reasons"]:
            for part in _wrapped(_reason(each), room - len(_INDENT)):
                yield _INDENT + ink.paint(part, Style.YELLOW)


def _written(rows: Sequence[Sequence[object]], columns: Sequence[Mapping[str, Any]], ink: Ink) -> Sequence[str]:
    table = {"columnDefinitions": columns, "rows": [{"cells": row} for row in rows]}
    return TableWriter(ink=ink, emphasis=_node_style).text(table).splitlines()


def _cells(node: Object) -> Sequence[object]:
    return [node[key] for key in ("name", "free", "requested", "allocatable", "capacity")]


def _reason(each: Object) -> str:
    return f"{plain(each['reason'])}: {plain(each['message'])}"


def _node_style(column: str, value: object) -> Style | None:
    if column == "Free" and value != "":
        return Style.GREEN if value else Style.FAINT
    return Style.YELLOW if column == "Why not free" else None


def _notes(notes: Sequence[str], ink: Ink, room: int) -> Iterator[str]:
    for note in notes:
        yield from (ink.paint(line, Style.YELLOW) for line in _wrapped(f"Note: {plain(note)}", room))


def _wrapped(text: str, room: int) -> Iterable[str]:
    return textwrap.wrap(text, room, break_on_hyphens=False)
