"""What is followed of a cluster. Apart from how, since who only reads a dump needs no connection."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

JSON: Final = "application/json"
METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1,application/json"
"""Accept header for the metadata of objects; the second clause is for a server that knows no such thing."""


def unchanged(decoded: T) -> T:
    """All of a decoded object."""
    return decoded


@dataclass(frozen=True, slots=True)
class Collection(Generic[T]):
    """What is listed and watched, and what is kept of each object.

    Attributes:
        name: for logs and health, for example `pods`.
        path: for example `/api/v1/pods`.
        item_type: the msgspec type an object is decoded into.
        read: what of a decoded object the handler is told; by default the whole of it. It is called page by page, so
            that a list of many large objects is never in memory as a whole. It raises nothing.
        field_selector: as Kubernetes writes it; empty for all objects.
        page_size: objects in one page of a list.
        metadata_only: whether nothing but the metadata of the objects is asked for.
    """

    name: str
    path: str
    item_type: type[Any]
    field_selector: str = ""
    page_size: int = 500
    read: Callable[[Any], T] = unchanged
    metadata_only: bool = False

    @property
    def accepts_list(self) -> str:
        """The Accept header of a list."""
        return METADATA_ONLY.format("List") if self.metadata_only else JSON

    @property
    def accepts_watch(self) -> str:
        """The Accept header of a watch."""
        return METADATA_ONLY.format("") if self.metadata_only else JSON
