"""The OpenAPI documents on a real cluster: merged by kube-aggregator, and read by kubectl explain."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.catalog import GROUP_VERSION, CatalogServer
from tests.cluster.client import Answer, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for

DOCUMENTS = Path(__file__).parents[2] / "openapi"
SPACE = "io.cozystack.catalog.v1alpha1."
KIND = "gpuclasses.catalog.cozystack.io"
PROTOBUF = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)
MERGE_SECONDS = 100
"""kube-aggregator asks each minute, and a minute after a failure."""


def document(name: str) -> Json:
    """One of the documents as it is committed."""
    content: Json = json.loads((DOCUMENTS / name).read_text())
    return content


def merged(control_plane: ControlPlane) -> Json:
    """The cluster's own version 2 document, once ours is merged into it."""

    def ask() -> Json | None:
        answer = control_plane.client.request("GET", "/openapi/v2")
        assert answer.code == 200
        whole = answer.json()
        return whole if f"{SPACE}GPUClass" in whole["definitions"] else None

    return wait_for(ask, "our definitions in /openapi/v2", timeout_seconds=MERGE_SECONDS, poll_seconds=1)


def require_merged(control_plane: ControlPlane) -> None:
    """Everything of ours is in the cluster's document unchanged, nothing else has changed, and protobuf is 200 too."""
    whole, ours = merged(control_plane), document("v2.json")
    assert {name: each for name, each in whole["definitions"].items() if name.startswith(SPACE)} == ours["definitions"]
    assert {path: whole["paths"][path] for path in ours["paths"]} == ours["paths"]
    assert not [name for name in whole["definitions"] if name.endswith("_v2")]
    ids = [get["operationId"] for item in whole["paths"].values() if (get := item.get("get"))]
    assert len(ids) == len(set(ids))
    for accept in PROTOBUF:
        answer = control_plane.client.request("GET", "/openapi/v2", headers={"Accept": accept})
        assert answer.code == 200
        assert f"{SPACE}GPUClassStatus".encode() in answer.body


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("catalog")
def test_version_2_is_merged(control_plane: ControlPlane) -> None:
    """kube-apiserver's own version 2 document has ours in it, for JSON and for protobuf."""
    require_merged(control_plane)


@pytest.fixture
def older_catalog(either_control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The oldest Kubernetes with our server installed."""
    with CatalogServer(either_control_plane):
        yield either_control_plane


@pytest.mark.timeout(300)
@pytest.mark.parametrize("either_control_plane", ["1.34"], indirect=True)
def test_version_2_is_merged_by_the_oldest(older_catalog: ControlPlane) -> None:
    """So has the one of the oldest Kubernetes that we promise to work with."""
    require_merged(older_catalog)


def listed(control_plane: ControlPlane) -> str | None:
    """Where the index of version 3 says that our document is."""
    paths = control_plane.client.get("/openapi/v3")["paths"]
    entry: Json = paths.get(f"apis/{GROUP_VERSION}", {})
    return entry.get("serverRelativeURL")


@pytest.mark.usefixtures("catalog")
def test_version_3_is_listed(control_plane: ControlPlane) -> None:
    """The index of kube-apiserver leads to our document, to be kept for ever; a wrong hash is no redirect."""
    path = wait_for(lambda: listed(control_plane), "our group in /openapi/v3", timeout_seconds=MERGE_SECONDS)
    answer = control_plane.client.request("GET", path)
    assert (answer.code, answer.json()) == (200, document("v3.json"))
    assert answer.headers["cache-control"] == "public, immutable"
    wrong = control_plane.client.request("GET", f"{path[:-1]}?")
    assert (wrong.code, wrong.headers["cache-control"]) == (200, "no-cache, private")


@pytest.mark.usefixtures("catalog")
def test_anybody_may_read(control_plane: ControlPlane) -> None:
    """Who may do nothing else can read the documents, as every user of the cluster can."""
    path = wait_for(lambda: listed(control_plane), "our group in /openapi/v3", timeout_seconds=MERGE_SECONDS)
    with control_plane.user_client("stranger") as stranger:
        answers: list[Answer] = [stranger.request("GET", each) for each in ("/openapi/v2", "/openapi/v3", path)]
    assert [answer.code for answer in answers] == [200, 200, 200]


@pytest.fixture
def explained(control_plane: ControlPlane, catalog: CatalogServer) -> ControlPlane:
    """A cluster whose index of version 3 has our group, and whose version 2 has our definitions."""
    catalog.require_running()
    wait_for(lambda: listed(control_plane), "our group in /openapi/v3", timeout_seconds=MERGE_SECONDS)
    return control_plane


def explain(control_plane: ControlPlane, what: str, *arguments: str) -> str:
    """What kubectl explain prints, in one line."""
    return " ".join(control_plane.kubectl("explain", what, *arguments).stdout.split())


@pytest.mark.timeout(300)
def test_explain(explained: ControlPlane) -> None:
    """Kubectl explain tells the kind, its fields with their types, which are always there, and what they mean."""
    whole = explain(explained, KIND)
    assert whole.startswith("GROUP: catalog.cozystack.io KIND: GPUClass VERSION: v1alpha1")
    assert "status <GPUClassStatus>" in whole
    free = explain(explained, f"{KIND}.status.free")
    assert "FIELD: free <integer>" in free
    assert "Devices free now: allocatable - requested + overcommitted." in free
    status = explain(explained, f"{KIND}.status")
    assert "free <integer> -required-" in status
    assert "ownedResourceName <string> Resource name" in status
    assert "ENUM: passthrough vgpu" in explain(explained, f"{KIND}.spec.mode")
    assert "FIELD: labels <map[string]string>" in explain(explained, f"{KIND}.metadata.labels")
    assert "FIELD: tolerations <[]Toleration>" in explain(explained, f"{KIND}.spec.tolerations")


@pytest.mark.timeout(300)
def test_explain_recursively(explained: ControlPlane) -> None:
    """Every field of the kind is told by kubectl explain --recursive, and none is without a type."""
    told = explain(explained, KIND, "--recursive")
    schemas = document("v3.json")["components"]["schemas"]
    parts = ("GPUClass", "GPUClassSpec", "GPUClassStatus", "ObjectMeta", "Toleration", "DevicePluginSource", "License")
    for part in parts:
        for name in schemas[SPACE + part]["properties"]:
            assert f" {name} <" in told
    assert "<Object>" not in told


@pytest.mark.timeout(300)
def test_explain_from_version_2(explained: ControlPlane) -> None:
    """Kubectl's older way, by way of the merged document in protobuf, tells the same."""
    merged(explained)
    told = explain(explained, f"{KIND}.status.free", "--output=plaintext-openapiv2")
    assert "FIELD: free <integer>" in told
    assert "Devices free now" in told


def test_explain_cannot_reach_a_subresource(explained: ControlPlane) -> None:
    """Kubectl explains no subresource, of any server; our document has it for those who read on their own."""
    for what in ("gpuclasses/catalog.catalog.cozystack.io", "gpuclasscatalogs.catalog.cozystack.io"):
        assert explained.kubectl("explain", what, check=False).returncode != 0
    path = listed(explained)
    assert path is not None
    schema = explained.client.get(path)["components"]["schemas"][f"{SPACE}GPUClassCatalog"]
    assert schema["properties"]["nodes"]["description"]
