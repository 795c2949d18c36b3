"""`api.md`: every kind, field and verb, from the OpenAPI document; examples from the example cluster."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from apiserver.catalog.gpuclasses import API_VERSION, GROUP
from apiserver.catalog.gpuoffers import Offering
from apiserver.catalog.install import install
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.gpu.tenants import TenantRules
from apiserver.inputs import load_snapshot
from apiserver.serving.resources import Document, GroupVersion
from apiserver.serving.versions import VersionSource

Json = Mapping[str, Any]

_ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = _ROOT / "openapi" / "v3.json"
SNAPSHOT: Final = _ROOT / "manifests" / "examples" / "snapshot.yaml"
CLASS, NAMESPACE = "l40s-24c", "tenant-aurora"
SHAPE: Final = {"devices": ["1"], "cpu": ["4"], "memory": ["32Gi"], "count": ["10"]}
_VERSION: Final = "7436250000000"
"""In place of the resourceVersion of an example, which would be another one each time."""

_PATHS: Final = f"/apis/{API_VERSION}"
_KINDS: Final = {
    "GPUClass": f"{_PATHS}/gpuclasses",
    "GPUClassCatalog": f"{_PATHS}/gpuclasses/{{name}}/catalog",
    "GPUFit": f"{_PATHS}/gpuclasses/{{name}}/fit",
    "GPUOffer": f"{_PATHS}/namespaces/{{namespace}}/gpuoffers",
}
"""The kinds that are asked for, each with the path that says most about it."""

_HEAD: Final = f"""# API reference

Written by `make docs` from `openapi/v3.json`, which the server itself serves at `/openapi/v3`; `kubectl explain` prints
the same. The examples are answers about the cluster in `manifests/examples/snapshot.yaml`.

Group `{GROUP}`, version `v1alpha1`: only `get`, `list` and `watch`; everything else is 405. Values that are
not known are left out, never null. Devices are whole devices, quantities are strings.
"""


def write_api() -> str:
    """The page."""
    document: Json = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    examples = asyncio.run(_examples())
    sections = (_section(document, kind, path, examples[kind]) for kind, path in _KINDS.items())
    return "\n".join([_HEAD, *sections]).rstrip("\n") + "\n"


def _section(document: Json, kind: str, path: str, example: Json) -> str:
    schemas = document["components"]["schemas"]
    name = next(each for each in schemas if each.endswith(f".{kind}"))
    fields = [f"| `{field}` | {type_} | {_cell(text)} |" for field, type_, text in _fields(schemas, schemas[name], "")]
    return "\n".join(
        [
            f"## {kind}",
            "",
            schemas[name]["description"],
            "",
            *_requests(document["paths"], kind),
            *_parameters(document["paths"][path]),
            "| field | type | meaning |",
            "|---|---|---|",
            *fields,
            "",
            "```json",
            json.dumps(example, indent=2, ensure_ascii=False),
            "```",
            "",
        ]
    )


def _requests(paths: Json, kind: str) -> Iterator[str]:
    """What can be asked for the kind: verb and path."""
    yield "| verb | path |"
    yield "|---|---|"
    for path, item in sorted(paths.items()):
        get = item.get("get", {})
        if get.get("x-kubernetes-group-version-kind", {}).get("kind") == kind:
            watches = any(each["name"] == "watch" for each in _all_parameters(item))
            yield f"| {get['x-kubernetes-action']}{', watch' * watches} | `{path}` |"
    yield ""


def _parameters(item: Json) -> Iterator[str]:
    """What may be added to a request."""
    asked = [each for each in _all_parameters(item) if each["in"] == "query"]
    if not asked:
        return
    yield "| parameter | type | meaning |"
    yield "|---|---|---|"
    for each in sorted(asked, key=lambda each: (not each.get("required"), each["name"])):
        required = "required: " if each.get("required") else ""
        yield f"| `{each['name']}` | {each['schema']['type']} | {required}{_cell(each['description'])} |"
    yield ""


def _all_parameters(item: Json) -> list[Json]:
    return [*item.get("parameters", ()), *item.get("get", {}).get("parameters", ())]


def _fields(schemas: Json, schema: Json, prefix: str) -> Iterator[tuple[str, str, str]]:
    """Each field by its whole path, with type and meaning; [] stands for each element of a list."""
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        type_, inner, suffix = _type(schemas, field)
        text = field.get("description", "")
        yield prefix + name, type_ + (", required" if name in required else ""), text
        if inner is not None:
            yield from _fields(schemas, inner, f"{prefix}{name}{suffix}.")


def _type(schemas: Json, field: Json) -> tuple[str, Json | None, str]:
    """The type in words, what is inside, and what stands between the two in a path."""
    reference = field.get("$ref") or next((each["$ref"] for each in field.get("allOf", ())), None)
    if reference is not None:
        return "object", schemas[reference.rpartition("/")[2]], ""
    if field.get("type") == "array":
        type_, inner, suffix = _type(schemas, field["items"])
        return f"list of {type_}", inner, f"[]{suffix}"
    if "additionalProperties" in field:
        return f"map of {_type(schemas, field['additionalProperties'])[0]}", None, ""
    return str(field.get("type", "any")), None, ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


async def _examples() -> dict[str, Json]:
    """Kind to an answer about the example cluster."""
    served = _served()
    classes, offers = served.resources
    async with classes.store.open("") as store:
        gpu_class = store.get(("", CLASS))
    async with offers.store.open(NAMESPACE) as store:
        offer = store.get((NAMESPACE, CLASS))
    subresources = {each.name: each for each in classes.subresources}
    found: dict[str, Json | None] = {
        "GPUClass": None if gpu_class is None else gpu_class.object,
        "GPUClassCatalog": _object(await subresources["catalog"].read("", CLASS, {})),
        "GPUFit": _object(await subresources["fit"].read("", CLASS, SHAPE)),
        "GPUOffer": None if offer is None else offer.object,
    }
    return {kind: _lasting(example) for kind, example in found.items() if example is not None}


def _object(document: Document | None) -> Json | None:
    return None if document is None else document.object


def _served() -> GroupVersion:
    view, tenancy = View(), Tenancy()
    load_snapshot(str(SNAPSHOT)).fill(view, tenancy)
    return install(view, VersionSource(lambda: 1.8e9), lambda: None, Offering(tenancy, TenantRules(), lambda: None))


def _lasting(example: Json) -> Json:
    """The example with a version that is always the same."""
    if "resourceVersion" not in example["metadata"]:
        return example
    return {**example, "metadata": {**example["metadata"], "resourceVersion": _VERSION}}
