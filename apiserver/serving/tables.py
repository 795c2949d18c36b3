"""Tables: objects as rows of finished cells, which is what kubectl prints.

Source: apiserver pkg/endpoints/handlers/response.go asTable and apimachinery pkg/util/duration of Kubernetes 1.37.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from apiserver.serving.negotiation import META_GROUP
from apiserver.serving.status import BadRequest

Object = Mapping[str, Any]

INCLUDE_NONE: Final = "None"
INCLUDE_METADATA: Final = "Metadata"
INCLUDE_OBJECT: Final = "Object"

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_YEAR: Final = 365 * _DAY
_CLOCK_SKEW: Final = -2


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: the heading, in words; kubectl prints it in capitals.
        cell: the finished value for one row, given what rows() made and the time now.
        type: OpenAPI type of the cell.
        description: one sentence.
        wide: only shown with -o wide.
        format: "name" for the column that names the object.
    """

    name: str
    cell: Callable[[Object, datetime], Any]
    description: str
    type: str = "string"
    wide: bool = False
    format: str = ""

    def definition(self) -> dict[str, Any]:
        """The column as a Table declares it."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": int(self.wide),
        }


def _one_row(item: Object) -> Sequence[Object]:
    return (item,)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a kind becomes a Table.

    Attributes:
        columns: left to right; the first names the row.
        rows: what of an object makes a row each; by default the object itself.
    """

    columns: Sequence[Column]
    rows: Callable[[Object], Sequence[Object]] = _one_row

    def of_bookmark(self) -> "Layout":
        """The same columns for a bookmark, which has nothing to show in them."""
        return Layout([replace(column, cell=lambda _, __: None) for column in self.columns])


def make_table(
    layout: Layout, items: Iterable[Object], *, metadata: Object, include: str, version: str, now: datetime
) -> dict[str, Any]:
    """A Table of the items.

    Args:
        layout: the columns.
        items: objects as they are served.
        metadata: of the list, or of nothing.
        include: how much of each object a row carries (see read_include).
        version: version of meta.k8s.io.
        now: for ages.
    """
    return {
        "kind": "Table",
        "apiVersion": f"{META_GROUP}/{version}",
        "metadata": metadata,
        "columnDefinitions": [column.definition() for column in layout.columns],
        "rows": [
            {"cells": [column.cell(row, now) for column in layout.columns], **_row_object(item, include, version)}
            for item in items
            for row in layout.rows(item)
        ],
    }


def read_include(query: Mapping[str, str]) -> str:
    """The includeObject parameter.

    Raises:
        BadRequest: it is none of its values.
    """
    value = query.get("includeObject") or INCLUDE_METADATA
    if value not in (INCLUDE_NONE, INCLUDE_METADATA, INCLUDE_OBJECT):
        raise BadRequest(
            f"Unable to convert to Table as requested: includeObject: Invalid value: {value!r}: "
            "must be 'Metadata', 'Object', 'None', or empty"
        )
    return value


def partial(item: Object, version: str) -> dict[str, Any]:
    """Only the metadata of an object."""
    return {"kind": "PartialObjectMetadata", "apiVersion": f"{META_GROUP}/{version}", "metadata": item["metadata"]}


def name_cell(item: Object, _: datetime) -> str:
    """The name of an object, as the first column has it."""
    return str(item["metadata"]["name"])


def age_cell(item: Object, now: datetime) -> str:
    """The age of an object, as the last column has it."""
    return age(item["metadata"].get("creationTimestamp"), now)


def age(created: str | None, now: datetime) -> str:
    """How long ago, as kubectl says it; <unknown> without a time."""
    if not created:
        return "<unknown>"
    return human_duration(int((now - datetime.fromisoformat(created)).total_seconds()))


def human_duration(seconds: int) -> str:
    """A duration in the two units that matter at its size. Source: duration.HumanDuration."""
    if seconds < 0:
        return "0s" if seconds > _CLOCK_SKEW else "<invalid>"
    if seconds < 2 * _MINUTE:
        return f"{seconds}s"
    for below, unit, letter, minor, minor_letter in (
        (10 * _MINUTE, _MINUTE, "m", 1, "s"),
        (3 * _HOUR, _MINUTE, "m", 0, ""),
        (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
        (2 * _DAY, _HOUR, "h", 0, ""),
        (8 * _DAY, _DAY, "d", _HOUR, "h"),
        (2 * _YEAR, _DAY, "d", 0, ""),
        (8 * _YEAR, _YEAR, "y", _DAY, "d"),
    ):
        if seconds < below:
            return _two_units(seconds, unit, letter, minor, minor_letter)
    return f"{seconds // _YEAR}y"


def _two_units(seconds: int, unit: int, letter: str, minor: int, minor_letter: str) -> str:
    rest = seconds % unit // minor if minor else 0
    return f"{seconds // unit}{letter}" + (f"{rest}{minor_letter}" if rest else "")


def _row_object(item: Object, include: str, version: str) -> dict[str, Any]:
    if include == INCLUDE_NONE:
        return {}
    return {"object": item if include == INCLUDE_OBJECT else partial(item, version)}
