"""Tables and ages."""

from datetime import UTC, datetime

import pytest

from apiserver.serving.status import BadRequest
from apiserver.serving.tables import Column, Layout, age, human_duration, make_table, read_include

MINUTE, HOUR, DAY = 60, 3600, 86400
YEAR = 365 * DAY


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-3, "<invalid>"),
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (150, "2m30s"),
        (10 * MINUTE, "10m"),
        (179 * MINUTE + 59, "179m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + HOUR, "2d1h"),
        (8 * DAY, "8d"),
        (2 * YEAR - 1, "729d"),
        (2 * YEAR, "2y"),
        (3 * YEAR + DAY, "3y1d"),
        (8 * YEAR, "8y"),
        (20 * YEAR, "20y"),
    ],
)
def test_human_duration(seconds: int, text: str) -> None:
    """Durations read as kubectl's do."""
    assert human_duration(seconds) == text


def test_age() -> None:
    """An age is counted from the creation, and unknown without one."""
    now = datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
    assert age("2026-01-01T00:00:00Z", now) == "5m"
    assert age(None, now) == "<unknown>"


ITEM = {"kind": "K", "metadata": {"name": "a"}, "parts": [1, 2]}
LAYOUT = Layout(
    (Column("Part", lambda part, _: part, "d", type="integer", wide=True),), rows=lambda item: item["parts"]
)


@pytest.mark.parametrize(
    ("include", "row_object"),
    [
        ("None", None),
        ("Metadata", {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": {"name": "a"}}),
        ("Object", ITEM),
    ],
)
def test_make_table(include: str, row_object: object) -> None:
    """A row for each part of an object, with as much of the object as was asked for."""
    table = make_table(LAYOUT, [ITEM], metadata={}, include=include, version="v1", now=datetime.now(UTC))
    assert [row["cells"] for row in table["rows"]] == [[1], [2]]
    assert [row.get("object") for row in table["rows"]] == [row_object, row_object]
    assert table["columnDefinitions"] == [
        {"name": "Part", "type": "integer", "format": "", "description": "d", "priority": 1}
    ]
    assert make_table(LAYOUT, [], metadata={}, include=include, version="v1", now=datetime.now(UTC))["rows"] == []


def test_include() -> None:
    """The includeObject parameter has three values and a default."""
    assert read_include({}) == read_include({"includeObject": ""}) == "Metadata"
    with pytest.raises(BadRequest):
        read_include({"includeObject": "all"})
