"""Holding an answer of the server against the schema of its kind, every leaf of it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from openapi.definitions import GVK, Dialect

Json = dict[str, Any]

_PYTHON_TYPES: Final = {"string": str, "integer": int, "boolean": bool, "array": list, "object": dict}
_BITS: Final = {"int32": 31, "int64": 63}


def problems(answer: Json, document: Json, *, definition: str = "") -> list[str]:
    """What of an answer is not as a version 3 document says; a field that it does not name is a problem too.

    Args:
        answer: one object as JSON.
        document: the document.
        definition: name of the schema; without it the one marked with the kind of the answer.
    """
    schemas = document["components"]["schemas"]
    if not definition:
        group, _, version = answer.get("apiVersion", "").rpartition("/")
        gvk = {"group": group, "version": version, "kind": answer.get("kind", "")}
        definition = next((name for name, schema in schemas.items() if gvk in schema.get(GVK, [])), "")
        if not definition:
            return [f"no schema is marked as {gvk}"]
    return list(_problems("", answer, schemas[definition], schemas))


def _problems(where: str, value: object, schema: Json, schemas: Json) -> Iterator[str]:
    while "$ref" in schema or "allOf" in schema:
        reference = schema["$ref"] if "$ref" in schema else schema["allOf"][0]["$ref"]
        schema = schemas[reference.removeprefix(Dialect.V3.value)]
    if type(value) is not _PYTHON_TYPES[schema["type"]]:
        yield f"{where}: {value!r} is no {schema['type']}"
    elif isinstance(value, dict):
        yield from _object_problems(where, value, schema, schemas)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(f"{where}[{index}]", item, schema["items"], schemas)
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is not one of {schema['enum']}"
    elif not _has_format(value, schema.get("format", "")):
        yield f"{where}: {value!r} is no {schema['format']}"


def _object_problems(where: str, value: Json, schema: Json, schemas: Json) -> Iterator[str]:
    properties = schema.get("properties", {})
    yield from (f"{where}.{name}: is missing" for name in schema.get("required", []) if name not in value)
    for name, member in value.items():
        inner = properties.get(name, schema.get("additionalProperties"))
        if inner is None:
            yield f"{where}.{name}: is not in the schema"
        else:
            yield from _problems(f"{where}.{name}", member, inner, schemas)


def _has_format(value: object, format_: str) -> bool:
    if isinstance(value, int) and format_ in _BITS:
        return -(1 << _BITS[format_]) <= value < 1 << _BITS[format_]
    if isinstance(value, str) and format_ == "date-time":
        try:
            return datetime.fromisoformat(value).tzinfo is not None
        except ValueError:
            return False
    return True
