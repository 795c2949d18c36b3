"""The API over HTTP: discovery, objects, lists, Tables, refusals and health."""

from typing import Any

import pytest

from apiserver.gpu.nodes import Node
from apiserver.gpu.offers import Permits
from apiserver.gpu.pods import Pod
from tests.http.apps import Client
from tests.http.conftest import RESOURCE, Cluster

BASE = "/apis/catalog.cozystack.io/v1alpha1"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


async def get(client: Client, path: str, status: int = 200, headers: dict[str, str] | None = None) -> Any:  # noqa: ANN401 # JSON
    """The JSON of an answer that must have the status."""
    response = await client.get(path, headers=headers)
    assert response.status == status, await response.text()
    return await response.json(content_type=None)


async def test_list(client: Client) -> None:
    """A list has a version, and each object carries its own figures."""
    listing = await get(client, f"{BASE}/gpuclasses")
    assert (listing["kind"], listing["apiVersion"]) == ("GPUClassList", "catalog.cozystack.io/v1alpha1")
    assert int(listing["metadata"]["resourceVersion"]) > 0
    (item,) = listing["items"]
    assert (item["kind"], item["apiVersion"]) == ("GPUClass", "catalog.cozystack.io/v1alpha1")
    assert item["metadata"] == {
        "name": "l40s",
        "uid": "u-1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"tier": "gold"},
        "resourceVersion": item["metadata"]["resourceVersion"],
    }
    assert item["status"] == {
        "capacity": 4,
        "allocatable": 4,
        "requested": 1,
        "overcommitted": 0,
        "free": 3,
        "unavailable": 0,
        "maxFreePerNode": 3,
        "maxPerInstance": 2,
        "orderable": 3,
        "offered": True,
        "reason": "Offered",
        "message": item["status"]["message"],
        "sharesWith": [],
    }


async def test_empty_list(client: Client, cluster: Cluster) -> None:
    """An empty list has items, and they are none."""
    cluster.view.replace_classes([])
    assert (await get(client, f"{BASE}/gpuclasses"))["items"] == []


async def test_get_follows_the_cluster(client: Client, cluster: Cluster) -> None:
    """The next answer after a change has it, with a later version; a change nobody can see keeps the version."""
    first = await get(client, f"{BASE}/gpuclasses/l40s")
    cluster.view.apply_pod(Pod("ns", "unbound", "", {RESOURCE: 1}))
    assert await get(client, f"{BASE}/gpuclasses/l40s") == first
    cluster.view.apply_pod(Pod("ns", "unbound", "n1", {RESOURCE: 1}))
    second = await get(client, f"{BASE}/gpuclasses/l40s")
    assert second["status"]["free"] == 2
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])


async def test_catalog(client: Client) -> None:
    """The page of a class says what is sold, what is free, how it can be placed, and where."""
    page = await get(client, f"{BASE}/gpuclasses/l40s/catalog")
    assert page["kind"] == "GPUClassCatalog"
    assert page["metadata"]["name"] == "l40s"
    assert page["offer"]["licenseRequired"] is False
    assert (page["capacity"]["free"], page["capacity"]["pending"]) == (3, 0)
    assert page["placement"] == [{"devices": 1, "instances": 3}, {"devices": 2, "instances": 1}]
    assert page["nodes"] == [
        {"name": "n1", "eligible": True, "reasons": [], "capacity": 4, "allocatable": 4, "requested": 1, "free": 3}
    ]
    assert page["nodesWithoutResource"] == 0


async def test_kubevirt_and_dra(client: Client, cluster: Cluster) -> None:
    """What KubeVirt does not permit is not orderable, though free; what was last known and what DRA maps is said."""
    path = f"{BASE}/gpuclasses/l40s"
    cluster.view.set_permits(Permits(frozenset()))
    status = (await get(client, path))["status"]
    assert (status["reason"], status["offered"], status["free"], status["orderable"]) == ("NotPermitted", False, 3, 0)
    assert (await get(client, f"{path}/catalog"))["notes"] == []
    cluster.view.set_permits(Permits(frozenset(), stale=True))
    stale = (await get(client, path))["status"]
    assert (stale["reason"], stale["message"].startswith(status["message"])) == ("NotPermitted", True)
    assert stale["message"] != status["message"]
    cluster.view.set_mapped({RESOURCE: ("gpu.example.com",)})
    notes = (await get(client, f"{path}/catalog"))["notes"]
    assert len(notes) == 2
    assert "gpu.example.com" in notes[0]


async def test_absurd_quantities(client: Client, cluster: Cluster) -> None:
    """Sums beyond int64 end at its largest value: no client can hold more."""
    largest = 2**63 - 1
    for name in ("n2", "n3", "n4"):
        cluster.view.apply_node(Node(name, capacity={RESOURCE: largest}, allocatable={RESOURCE: largest}))
        cluster.view.apply_pod(Pod("ns", f"{name}-a", "n1", {RESOURCE: largest}))
        cluster.view.apply_pod(Pod("ns", f"{name}-b", "", {RESOURCE: largest}))
    status = (await get(client, f"{BASE}/gpuclasses/l40s"))["status"]
    assert (status["capacity"], status["free"], status["requested"], status["maxPerInstance"]) == (*[largest] * 3, 2)
    page = await get(client, f"{BASE}/gpuclasses/l40s/catalog")
    assert page["capacity"]["pending"] == page["nodes"][0]["requested"] == page["placement"][0]["instances"] == largest


@pytest.mark.parametrize(
    ("path", "columns", "cells"),
    [
        pytest.param(
            "gpuclasses",
            ["Name", "Free", "Max", "Requested", "Allocatable", "Offered", "Reason", "Age"],
            ["l40s", 3, 2, 1, 4, True, "Offered"],
            id="list",
        ),
        pytest.param(
            "gpuclasses/l40s",
            ["Name", "Free", "Max", "Requested", "Allocatable", "Offered", "Reason", "Age"],
            ["l40s", 3, 2, 1, 4, True, "Offered"],
            id="one",
        ),
        pytest.param(
            "gpuclasses/l40s/catalog",
            ["Node", "Free", "Requested", "Allocatable", "Capacity", "Eligible", "Reasons"],
            ["n1", 3, 1, 4, 4, True, ""],
            id="node by node",
        ),
    ],
)
async def test_tables(client: Client, path: str, columns: list[str], cells: list[object]) -> None:
    """A Table has the columns of the kind, and each row the metadata of its object."""
    table = await get(client, f"{BASE}/{path}", headers=TABLE)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [each["name"] for each in table["columnDefinitions"] if not each["priority"]] == columns
    assert table["rows"][0]["cells"][: len(cells)] == cells
    assert table["rows"][0]["object"]["metadata"]["name"] == "l40s"


async def test_partial_metadata(client: Client) -> None:
    """Metadata alone can be had of an object and of a list, and each only in its own form."""
    one = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    many = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    partial = await get(client, f"{BASE}/gpuclasses/l40s", headers=one)
    assert set(partial) == {"kind", "apiVersion", "metadata"}
    listing = await get(client, f"{BASE}/gpuclasses", headers=many)
    assert listing["items"] == [partial]
    await get(client, f"{BASE}/gpuclasses", 406, one)
    await get(client, f"{BASE}/gpuclasses/l40s", 406, many)


@pytest.mark.parametrize(
    ("method", "path", "headers", "code", "reason"),
    [
        pytest.param("GET", f"{BASE}/gpuclasses/none", {}, 404, "NotFound", id="no such class"),
        pytest.param("GET", f"{BASE}/gpuclasses/none/catalog", {}, 404, "NotFound", id="no such class's page"),
        pytest.param("GET", f"{BASE}/gpus", {}, 404, "NotFound", id="no such resource"),
        pytest.param("GET", f"{BASE}/gpuclasses/l40s/scale", {}, 404, "NotFound", id="no such subresource"),
        pytest.param("GET", f"{BASE}/gpuclasses/l40s/catalog/x", {}, 404, "NotFound", id="too deep"),
        pytest.param("GET", f"{BASE}/namespaces/a/gpuclasses", {}, 404, "NotFound", id="not in a namespace"),
        pytest.param("POST", f"{BASE}/gpuclasses", {}, 405, "MethodNotAllowed", id="create"),
        pytest.param("DELETE", f"{BASE}/gpuclasses/l40s", {}, 405, "MethodNotAllowed", id="delete"),
        pytest.param("POST", "/apis", {}, 405, "MethodNotAllowed", id="write to discovery"),
        pytest.param("GET", f"{BASE}/watch/gpuclasses", {}, 404, "NotFound", id="the old form of a watch"),
        pytest.param("GET", f"{BASE}/gpuclasses?continue=x", {}, 400, "BadRequest", id="a token that is none"),
        pytest.param(
            "GET", f"{BASE}/gpuclasses?labelSelector=a b", {}, 400, "BadRequest", id="a selector that is none"
        ),
        pytest.param("GET", f"{BASE}/gpuclasses", {"Accept": "text/plain"}, 406, "NotAcceptable", id="plain text"),
        pytest.param("GET", f"{BASE}/gpuclasses?includeObject=x", TABLE, 400, "BadRequest", id="includeObject"),
        pytest.param("GET", "/apis", {"Host": "gpus.example.com"}, 403, "Forbidden", id="a name that is not loopback"),
    ],
)
async def test_refusals(
    client: Client, method: str, path: str, headers: dict[str, str], code: int, reason: str
) -> None:
    """A refusal is a Status with code and reason, without an Allow header."""
    response = await client.request(method, path, headers=headers)
    status = await response.json()
    assert (response.status, status["code"], status["reason"]) == (code, code, reason)
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert "Allow" not in response.headers
    assert ("Retry-After" in response.headers) == (code == 503)


async def test_not_found_details(client: Client) -> None:
    """The details of a NotFound name the resource, not the kind."""
    status = await get(client, f"{BASE}/gpuclasses/none", 404)
    assert status["message"] == 'gpuclasses.catalog.cozystack.io "none" not found'
    assert status["details"] == {"name": "none", "group": "catalog.cozystack.io", "kind": "gpuclasses"}


async def test_head(client: Client) -> None:
    """HEAD is a method like any other that is not served."""
    assert (await client.head(f"{BASE}/gpuclasses")).status == 405


@pytest.mark.parametrize("path", ["/api", "/api/v1/pods", "/apis/other.group", "/metrics", "/favicon.ico"])
async def test_elsewhere(client: Client, path: str) -> None:
    """A path that nothing is known of is 404 in plain text."""
    response = await client.get(path)
    assert (response.status, response.content_type) == (404, "text/plain")


@pytest.mark.parametrize("path", ["/", "/index.html"])
async def test_index(client: Client, cluster: Cluster, path: str) -> None:
    """The root lists the paths there are, sorted; each of them is answered."""
    cluster.health.ready["sync"] = lambda: None
    paths = (await get(client, path))["paths"]
    assert paths == sorted(paths)
    assert {"/apis", BASE, "/openapi/v2", "/openapi/v3", "/version", "/livez/ping", "/readyz/sync"} <= set(paths)
    for each in paths:
        assert (await client.get(each)).status == 200
    assert (await client.post(path)).status == 405


async def test_export(client: Client) -> None:
    """An export is refused; none is asked for when it is false."""
    await get(client, f"{BASE}/gpuclasses/l40s?export=true", 400)
    await get(client, f"{BASE}/gpuclasses/l40s?export=false")


async def test_unsynced(client: Client, cluster: Cluster) -> None:
    """Until the first sync data is 503 with Retry-After, never zeros; discovery answers."""
    cluster.unsynced = "not listed yet: pods"
    for path in ("gpuclasses", "gpuclasses/l40s", "gpuclasses/l40s/catalog", "gpuclasses/none"):
        response = await client.get(f"{BASE}/{path}")
        status = await response.json()
        assert (response.status, status["reason"], response.headers["Retry-After"]) == (503, "ServiceUnavailable", "1")
        assert "pods" in status["message"]
    for path in ("/apis", "/apis/catalog.cozystack.io", BASE):
        assert (await client.get(path)).status == 200


async def test_legacy_discovery(client: Client) -> None:
    """The plain documents name the group, its version, and what is served with which verbs."""
    groups = await get(client, "/apis")
    assert groups["kind"] == "APIGroupList"
    assert "apiVersion" not in groups
    group = await get(client, "/apis/catalog.cozystack.io/")
    assert (group["kind"], group["preferredVersion"]["version"]) == ("APIGroup", "v1alpha1")
    resources = await get(client, BASE)
    assert resources == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "catalog.cozystack.io/v1alpha1",
        "resources": [
            {
                "name": "gpuclasses",
                "singularName": "gpuclass",
                "namespaced": False,
                "kind": "GPUClass",
                "verbs": ["get", "list", "watch"],
                "shortNames": ["gpucatalog"],
                "categories": ["gpu"],
            },
            {
                "name": "gpuclasses/catalog",
                "singularName": "",
                "namespaced": False,
                "kind": "GPUClassCatalog",
                "verbs": ["get"],
            },
            {
                "name": "gpuclasses/fit",
                "singularName": "",
                "namespaced": False,
                "kind": "GPUFit",
                "verbs": ["get"],
            },
        ],
    }


AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


@pytest.mark.parametrize(
    "accept", [AGGREGATED, f"{AGGREGATED},application/json", f"{AGGREGATED};profile=nopeer,{AGGREGATED}"]
)
async def test_aggregated_discovery(client: Client, accept: str) -> None:
    """One document of everything, with an ETag that saves sending it again."""
    response = await client.get("/apis", headers={"Accept": accept})
    document = await response.json(content_type=None)
    assert response.headers["Content-Type"] == AGGREGATED
    (resource,) = document["items"][0]["versions"][0]["resources"]
    assert resource["responseKind"] == {"group": "catalog.cozystack.io", "version": "v1alpha1", "kind": "GPUClass"}
    assert [each["subresource"] for each in resource["subresources"]] == ["catalog", "fit"]
    again = await client.get("/apis", headers={"Accept": accept, "If-None-Match": response.headers["Etag"]})
    assert (again.status, await again.read()) == (304, b"")


async def test_old_aggregated_discovery(client: Client) -> None:
    """Who asks only for a form that is gone gets the plain list if that will do."""
    old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
    assert (await get(client, "/apis", headers={"Accept": f"{old},application/json"}))["kind"] == "APIGroupList"
    await get(client, "/apis", 406, {"Accept": old})


async def test_health(client: Client, cluster: Cluster) -> None:
    """A failing check fails readiness only, without its reason; each check can be asked for and left out."""
    cluster.health.ready["sync"] = lambda: "no pods"
    cluster.health.hidden["serving"] = lambda: None
    texts = {}
    for path in ("livez", "healthz?verbose", "readyz", "readyz?exclude=sync", "readyz/sync", "readyz/serving"):
        response = await client.get(f"/{path}")
        texts[path] = (response.status, await response.text())
    assert texts["livez"] == (200, "ok")
    assert texts["healthz?verbose"] == (200, "[+]ping ok\nhealthz check passed\n")
    assert texts["readyz"] == (500, "[+]ping ok\n[-]sync failed: reason withheld\nreadyz check failed\n")
    assert texts["readyz?exclude=sync"][0] == 200
    assert texts["readyz/sync"] == (500, "internal server error: no pods\n")
    assert texts["readyz/serving"] == (200, "ok")
    assert (await client.get("/readyz/none")).status == 404
    assert (await client.get("/healthz/serving")).status == 404


async def test_yaml_and_pretty(client: Client) -> None:
    """YAML for who asks, indentation for people, one line for programs."""
    path = f"{BASE}/gpuclasses/l40s"
    assert (await (await client.get(path, headers={"Accept": "application/yaml"})).text()).startswith("apiVersion:")
    pretty = await (await client.get(path, headers={"User-Agent": "curl/8"})).text()
    assert (pretty[:4], pretty[-2:]) == ("{\n  ", "\n}")
    assert (await (await client.get(path)).text()).count("\n") == 1


async def test_headers(client: Client) -> None:
    """Every answer carries an audit id, is kept out of caches, and does not say what made it."""
    response = await client.get(BASE, headers={"Audit-Id": "mine"})
    assert response.headers["Audit-Id"] == "mine"
    assert response.headers["Cache-Control"] == "no-cache, private"
    assert "Server" not in response.headers
    assert len((await client.get(BASE)).headers["Audit-Id"]) == 36


async def test_version(client: Client) -> None:
    """The version is that of the program."""
    assert (await get(client, "/version"))["gitVersion"] == "v0.1.0"


async def test_compression(client: Client, cluster: Cluster) -> None:
    """A large answer is compressed for who takes it, a small one never."""
    assert (await client.get(f"{BASE}/gpuclasses")).headers.get("Content-Encoding") is None
    for number in range(1500):
        cluster.view.apply_node(Node(f"node-{number:05}", capacity={RESOURCE: 4}, allocatable={RESOURCE: 4}))
    response = await client.get(f"{BASE}/gpuclasses/l40s/catalog", headers={"Accept-Encoding": "gzip"})
    assert (response.headers["Content-Encoding"], response.headers["Vary"]) == ("gzip", "Accept-Encoding")
    assert (await response.json())["kind"] == "GPUClassCatalog"


async def test_a_bug_is_an_answer(client: Client, cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours is a 500 that tells the client nothing and the log everything."""

    def fail() -> str | None:
        raise ZeroDivisionError("secret")

    cluster.health.ready["broken"] = fail
    response = await client.get("/readyz", headers={"Audit-Id": "x-1"})
    assert response.status == 500
    assert "secret" not in await response.text()
    (record,) = (each for each in caplog.records if each.exc_info)
    assert vars(record)["values"] == {"audit-ID": "x-1"}
    assert "ZeroDivisionError" in caplog.text
