"""Declarations of kinds, turned into the named schemas of a document."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from apiserver.catalog.schema import Collection, Field, ListOf, MapOf, Object, Scalar
from openapi.models import Reference, Schema

GVK: Final = "x-kubernetes-group-version-kind"


def capitalized(word: str) -> str:
    """The word with its first letter in capitals, and the rest as it is."""
    return word[:1].upper() + word[1:]


class Dialect(Enum):
    """A version of OpenAPI, by where it keeps its named schemas."""

    V2 = "#/definitions/"
    V3 = "#/components/schemas/"


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """The group and version that a document describes."""

    group: str
    version: str

    @property
    def name_space(self) -> str:
        """What the name of every definition begins with: the reversed group, then the version.

        kube-aggregator renames a definition that another server defines differently, so we keep to names of our own.
        """
        return f"{'.'.join(reversed(self.group.split('.')))}.{self.version}."

    @property
    def tag(self) -> str:
        """The group in one word, and the version: catalogCozystackIo_v1alpha1."""
        first, *rest = self.group.removesuffix(".k8s.io").split(".")
        return f"{first}{''.join(map(capitalized, rest))}_{self.version}"

    @property
    def in_operation_ids(self) -> str:
        """The part of every operationId that no other server's has: CatalogCozystackIoV1alpha1."""
        return "".join(map(capitalized, self.tag.split("_")))

    def kind(self, kind: str) -> dict[str, str]:
        """A kind as the extension tells it."""
        return {"group": self.group, "kind": kind, "version": self.version}


@dataclass(slots=True)
class Definitions:
    """The named schemas of one document, collected while they are referred to.

    Attributes:
        served: whose they are.
        dialect: of the document.
        schemas: name to schema.
    """

    served: GroupVersion
    dialect: Dialect
    schemas: dict[str, Schema] = field(default_factory=dict)
    _declared: dict[str, Object] = field(default_factory=dict)

    def add(self, collections: Iterable[Collection]) -> None:
        """Take every kind of the collections, and what they are made of."""
        for collection in collections:
            for kind in (collection.kind, collection.list_kind, *collection.subresources.values()):
                self.reference(kind)

    def reference(self, declared: Object) -> Reference:
        """Refer to an object, taking it if it is new.

        Raises:
            ValueError: another object has the same name.
        """
        name = self.served.name_space + declared.name
        if self._declared.setdefault(name, declared) != declared:
            raise ValueError(f"two different objects are named {declared.name}")
        if name not in self.schemas:
            self.schemas[name] = Schema()  # holds the place: an object may contain itself
            self.schemas[name] = self._object(declared)
        return Reference.parse_obj({"$ref": self.dialect.value + name})

    def _object(self, declared: Object) -> Schema:
        content: dict[str, Any] = {
            "type": "object",
            "description": declared.description,
            "properties": {each.name: self._property(each) for each in declared.fields},
        }
        required = sorted(each.name for each in declared.fields if each.required)
        if required:
            content["required"] = required
        if declared.is_kind:
            content[GVK] = [self.served.kind(declared.name)]
        return Schema.parse_obj(content)

    def _property(self, declared: Field) -> Schema | Reference:
        if not isinstance(declared.type, Object):
            return self._value(declared.type, declared.description)
        reference = self.reference(declared.type)
        if self.dialect is Dialect.V2:
            return Reference.parse_obj({**reference.dict(by_alias=True), "description": declared.description})
        # Version 3 ignores what stands beside a reference; version 2 must not wrap it, or Terraform finds no type.
        return Schema.parse_obj({"allOf": [reference], "description": declared.description})

    def _value(self, declared: Scalar | ListOf | MapOf, description: str = "") -> Schema:
        said = {"description": description} if description else {}
        match declared:
            case Scalar(type_, format_, enum):
                content: dict[str, Any] = {"type": type_, **said}
                if format_:
                    content["format"] = format_
                if enum:
                    content["enum"] = list(enum)
                return Schema.parse_obj(content)
            case ListOf(items):
                inner = self.reference(items) if isinstance(items, Object) else self._value(items)
                return Schema.parse_obj({"type": "array", "items": inner, **said})
            case MapOf(values):
                return Schema.parse_obj({"type": "object", "additionalProperties": self._value(values), **said})
