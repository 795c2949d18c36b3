"""Collections, turned into paths and operations.

Source: apiserver pkg/endpoints (installer.go, openapi/openapi.go) of Kubernetes 1.37, for names, tags and extensions.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from openapi_schema_pydantic.v3.v3_0_3.media_type import MediaType
from openapi_schema_pydantic.v3.v3_0_3.parameter import Parameter
from openapi_schema_pydantic.v3.v3_0_3.path_item import PathItem
from openapi_schema_pydantic.v3.v3_0_3.response import Response

from apiserver.catalog.schema import STATUS, Collection, Object
from apiserver.catalog.schema import Parameter as DeclaredParameter
from openapi.definitions import GVK, Definitions, capitalized
from openapi.models import Operation, Reference, Schema

_TYPES: Final = ("application/json", "application/yaml")
_STREAM_TYPES: Final = ("application/json;stream=watch",)
_PRETTY: Final = (
    "pretty",
    "string",
    "Whether the answer is indented. Without it, it is for browsers, curl and wget, and for nobody else.",
)
_LIST_OPTIONS: Final = (
    (
        "allowWatchBookmarks",
        "boolean",
        "Whether a watch may carry bookmarks: events that only tell the version which it has reached.",
    ),
    ("continue", "string", "The token of the page before; the rest of the query must be the same."),
    ("labelSelector", "string", "Only objects with these labels. Empty selects all."),
    ("limit", "integer", "Most objects on a page. With 0, or without it, the list is whole."),
    (
        "resourceVersion",
        "string",
        (
            "For a list, the version it must not be older than; for a watch, the version from which changes are told. "
            "Without it a list is current, and a watch begins with every object that there is."
        ),
    ),
    (
        "resourceVersionMatch",
        "string",
        "How resourceVersion is meant: NotOlderThan; or Exact, for a list at a version the server has seen itself.",
    ),
    (
        "sendInitialEvents",
        "boolean",
        (
            "Whether a watch begins with every object as ADDED and, if allowed, a bookmark that ends these. "
            "It needs resourceVersionMatch=NotOlderThan."
        ),
    ),
    ("timeoutSeconds", "integer", "How long a watch lasts."),
    ("watch", "boolean", "Whether to go on telling changes as they come, instead of answering with a list."),
)
_FIELD_SELECTOR: Final = (
    "Only objects whose fields have these values. Fields that can be asked for: {}. Empty selects all."
)


def paths(collections: Iterable[Collection], definitions: Definitions) -> dict[str, PathItem]:
    """Every path of the collections, with its operations."""
    found: dict[str, PathItem] = {}
    for collection in collections:
        found.update(_Paths(collection, definitions).all())
    return found


class _Paths:
    """The paths of one collection."""

    def __init__(self, collection: Collection, definitions: Definitions) -> None:
        self._collection = collection
        self._definitions = definitions
        served = definitions.served
        self._base = f"/apis/{served.group}/{served.version}"
        self._infix = served.in_operation_ids

    def all(self) -> Iterator[tuple[str, PathItem]]:
        collection, parameters = self._collection, [_query(*_PRETTY)]
        if collection.namespaced:
            across = self._list("", f"{collection.kind.name}ForAllNamespaces")
            yield f"{self._base}/{collection.plural}", _item(across, parameters)
            namespace = _path("namespace", "Namespace of the objects.")
            parameters, scope = [namespace, *parameters], "Namespaced"
            base = f"{self._base}/namespaces/{{namespace}}/{collection.plural}"
        else:
            base, scope = f"{self._base}/{collection.plural}", ""
        yield base, _item(self._list(scope, collection.kind.name), parameters)
        parameters = [_path("name", f"Name of the {collection.kind.name}."), *parameters]
        yield f"{base}/{{name}}", _item(self._read(scope), parameters)
        for name, kind in collection.subresources.items():
            yield f"{base}/{{name}}/{name}", _item(self._read_part(scope, name, kind), parameters)

    def _list(self, scope: str, what: str) -> Operation:
        fields = ", ".join(self._collection.field_selectors)
        options = [*_LIST_OPTIONS, ("fieldSelector", "string", _FIELD_SELECTOR.format(fields))]
        operation = self._operation(
            f"list{self._infix}{scope}{what}",
            "list",
            self._collection.kind,
            f"List or watch objects of kind {self._collection.kind.name}.",
            self._definitions.reference(self._collection.list_kind),
            (*_TYPES, *_STREAM_TYPES),
        )
        operation.parameters = [_query(*option) for option in sorted(options)]
        return operation

    def _read(self, scope: str) -> Operation:
        kind = self._collection.kind
        operation_id = f"read{self._infix}{scope}{kind.name}"
        said = f"Read one {kind.name}."
        return self._operation(operation_id, "get", kind, said, self._definitions.reference(kind), _TYPES)

    def _read_part(self, scope: str, name: str, kind: Object) -> Operation:
        whole = self._collection.kind.name
        operation_id = f"read{self._infix}{scope}{whole}{capitalized(name)}"
        said = f"Read {name} of one {whole}."
        operation = self._operation(operation_id, "get", kind, said, self._definitions.reference(kind), _TYPES)
        asked = self._collection.parameters.get(name, ())
        if asked:
            operation.parameters = [_declared(each) for each in sorted(asked, key=lambda each: each.name)]
        return operation

    def _operation(
        self, operation_id: str, action: str, kind: Object, said: str, answer: Reference, types: tuple[str, ...]
    ) -> Operation:
        responses = {
            "200": _response("OK", answer, types),
            "401": Response(description="Unauthorized"),
            "default": _response("The request failed.", self._definitions.reference(STATUS), _TYPES),
        }
        content: dict[str, Any] = {
            "operationId": operation_id,
            "description": said,
            "tags": [self._definitions.served.tag],
            "responses": responses,
            "x-kubernetes-action": action,
            GVK: self._definitions.served.kind(kind.name),
        }
        return Operation.parse_obj(content)


def _item(operation: Operation, parameters: list[Parameter]) -> PathItem:
    return PathItem.parse_obj({"get": operation, "parameters": parameters})


def _response(said: str, answer: Reference, types: tuple[str, ...]) -> Response:
    content = {each: MediaType.parse_obj({"schema": answer}) for each in types}
    return Response.parse_obj({"description": said, "content": content})


def _query(name: str, type_: str, said: str) -> Parameter:
    schema = Schema.parse_obj({"type": type_})
    return Parameter.parse_obj({"name": name, "in": "query", "description": said, "schema": schema})


def _declared(parameter: DeclaredParameter) -> Parameter:
    type_ = parameter.type
    schema = Schema.parse_obj({"type": type_.type, **({"format": type_.format} if type_.format else {})})
    content: dict[str, Any] = {"name": parameter.name, "in": "query", "description": parameter.description}
    if parameter.required:
        content["required"] = True
    return Parameter.parse_obj({**content, "schema": schema})


def _path(name: str, said: str) -> Parameter:
    schema = Schema.parse_obj({"type": "string"})
    return Parameter.parse_obj({"name": name, "in": "path", "description": said, "required": True, "schema": schema})


def in_version_2(item: PathItem) -> dict[str, Any]:
    """A path as version 2 writes it: types of answers at the operation, types of parameters at the parameter."""
    plain = item.dict(by_alias=True, exclude_unset=True)
    operation = plain["get"]
    converted = {
        **operation,
        "consumes": ["*/*"],
        "produces": list(operation["responses"]["200"]["content"]),
        "responses": {code: _response_2(response) for code, response in operation["responses"].items()},
        "schemes": ["https"],
    }
    if "parameters" in operation:
        converted["parameters"] = [_parameter_2(each) for each in operation["parameters"]]
    return {"get": converted, "parameters": [_parameter_2(each) for each in plain["parameters"]]}


def _response_2(response: dict[str, Any]) -> dict[str, Any]:
    converted = {"description": response["description"]}
    for media_type in response.get("content", {}).values():
        converted["schema"] = media_type["schema"]
    return converted


def _parameter_2(parameter: dict[str, Any]) -> dict[str, Any]:
    return {**{key: value for key, value in parameter.items() if key != "schema"}, **parameter["schema"]}
