"""The objects of one resource as they are served, each with the version of its last visible change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from apiserver.serving.versions import VersionSource

Key = tuple[str, str]
"""Namespace ("" at the cluster scope) and name; also the order of a list."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One object.

    Attributes:
        object: as it is served, resourceVersion included. Never changed once stored.
        body: the same in JSON.
    """

    object: Mapping[str, Any]
    body: bytes


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a resource at one version, in the order of their keys."""

    version: str
    items: Sequence[Stored]


class ResourceStore:
    """What is served of one resource.

    Args:
        versions: makes the versions.
        refresh: called before every read, to bring the store up to date with put and delete; raises a StatusError
            while no true answer can be given.
    """

    def __init__(self, versions: VersionSource, refresh: Callable[["ResourceStore"], None]) -> None:
        self._versions = versions
        self._refresh = refresh
        self._objects: dict[Key, tuple[Mapping[str, Any], Stored]] = {}
        self._version = 0
        self._listing: Listing | None = None

    def put(self, key: Key, content: Mapping[str, Any]) -> None:
        """Take an object as it now is, without resourceVersion. The same content again changes nothing."""
        old = self._objects.get(key)
        if old is not None and old[0] == content:
            return
        version = self._advance()
        served = {**content, "metadata": {**content["metadata"], "resourceVersion": str(version)}}
        self._objects[key] = content, Stored(served, orjson.dumps(served))

    def delete(self, key: Key) -> None:
        """Forget an object."""
        if self._objects.pop(key, None) is not None:
            self._advance()

    def get(self, key: Key) -> Stored | None:
        """One object, or None."""
        self._refresh(self)
        found = self._objects.get(key)
        return None if found is None else found[1]

    def list(self, namespace: str = "") -> Listing:
        """All objects, or those of one namespace."""
        self._refresh(self)
        if self._listing is None:
            if not self._version:
                self._advance()  # the empty collection has a version too
            items = [self._objects[key][1] for key in sorted(self._objects)]
            self._listing = Listing(str(self._version), items)
        if not namespace:
            return self._listing
        items = [each for each in self._listing.items if each.object["metadata"].get("namespace") == namespace]
        return Listing(self._listing.version, items)

    def _advance(self) -> int:
        self._version = self._versions.next()
        self._listing = None
        return self._version
