"""What can be asked in a terminal, and how the answer is written: as a person, a shell or a program wants it."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import orjson
import yaml

from apiserver.serving.resources import GroupVersion, Parameters, Resource
from apiserver.serving.tables import INCLUDE_NONE, Layout, make_table
from apiserver.settings import Settings
from apiserver.terminal.device import Device
from apiserver.terminal.tables import Emphasis, TableWriter, no_emphasis
from apiserver.terminal.text import Ink, Style

Object = Mapping[str, Any]

DOCUMENTS: Final = ("json", "yaml")
CATALOG: Final = "catalog"
_NOTHING: Final[Parameters] = {}


class Question(Protocol):
    """What was asked."""

    @property
    def settings(self) -> Settings:
        """How it was asked."""

    async def look(self) -> Object | None:
        """The answer as the API would send it; None when the class is not there.

        Raises:
            StatusError: no true answer can be given at present.
        """

    def text(self, answer: Object, device: Device) -> str:
        """The answer for a person."""


@dataclass(frozen=True, slots=True)
class Classes:
    """All classes, or one: `get`."""

    served: GroupVersion
    resource: Resource
    settings: Settings

    async def look(self) -> Object | None:
        """See Question."""
        async with self.resource.store.open("") as store:
            listing = store.list()
        items = [item.object for item in listing.items]
        if self.settings.name:
            return next((item for item in items if item["metadata"]["name"] == self.settings.name), None)
        head = {"kind": f"{self.resource.kind}List", "apiVersion": self.served.api_version}
        return {**head, "metadata": {"resourceVersion": listing.version}, "items": items}

    def text(self, answer: Object, device: Device) -> str:
        """See Question."""
        items = [answer] if self.settings.name else answer["items"]
        return self.writer(device).text(table_of(self.resource.layout, *items))

    def writer(self, device: Device) -> TableWriter:
        """What writes Tables of classes."""
        return table_writer(device, class_emphasis, wide=self.settings.output == "wide")


@dataclass(frozen=True, slots=True)
class Catalog:
    """One class, node by node: `catalog`."""

    served: GroupVersion
    resource: Resource
    settings: Settings

    async def look(self) -> Object | None:
        """See Question."""
        catalog = self.resource.subresource(CATALOG)
        page = None if catalog is None else await catalog.read("", self.settings.name, _NOTHING)
        return None if page is None else page.object

    def text(self, answer: Object, device: Device) -> str:
        """See Question."""
        catalog = self.resource.subresource(CATALOG)
        if catalog is not None and self.settings.output == "table":
            return table_writer(device, no_emphasis).text(table_of(catalog.layout, answer))
        from apiserver.terminal.pages import format_page  # noqa: PLC0415 # only a page needs it

        return format_page(answer, ink=ink_of(device), columns=device.size()[0])


def document(answer: Object, output: str, *, one_of_many: bool = False) -> str:
    """The answer as JSON or YAML; as one of many a line of JSON, or a YAML document that says where it begins."""
    if output == "json":
        return orjson.dumps(answer, option=None if one_of_many else orjson.OPT_INDENT_2).decode() + "\n"
    text: str = yaml.safe_dump(answer, sort_keys=True, allow_unicode=True)
    return f"---\n{text}" if one_of_many else text


def table_of(layout: Layout, *items: Object) -> Object:
    """The Table that the API would send."""
    now = datetime.now(UTC)
    return make_table(layout, items, metadata={}, include=INCLUDE_NONE, version="v1", now=now)


def table_writer(device: Device, emphasis: Emphasis, *, wide: bool = False) -> TableWriter:
    """What writes Tables to the device."""
    return TableWriter(wide=wide, ink=ink_of(device), columns=device.size()[0], emphasis=emphasis)


def ink_of(device: Device) -> Ink:
    """What text to the device can be made of."""
    return Ink(colour=device.colour, unicode=device.unicode)


def class_emphasis(column: str, value: object) -> Style | None:
    """What stands out in a Table of classes: what is free, and why a class is not offered."""
    if column == "Free":
        return Style.GREEN if value else Style.RED
    is_odd = (column == "Offered" and not value) or (column == "Reason" and value != "Offered")
    return Style.YELLOW if is_odd else None
