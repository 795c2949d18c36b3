"""Declarations: what a server serves. A resource says what it is; how it is served stands elsewhere in this room."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from apiserver.serving.openapi import OpenAPI
from apiserver.serving.selectors import FieldGetter
from apiserver.serving.store import Stores
from apiserver.serving.tables import Layout, Object

Parameters = Mapping[str, Sequence[str]]
"""The query of a request without what every resource takes: name to the values, as often as it was given."""


class Document:
    """What a subresource says; its JSON is written once, however often it is answered with.

    Args:
        read: the object.
    """

    __slots__ = ("_body", "object")

    def __init__(self, read: Object) -> None:
        self.object = read
        self._body: bytes | None = None

    @property
    def body(self) -> bytes:
        """It as compact JSON with the newline that ends it."""
        if self._body is None:
            self._body = orjson.dumps(self.object, option=orjson.OPT_APPEND_NEWLINE)
        return self._body


@dataclass(frozen=True, slots=True)
class Subresource:
    """A view of one object under its own name and kind, made when it is asked for.

    Attributes:
        name: last part of the path.
        kind: of the answer.
        layout: its Table.
        read: namespace, name and parameters to the object, or None when there is no such parent; raises a StatusError
            for parameters that it does not take, and while no true answer can be given.
        at_once: how many are made at once, for what takes long; a request beyond these is refused with 429. None for
            any number.
    """

    name: str
    kind: str
    layout: Layout
    read: Callable[[str, str, Parameters], Coroutine[Any, Any, Document | None]]
    at_once: int | None = None

    verbs: tuple[str, ...] = ("get",)


@dataclass(frozen=True, slots=True)
class Resource:
    """A read-only collection of objects of one kind.

    Attributes:
        plural: as in paths.
        singular: as kubectl takes it.
        kind: of one object; a list is kind + "List".
        namespaced: whether objects live in namespaces.
        store: the objects, or where those of a namespace are.
        layout: their Table.
        short_names: further names for kubectl.
        categories: groups of resources for kubectl.
        subresources: of each object.
        fields: what besides metadata.name and metadata.namespace can be selected by, and where it is found.
    """

    plural: str
    singular: str
    kind: str
    namespaced: bool
    store: Stores
    layout: Layout
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: Sequence[Subresource] = ()
    fields: Mapping[str, FieldGetter] = field(default_factory=dict)

    verbs: tuple[str, ...] = ("get", "list", "watch")

    def subresource(self, name: str) -> Subresource | None:
        """The declared subresource of that name, or None."""
        return next((each for each in self.subresources if each.name == name), None)


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """One version of one API group, the only one a server has.

    Attributes:
        group: its name.
        version: its name.
        resources: what is served of it.
        openapi: its documents; without them asking for one is 503.
    """

    group: str
    version: str
    resources: Sequence[Resource]
    openapi: OpenAPI | None = None

    @property
    def api_version(self) -> str:
        """GROUP/VERSION, as objects carry it."""
        return f"{self.group}/{self.version}"

    def resource(self, plural: str) -> Resource | None:
        """The declared resource of that name, or None."""
        for each in self.resources:  # each request asks for one; a generator takes five times as long
            if each.plural == plural:
                return each
        return None
