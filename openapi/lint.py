"""The rules that a document must keep, so that every consumer can read it and none is broken by it.

kube-aggregator merges version 2 into the document of the whole cluster, which gnostic then renders for clients that ask
for protobuf: one key that gnostic does not know makes `/openapi/v2` fail for the whole cluster. A boolean
additionalProperties crashed kube-controller-manager. Terraform takes types from version 2 and knows nothing but plain
references and either properties or additionalProperties.

Source: gnostic openapiv2/OpenAPIv2.go, the allowed keys; kube-aggregator pkg/controllers/openapi; kubectl
pkg/explain/v2/templates; terraform-provider-kubernetes manifest/openapi/schema.go.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from openapi.definitions import GVK, Dialect, GroupVersion

Json = dict[str, Any]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TOP_KEYS_2: Final = _words(
    "basePath consumes definitions externalDocs host info parameters paths produces responses schemes security "
    "securityDefinitions swagger tags"
)
OPERATION_KEYS_2: Final = _words(
    "consumes deprecated description externalDocs operationId parameters produces responses schemes security summary "
    "tags"
)
SCHEMA_KEYS_2: Final = _words(
    "$ref additionalProperties allOf default description discriminator enum example exclusiveMaximum exclusiveMinimum "
    "externalDocs format items maxItems maxLength maxProperties maximum minItems minLength minProperties minimum "
    "multipleOf pattern properties readOnly required title type uniqueItems xml"
)
PARAMETER_KEYS_2: Final = frozenset(["description", "format", "in", "name", "required", "type"])
PARAMETER_KEYS_3: Final = frozenset(["description", "in", "name", "required", "schema"])
RESPONSE_KEYS_2: Final = frozenset(["description", "examples", "headers", "schema"])

_FORMATS: Final = {"integer": ("int32", "int64"), "string": ("date-time",), "boolean": ()}
_TYPES: Final = ("array", "boolean", "integer", "object", "string")
_UNTYPED: Final = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string")
_VERBS: Final = {"get": ("get", "list")}
_RESPONSE: Final = re.compile(r"[0-9]{3}|default")


def problems_2(document: Json, served: GroupVersion) -> list[str]:
    """What is wrong with a document of version 2; a sentence for each rule that is broken, and where."""
    return list(_Linter(document, served, Dialect.V2).problems())


def problems_3(document: Json, served: GroupVersion) -> list[str]:
    """What is wrong with a document of version 3."""
    return list(_Linter(document, served, Dialect.V3).problems())


@dataclass(frozen=True, slots=True)
class _Linter:
    """Both versions keep nearly the same rules; what differs is asked of the dialect."""

    document: Json
    served: GroupVersion
    dialect: Dialect

    @property
    def _schemas(self) -> Json:
        if self.dialect is Dialect.V2:
            return dict(self.document.get("definitions", {}))
        return dict(self.document.get("components", {}).get("schemas", {}))

    def problems(self) -> Iterator[str]:
        yield from self._document_problems()
        yield from self._path_problems()
        yield from self._definition_problems()
        yield from self._kind_problems()
        yield from self._reference_problems()

    def _document_problems(self) -> Iterator[str]:
        key, version = ("swagger", "2.0") if self.dialect is Dialect.V2 else ("openapi", "3.0.0")
        if self.document.get(key) != version:
            yield f"{key} is not {version}"
        info = self.document.get("info", {})
        if not info.get("title") or not info.get("version"):
            yield "info lacks title or version"
        if not self.document.get("paths"):
            yield "there are no paths: kube-aggregator then merges nothing"
        if self.dialect is Dialect.V2:
            yield from _unknown_keys("the document", self.document, TOP_KEYS_2)
        yield from _nulls("", self.document)

    def _path_problems(self) -> Iterator[str]:
        base = f"/apis/{self.served.group}/{self.served.version}/"
        ids: Counter[str] = Counter()
        for path, item in self.document.get("paths", {}).items():
            if not path.startswith(base):
                yield f"{path}: not below {base}, so kube-aggregator drops it"
            for method, operation in item.items():
                if method == "parameters":
                    continue
                where = f"{method} {path}"
                if method not in _VERBS:
                    yield f"{where}: nothing is served but get"
                ids[operation.get("operationId", "")] += 1
                yield from self._operation_problems(where, method, operation)
                parameters = [*item.get("parameters", []), *operation.get("parameters", [])]
                yield from self._parameter_problems(where, path, parameters)
        yield from (f"operationId {name!r} is there {count} times" for name, count in ids.items() if count > 1)

    def _operation_problems(self, where: str, method: str, operation: Json) -> Iterator[str]:
        own = self.served.in_operation_ids
        if own not in operation.get("operationId", ""):
            yield f"{where}: the operationId lacks {own}, so another server may have the same"
        if not operation.get("responses"):
            yield f"{where}: has no responses, which gnostic requires"
        if not operation.get("description") or not operation.get("tags"):
            yield f"{where}: lacks description or tags"
        if operation.get("x-kubernetes-action") not in _VERBS.get(method, ()):
            yield f"{where}: x-kubernetes-action is not one of its verbs"
        gvk = operation.get(GVK)
        if not isinstance(gvk, dict) or self.served.kind(gvk.get("kind", "")) != gvk or not gvk["kind"]:
            yield f"{where}: {GVK} is not one kind of ours"
        if self.dialect is Dialect.V2:
            yield from _unknown_keys(where, operation, OPERATION_KEYS_2)
            if not operation.get("produces") or not operation.get("consumes"):
                yield f"{where}: lacks produces or consumes"
        for code, response in operation.get("responses", {}).items():
            yield from self._response_problems(f"{where} {code}", code, response)

    def _response_problems(self, where: str, code: str, response: Json) -> Iterator[str]:
        if not _RESPONSE.fullmatch(code):
            yield f"{where}: not a status code"
        if not response.get("description"):
            yield f"{where}: lacks a description"
        schemas = [media_type.get("schema") for media_type in response.get("content", {}).values()]
        if self.dialect is Dialect.V2:
            yield from _unknown_keys(where, response, RESPONSE_KEYS_2)
            schemas = [response["schema"]] if "schema" in response else []
        if code in ("200", "default") and not schemas:
            yield f"{where}: lacks a schema"
        yield from (f"{where}: the schema is not a reference" for schema in schemas if set(schema or {}) != {"$ref"})

    def _parameter_problems(self, where: str, path: str, parameters: list[Json]) -> Iterator[str]:
        in_path = {each.get("name") for each in parameters if each.get("in") == "path"}
        if in_path != set(re.findall(r"{(\w+)}", path)):
            yield f"{where}: the parameters of the path are not those in its braces"
        names = Counter(each.get("name") for each in parameters)
        yield from (f"{where}: parameter {name} is there {count} times" for name, count in names.items() if count > 1)
        keys = PARAMETER_KEYS_2 if self.dialect is Dialect.V2 else PARAMETER_KEYS_3
        for parameter in parameters:
            at = f"{where}: parameter {parameter.get('name')}"
            yield from _unknown_keys(at, parameter, keys)
            typed = parameter if self.dialect is Dialect.V2 else parameter.get("schema", {})
            if parameter.get("in") not in ("path", "query") or typed.get("type") not in _TYPES:
                yield f"{at}: lacks its place or its type"
            if parameter.get("in") == "path" and parameter.get("required") is not True:
                yield f"{at}: is part of the path and not required"
            if not parameter.get("description"):
                yield f"{at}: lacks a description"

    def _definition_problems(self) -> Iterator[str]:
        for name, schema in self._schemas.items():
            if not name.startswith(self.served.name_space):
                yield f"{name}: not in our name space {self.served.name_space}"
            if schema.get("type") != "object" or not schema.get("properties"):
                yield f"{name}: not an object with properties"
            if not _is_sentence(schema.get("description")):
                yield f"{name}: lacks a description"
            yield from self._schema_problems(name, schema)

    def _schema_problems(self, where: str, schema: object) -> Iterator[str]:
        if not isinstance(schema, dict):
            yield f"{where}: not an object; a boolean crashes kube-controller-manager"
            return
        yield from _unknown_keys(where, schema, SCHEMA_KEYS_2)
        yield from (f"{where}: {key} leaves it untyped" for key in _UNTYPED if key in schema)
        if "$ref" in schema:
            beside = {"$ref", "description"} if self.dialect is Dialect.V2 else {"$ref"}
            if not set(schema) <= beside:
                yield f"{where}: more beside $ref than is read"
            return
        if "allOf" in schema:
            yield from self._wrapper_problems(where, schema)
            return
        if schema.get("type") not in _TYPES:
            yield f"{where}: has no type, so Terraform leaves it untyped"
            return
        yield from _scalar_problems(where, schema)
        yield from self._part_problems(where, schema)

    def _wrapper_problems(self, where: str, schema: Json) -> Iterator[str]:
        """A reference with a description, as version 3 writes it."""
        if self.dialect is Dialect.V2:
            yield f"{where}: allOf, which Terraform leaves untyped"
        if set(schema) != {"allOf", "description"} or [set(each) for each in schema["allOf"]] != [{"$ref"}]:
            yield f"{where}: allOf is more than one reference and its description"

    def _part_problems(self, where: str, schema: Json) -> Iterator[str]:
        is_object, is_array = schema["type"] == "object", schema["type"] == "array"
        if ("properties" in schema) + ("additionalProperties" in schema) != is_object:
            yield f"{where}: an object has either properties or additionalProperties, and nothing else has them"
        if ("items" in schema) != is_array:
            yield f"{where}: an array has items, and nothing else has"
        unknown = set(schema.get("required", [])) - set(schema.get("properties", {}))
        if unknown or ("required" in schema and not schema["required"]):
            yield f"{where}: required names nothing, or what is no property: {sorted(unknown)}"
        for name, inner in schema.get("properties", {}).items():
            if isinstance(inner, dict) and not _is_sentence(inner.get("description")):
                yield f"{where}.{name}: lacks a description, so kubectl explain says nothing"
            yield from self._schema_problems(f"{where}.{name}", inner)
        for key, at in (("items", "[]"), ("additionalProperties", ".*")):
            if key in schema:
                yield from self._schema_problems(where + at, schema[key])

    def _kind_problems(self) -> Iterator[str]:
        """Every kind that an operation names is defined once; its list too."""
        kinds: Counter[str] = Counter()
        for name, schema in self._schemas.items():
            if GVK not in schema:
                continue
            marks = schema[GVK]
            kind = name.removeprefix(self.served.name_space)
            if marks != [self.served.kind(kind)]:
                yield f"{name}: {GVK} is not the list of just this kind"
            if not {"apiVersion", "kind", "metadata"} <= set(schema.get("properties", {})):
                yield f"{name}: a kind without apiVersion, kind or metadata"
            kinds[kind] += 1
        for path, item in self.document.get("paths", {}).items():
            for operation in (item[method] for method in item if method != "parameters"):
                kind, action = operation.get(GVK, {}).get("kind", ""), operation.get("x-kubernetes-action")
                wanted = [kind, f"{kind}List"] if action == "list" else [kind]
                yield from (f"{path}: no definition is marked as {each}" for each in wanted if kinds[each] != 1)
                if kind.endswith("List"):
                    yield f"{path}: the kind {kind} ends in List, which Headlamp takes for a list"

    def _reference_problems(self) -> Iterator[str]:
        """Every reference leads to a definition, and every definition is led to from a path."""
        reached: set[str] = set()
        waiting: list[object] = [self.document.get("paths", {})]
        while waiting:
            for reference in _references(waiting.pop()):
                name = reference.removeprefix(self.dialect.value)
                if name not in self._schemas:
                    yield f"{reference}: leads nowhere"
                elif name not in reached:
                    reached.add(name)
                    waiting.append(self._schemas[name])
        yield from (f"{name}: used by no path" for name in self._schemas.keys() - reached)


def _scalar_problems(where: str, schema: Json) -> Iterator[str]:
    if "format" in schema and schema["format"] not in _FORMATS.get(schema["type"], ()):
        yield f"{where}: a {schema['type']} has no format {schema['format']}"
    if schema["type"] == "integer" and "format" not in schema:
        yield f"{where}: an integer without int32 or int64"
    if "enum" in schema:
        wanted = {"string": str, "integer": int}.get(schema["type"])
        if wanted is None or not schema["enum"] or not all(type(each) is wanted for each in schema["enum"]):
            yield f"{where}: enum is empty, or has values of another type"


def _unknown_keys(where: str, content: Mapping[str, object], known: frozenset[str]) -> Iterator[str]:
    yield from (f"{where}: {key} is not allowed here" for key in content if key not in known and key[:2] != "x-")


def _is_sentence(text: object) -> bool:
    return isinstance(text, str) and text[:1].strip() != "" and text.endswith(".")


def _nulls(where: str, content: object) -> Iterator[str]:
    if content is None:
        yield f"{where}: null"
    for key, value in _members(content):
        yield from _nulls(f"{where}/{key}", value)


def _references(content: object) -> Iterator[str]:
    if isinstance(content, dict) and isinstance(content.get("$ref"), str):
        yield content["$ref"]
    for _, value in _members(content):
        yield from _references(value)


def _members(content: object) -> Iterator[tuple[object, object]]:
    if isinstance(content, dict):
        yield from content.items()
    elif isinstance(content, list):
        yield from enumerate(content)
