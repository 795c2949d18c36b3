"""The OpenAPI documents: what is committed is what is generated, keeps every rule, and tells what is served."""

import copy
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from apiserver.catalog.collections import COLLECTIONS, GPU_CLASSES
from apiserver.catalog.gpuoffers import Offering
from apiserver.catalog.install import install
from apiserver.catalog.schema import INT64, OBJECT_META, STRING, Collection, Field, ListOf, Object
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.gpu.tenants import TenantRules
from apiserver.serving.openapi import without_resource
from apiserver.serving.versions import VersionSource
from openapi import lint
from openapi.definitions import GVK, Definitions, Dialect, GroupVersion
from openapi.generate import HERE, SERVED, documents, version_2, version_3
from openapi.models import Schema

Json = dict[str, Any]

ROOT = HERE.parent
SPACE = "io.cozystack.catalog.v1alpha1."
BASE = "/apis/catalog.cozystack.io/v1alpha1"
PATH = f"{BASE}/gpuclasses"


def committed(name: str) -> Json:
    """One of the two documents as it is served."""
    content: Json = json.loads((HERE / name).read_text())
    return content


@pytest.mark.parametrize("name", ["v2.json", "v3.json"])
def test_committed_is_generated(name: str) -> None:
    """Whoever changes a declaration writes the documents anew: `make openapi`."""
    assert (HERE / name).read_text() == documents()[name]


def test_describes_what_is_served() -> None:
    """The declarations and what is installed have the same resources, kinds, verbs and selectors."""
    offering = Offering(Tenancy(), TenantRules(), lambda: None)
    served = install(View(), VersionSource(lambda: 0.0), lambda: None, offering)
    assert (served.group, served.version) == (SERVED.group, SERVED.version)
    declared = {each.plural: each for each in COLLECTIONS}
    assert [each.plural for each in served.resources] == list(declared)
    for resource in served.resources:
        collection = declared[resource.plural]
        assert (resource.kind, resource.namespaced) == (collection.kind.name, collection.namespaced)
        assert collection.list_kind.name == f"{resource.kind}List"
        assert {each.name: each.kind for each in resource.subresources} == {
            name: kind.name for name, kind in collection.subresources.items()
        }
        own = {"metadata.name", "metadata.namespace"} if resource.namespaced else {"metadata.name"}
        assert set(collection.field_selectors) == own | set(resource.fields)
        assert resource.verbs == ("get", "list", "watch")
        assert all(each.verbs == ("get",) for each in resource.subresources)


def test_operations() -> None:
    """Operations are named, tagged and marked as a Kubernetes server does it."""
    paths = committed("v2.json")["paths"]
    told = {
        path: (get["operationId"], get["x-kubernetes-action"], get[GVK]["kind"], get["responses"]["200"]["schema"])
        for path, get in ((path, item["get"]) for path, item in paths.items())
    }
    assert told == {
        PATH: (
            "listCatalogCozystackIoV1alpha1GPUClass",
            "list",
            "GPUClass",
            {"$ref": f"#/definitions/{SPACE}GPUClassList"},
        ),
        f"{PATH}/{{name}}": (
            "readCatalogCozystackIoV1alpha1GPUClass",
            "get",
            "GPUClass",
            {"$ref": f"#/definitions/{SPACE}GPUClass"},
        ),
        f"{PATH}/{{name}}/catalog": (
            "readCatalogCozystackIoV1alpha1GPUClassCatalog",
            "get",
            "GPUClassCatalog",
            {"$ref": f"#/definitions/{SPACE}GPUClassCatalog"},
        ),
        f"{PATH}/{{name}}/fit": (
            "readCatalogCozystackIoV1alpha1GPUClassFit",
            "get",
            "GPUFit",
            {"$ref": f"#/definitions/{SPACE}GPUFit"},
        ),
        f"{BASE}/gpuoffers": (
            "listCatalogCozystackIoV1alpha1GPUOfferForAllNamespaces",
            "list",
            "GPUOffer",
            {"$ref": f"#/definitions/{SPACE}GPUOfferList"},
        ),
        f"{BASE}/namespaces/{{namespace}}/gpuoffers": (
            "listCatalogCozystackIoV1alpha1NamespacedGPUOffer",
            "list",
            "GPUOffer",
            {"$ref": f"#/definitions/{SPACE}GPUOfferList"},
        ),
        f"{BASE}/namespaces/{{namespace}}/gpuoffers/{{name}}": (
            "readCatalogCozystackIoV1alpha1NamespacedGPUOffer",
            "get",
            "GPUOffer",
            {"$ref": f"#/definitions/{SPACE}GPUOffer"},
        ),
    }
    assert paths[PATH]["get"]["tags"] == ["catalogCozystackIo_v1alpha1"]


@pytest.mark.parametrize(("name", "check"), [("v2.json", lint.problems_2), ("v3.json", lint.problems_3)])
def test_without_offers(name: str, check: Callable[[Json, GroupVersion], list[str]]) -> None:
    """Without offers the documents are what would be generated without them, and keep every rule."""
    generated = {"v2.json": version_2, "v3.json": version_3}[name](SERVED, [GPU_CLASSES])
    pruned = json.loads(without_resource((HERE / name).read_bytes(), "gpuoffers"))
    assert pruned == json.loads(json.dumps(generated))
    assert check(pruned, SERVED) == []


def test_parameters_of_a_subresource() -> None:
    """What can be asked of a subresource is told by both versions: name, type, and whether it must be there."""
    path = f"{PATH}/{{name}}/fit"
    second = {each["name"]: each for each in committed("v2.json")["paths"][path]["get"]["parameters"]}
    third = {each["name"]: each for each in committed("v3.json")["paths"][path]["get"]["parameters"]}
    assert list(second) == list(third) == ["count", "cpu", "devices", "memory"]
    assert [name for name, each in second.items() if each.get("required")] == ["cpu", "devices", "memory"]
    assert (second["cpu"]["type"], second["devices"]["type"]) == ("string", "integer")
    assert third["devices"]["schema"] == {"type": "integer", "format": "int32"}
    assert "parameters" not in committed("v3.json")["paths"][f"{PATH}/{{name}}/catalog"]["get"]


def test_versions_agree() -> None:
    """Both versions have the same paths, operations and definitions; they differ in how they write a reference."""
    second, third = committed("v2.json"), committed("v3.json")
    definitions, schemas = second["definitions"], third["components"]["schemas"]
    assert second["paths"].keys() == third["paths"].keys()
    assert definitions.keys() == schemas.keys()
    for name, schema in schemas.items():
        expected = json.loads(json.dumps(schema).replace(Dialect.V3.value, Dialect.V2.value))
        for inner in expected["properties"].values():
            for reference in inner.pop("allOf", []):
                inner.update(reference)
        assert definitions[name] == expected


def test_namespaced_collection() -> None:
    """A namespaced resource can be listed in one namespace and in all; its documents keep the rules."""
    item = Object(
        "Toy",
        "A toy.",
        (
            Field("apiVersion", STRING, "Group and version."),
            Field("kind", STRING, "Kind."),
            Field("metadata", OBJECT_META, "Its name."),
        ),
        is_kind=True,
    )
    many = Object("ToyList", "Toys.", (*item.fields, Field("items", ListOf(item), "The toys.")), is_kind=True)
    served, toys = GroupVersion("toys.k8s.io", "v1"), Collection("toys", item, many, namespaced=True)
    assert lint.problems_3(version_3(served, [toys]), served) == []
    document = version_2(served, [toys])
    assert lint.problems_2(document, served) == []
    assert {path: content["get"]["operationId"] for path, content in document["paths"].items()} == {
        "/apis/toys.k8s.io/v1/toys": "listToysV1ToyForAllNamespaces",
        "/apis/toys.k8s.io/v1/namespaces/{namespace}/toys": "listToysV1NamespacedToy",
        "/apis/toys.k8s.io/v1/namespaces/{namespace}/toys/{name}": "readToysV1NamespacedToy",
    }


def test_one_name_for_one_object() -> None:
    """Two different objects cannot have the same name."""
    definitions = Definitions(SERVED, Dialect.V2)
    definitions.reference(Object("Toy", "A toy.", (Field("size", INT64, "Its size."),)))
    with pytest.raises(ValueError, match="Toy"):
        definitions.reference(Object("Toy", "A toy.", (Field("size", STRING, "Its size."),)))


def test_extensions_survive() -> None:
    """An extension is kept, also of a schema within a schema; the library's own models drop it."""
    inner = Schema.parse_obj({"type": "string", "x-kubernetes-toy": True})
    outer = Schema.parse_obj({"type": "object", "properties": {"toy": inner}, "x-kubernetes-toys": [1]})
    content = outer.dict(by_alias=True, exclude_unset=True)
    assert content["x-kubernetes-toys"] == [1]
    assert content["properties"]["toy"]["x-kubernetes-toy"] is True


@pytest.mark.timeout(300)
def test_in_a_wheel(tmp_path: Path) -> None:
    """An installed package carries the documents and finds them."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    assert not (tmp_path / "installed" / "openapi").exists()
    for name in ("v2.json", "v3.json"):
        assert (tmp_path / "installed" / "apiserver" / "openapi" / name).read_bytes() == (HERE / name).read_bytes()
    found = subprocess.run(
        [sys.executable, "-P", "-c", "import apiserver.catalog.install as i; i.read_openapi(); print(i.__file__)"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "installed")},
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.stdout.startswith(str(tmp_path))


def test_rules_are_kept() -> None:
    """What is committed breaks no rule."""
    assert lint.problems_2(committed("v2.json"), SERVED) == []
    assert lint.problems_3(committed("v3.json"), SERVED) == []


def status_field(document: Json) -> Json:
    """The schema of GPUClassStatus.free."""
    schemas = document.get("definitions") or document["components"]["schemas"]
    field: Json = schemas[f"{SPACE}GPUClassStatus"]["properties"]["free"]
    return field


def schema(document: Json, name: str) -> Json:
    """One definition."""
    found: Json = (document.get("definitions") or document["components"]["schemas"])[SPACE + name]
    return found


def operation(document: Json, path: str = PATH) -> Json:
    """The GET of a path."""
    found: Json = document["paths"][path]["get"]
    return found


def rename(document: Json, old: str, new: str) -> None:
    """Give a definition another name, references included."""
    text = json.dumps(document).replace(f"{old}", new)
    document.clear()
    document.update(json.loads(text))


def use_twice(document: Json) -> None:
    """Give two operations the same operationId."""
    operation(document)["operationId"] = operation(document, f"{PATH}/{{name}}")["operationId"]


BROKEN = [
    pytest.param(lambda d: d.update(swagger="2.1", openapi="3.1.0"), id="another version of OpenAPI"),
    pytest.param(lambda d: d["info"].pop("version"), id="no version"),
    pytest.param(lambda d: d["paths"].clear(), id="no paths"),
    pytest.param(lambda d: d["paths"].update({"/apis/other/v1/toys": d["paths"][PATH]}), id="a path not ours"),
    pytest.param(lambda d: d["paths"][PATH].update(put=operation(d)), id="a verb not served"),
    pytest.param(use_twice, id="an operationId twice"),
    pytest.param(lambda d: operation(d).update(operationId="listGPUClass"), id="an operationId without the group"),
    pytest.param(lambda d: operation(d)["responses"].clear(), id="no responses"),
    pytest.param(lambda d: operation(d)["responses"].update({"ok": {"description": "OK"}}), id="no status code"),
    pytest.param(lambda d: operation(d)["responses"]["401"].pop("description"), id="a response not described"),
    pytest.param(lambda d: operation(d).pop(GVK), id="an operation without its kind"),
    pytest.param(lambda d: operation(d)[GVK].update(kind="GPU"), id="an operation of a kind that is not defined"),
    pytest.param(lambda d: operation(d)[GVK].update(group="apps"), id="an operation of another group"),
    pytest.param(lambda d: operation(d).pop("x-kubernetes-action"), id="an operation without its action"),
    pytest.param(lambda d: operation(d).pop("tags"), id="an operation without a tag"),
    pytest.param(lambda d: operation(d)["parameters"].append({"name": "a"}), id="a parameter without place and type"),
    pytest.param(lambda d: operation(d)["parameters"].append(operation(d)["parameters"][0]), id="a parameter twice"),
    pytest.param(lambda d: operation(d)["parameters"][0].update(oneOf=[]), id="an unknown key of a parameter"),
    pytest.param(lambda d: d["paths"][f"{PATH}/{{name}}"]["parameters"].pop(0), id="a path without its parameter"),
    pytest.param(lambda d: rename(d, f"{SPACE}ListMeta", "io.k8s.ListMeta"), id="a name not ours"),
    pytest.param(lambda d: schema(d, "GPUClass").pop(GVK), id="a kind that is not marked"),
    pytest.param(lambda d: schema(d, "GPUClassList").pop(GVK), id="a list that is not marked"),
    pytest.param(lambda d: schema(d, "GPUClass").update({GVK: SERVED.kind("GPUClass")}), id="a mark that is no list"),
    pytest.param(lambda d: schema(d, "GPUClass")["properties"].pop("kind"), id="a kind without kind"),
    pytest.param(lambda d: schema(d, "GPUClassStatus").pop("description"), id="a definition not described"),
    pytest.param(lambda d: schema(d, "GPUClassStatus").update(additionalProperties=False), id="both kinds of fields"),
    pytest.param(lambda d: schema(d, "GPUClassStatus")["required"].append("none"), id="an unknown field required"),
    pytest.param(lambda d: status_field(d).update(additionalProperties={"type": "string"}), id="a number with fields"),
    pytest.param(lambda d: status_field(d).pop("description"), id="a field not described"),
    pytest.param(lambda d: status_field(d).pop("type"), id="a field without a type"),
    pytest.param(lambda d: status_field(d).pop("format"), id="an integer of any size"),
    pytest.param(lambda d: status_field(d).update(format="date-time"), id="a format of another type"),
    pytest.param(lambda d: status_field(d).update(type=["integer", "string"]), id="a list of types"),
    pytest.param(lambda d: status_field(d).update(type="array"), id="an array of nothing"),
    pytest.param(lambda d: status_field(d).update(type="object"), id="an object of nothing"),
    pytest.param(lambda d: status_field(d).update(enum=["1"]), id="an enum of another type"),
    pytest.param(lambda d: status_field(d).update(default=None), id="null"),
    pytest.param(
        lambda d: schema(d, "ObjectMeta")["properties"]["labels"].update(additionalProperties=True),
        id="a boolean additionalProperties",
    ),
    *(
        pytest.param(lambda d, key=key, value=value: status_field(d).update({key: value}), id=key)
        for key, value in (
            ("anyOf", []),
            ("oneOf", []),
            ("not", {}),
            ("nullable", True),
            ("const", 1),
            ("$schema", "x"),
            ("x-kubernetes-preserve-unknown-fields", True),
            ("x-kubernetes-int-or-string", True),
        )
    ),
    pytest.param(lambda d: schema(d, "GPUClassStatus").update(allOf=[]), id="allOf of nothing"),
    pytest.param(
        lambda d: schema(d, "GPUClassList")["properties"]["items"]["items"].update({"$ref": "#/definitions/None"}),
        id="a reference to nothing",
    ),
    pytest.param(
        lambda d: schema(d, "GPUClassList")["properties"]["items"]["items"].update(type="object"),
        id="a reference with more beside it",
    ),
    pytest.param(
        lambda d: (d.get("definitions") or d["components"]["schemas"]).update({f"{SPACE}Unused": schema(d, "License")}),
        id="a definition that is not used",
    ),
]


@pytest.mark.parametrize("name", ["v2.json", "v3.json"])
@pytest.mark.parametrize("spoil", BROKEN)
def test_broken_rules_are_seen(name: str, spoil: Callable[[Json], object]) -> None:
    """Each broken rule is told, in either version."""
    document = copy.deepcopy(committed(name))
    spoil(document)
    problems = lint.problems_2 if name == "v2.json" else lint.problems_3
    assert problems(document, SERVED)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda d: d.update(components={}), id="an unknown key of the document"),
        pytest.param(lambda d: operation(d).update(requestBody={}), id="an unknown key of an operation"),
        pytest.param(lambda d: operation(d)["responses"]["200"].update(content={}), id="an unknown key of a response"),
        pytest.param(lambda d: operation(d).pop("produces"), id="an operation without a type of answer"),
        pytest.param(
            lambda d: schema(d, "GPUClass")["properties"]["status"].update(
                allOf=[{"$ref": schema(d, "GPUClass")["properties"]["status"].pop("$ref")}]
            ),
            id="a wrapped reference",
        ),
    ],
)
def test_rules_of_version_2(spoil: Callable[[Json], object]) -> None:
    """What only version 2 forbids, for gnostic's and Terraform's sake, is told too."""
    document = copy.deepcopy(committed("v2.json"))
    spoil(document)
    assert lint.problems_2(document, SERVED)
