"""Text, tables and pages as they stand in a terminal."""

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.terminal.device import open_device
from apiserver.terminal.pages import format_page
from apiserver.terminal.tables import TableWriter
from apiserver.terminal.text import Ink, Style, plain, width

COLUMNS = [
    {"name": "Name", "type": "string", "format": "name", "priority": 0},
    {"name": "Free", "type": "integer", "priority": 0},
    {"name": "Model", "type": "string", "priority": 0},
]


def table(*rows: list[object]) -> dict[str, Any]:
    """A Table of these rows."""
    return {"columnDefinitions": COLUMNS, "rows": [{"cells": row} for row in rows]}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """It is."""
        return True


@pytest.mark.parametrize(
    ("environ", "redraws", "colour"),
    [
        pytest.param({"TERM": "xterm"}, True, True, id="a terminal"),
        pytest.param({"TERM": "xterm", "NO_COLOR": "1"}, True, False, id="no colours wanted"),
        pytest.param({"TERM": "xterm", "NO_COLOR": ""}, True, True, id="an empty NO_COLOR says nothing"),
        pytest.param({"TERM": "dumb"}, False, False, id="dumb"),
        pytest.param({}, False, False, id="no TERM"),
    ],
)
def test_device(environ: dict[str, str], redraws: bool, colour: bool) -> None:
    """Colours and drawing over are for terminals that have them, and for people who want them."""
    device = open_device(Terminal(), environ)
    assert (device.is_terminal, device.redraws, device.colour) == (True, redraws, colour)
    piped = open_device(io.StringIO(), environ)
    assert (piped.is_terminal, piped.redraws, piped.colour) == (False, False, False)


def test_encoding() -> None:
    """What the encoding lacks is written as its escape, and never fails."""
    raw = io.BytesIO()
    device = open_device(io.TextIOWrapper(raw, encoding="ascii"), {})
    assert not device.unicode
    device.write("é\n")
    assert raw.getvalue() == b"\\xe9\n"


def test_figures_stand_at_the_right() -> None:
    """Figures are aligned at the right with their heading, texts at the left."""
    written = TableWriter().text(table(["a", 5, "x"], ["bb", 12345, ""]))
    assert written == "NAME    FREE   MODEL\na          5   x\nbb     12345\n"


def test_rows_below_rows() -> None:
    """Rows that come later stand below the earlier ones, as long as they are not wider."""
    writer = TableWriter()
    first = writer.text(table(["a-long-name", 10, "x"]))
    later = writer.text(table(["b", 2, "y"]), heads=False)
    assert first + later == "NAME          FREE   MODEL\na-long-name     10   x\nb                2   y\n"
    assert writer.text(table(), heads=False) == ""


def test_narrow() -> None:
    """Where there is little room texts are cut, then the name; never a figure."""
    rows = table(["a-name-of-middling-length", 1234, "a very long model"])
    lines = TableWriter(ink=Ink(unicode=True), columns=40).text(rows).splitlines()
    assert lines[1] == "a-name-of-middling-leng…   1234   a ver…"
    assert TableWriter(columns=30).text(rows).splitlines()[1] == "a-name-of-mid~   1234   a ver~"
    assert "1234" in TableWriter(columns=1).text(rows).splitlines()[1]


@given(st.lists(st.tuples(st.text(), st.integers(0), st.text()), min_size=1), st.integers(30, 200))
def test_any_text_keeps_its_column(rows: list[tuple[str, int, str]], columns: int) -> None:
    """Whatever a class calls itself, each row is one line, within the room if that is possible, and no escape."""
    written = TableWriter(ink=Ink(unicode=True), columns=columns).text(table(*map(list, rows)))
    lines = written.split("\n")
    assert len(lines) == len(rows) + 2
    assert all(line.isprintable() for line in lines)
    figures = max(4, *(len(str(figure)) for _, figure, _ in rows))
    assert max(map(width, lines)) <= max(columns, 12 + figures + 6 + 6)


def test_escapes() -> None:
    """Nothing in a cell is obeyed by the terminal."""
    assert plain("\x1b[31mred\u202e\r") == r"\x1b[31mred\u202e\r"
    assert plain(None) == ""
    assert width("日本") == 4


def test_colours_take_no_room() -> None:
    """With colours the same text stands in the same places."""
    rows = table(["a", 0, "x"], ["b", 12, ""])
    coloured = TableWriter(ink=Ink(colour=True), emphasis=lambda _, value: None if value else Style.RED).text(rows)
    assert "\x1b[31m" in coloured
    bare = coloured
    for code in ("\x1b[31m", "\x1b[1m", "\x1b[0m"):
        bare = bare.replace(code, "")
    assert bare == TableWriter().text(rows)


@given(st.lists(st.integers(0, 2**63), min_size=3, max_size=3), st.integers(3, 60))
def test_bar(figures: list[int], columns: int) -> None:
    """A bar is as long as there is room, shows every part that is not 0, and nothing of nothing."""
    drawn = Ink().bar([(figure, "█", mark) for figure, mark in zip(figures, "#-.", strict=True)], columns)
    assert sum(map(len, drawn)) == (columns if sum(figures) else 0)
    for figure, part in zip(figures, drawn, strict=False):
        assert bool(part) == bool(figure)


def a_page(**capacity: int) -> dict[str, Any]:
    """A page of a class that no node has."""
    zeros = dict.fromkeys(
        ("capacity", "allocatable", "requested", "overcommitted", "free", "unavailable", "maxPerInstance"), 0
    )
    return {
        "metadata": {"name": "one"},
        "offer": {"licenseRequired": False, "offered": False, "reason": "Invalid", "message": "spec.vendor: missing"},
        "capacity": {**zeros, "pending": 0, "nominated": 0, **capacity},
        "placement": [],
        "placementTruncated": False,
        "notes": ["A note\x1b."],
        "nodes": [],
        "nodesWithoutResource": 1,
    }


def test_a_page_of_nothing() -> None:
    """An invalid class without nodes has a page too; in ASCII where no more can be written."""
    written = format_page(a_page(), ink=Ink(), columns=None)
    assert written.isascii()
    assert "not offered: Invalid" in written
    assert "spec.vendor: missing" in written
    assert "No instance would be placed now." in written
    assert "1 node has nothing to do with this class." in written
    assert r"Note: A note\x1b." in written


def test_a_page_in_little_room() -> None:
    """In a narrow terminal no line of a page is longer than it, and what is wrong with a node is still named."""
    page = a_page(capacity=8, allocatable=8, requested=9, overcommitted=1, pending=3, nominated=1)
    reason = {"reason": "Overcommitted", "message": "Pods hold 9 devices of 8 allocatable ones."}
    node = {"name": "gpu-01", "eligible": True, "free": 0, "requested": 9, "allocatable": 8, "capacity": 8}
    page["nodes"] = [{**node, "reasons": [reason]}]
    for columns in (40, 60, 80, 200):
        written = format_page(page, ink=Ink(unicode=True), columns=columns)
        assert max(map(width, written.splitlines())) <= max(columns, 50)  # the figures of a node take 50
        assert "Overcommitted" in written
        assert "3 pending" in written
