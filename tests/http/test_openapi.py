"""The OpenAPI documents over HTTP, and every answer of the server held against its own schema."""

import gzip
import hashlib
import json
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from aiohttp.pytest_plugin import AiohttpClient

from apiserver.cluster.view import View
from apiserver.gpu.capacity import NodeReason
from apiserver.gpu.classes import parse_class
from apiserver.gpu.nodes import Node
from apiserver.gpu.offers import ClassReason, Permits
from apiserver.gpu.pods import Pod
from apiserver.gpu.tolerations import Taint
from apiserver.serving.filters import only_loopback
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.openapi import OpenAPI
from apiserver.serving.resources import GroupVersion
from apiserver.serving.server import make_app
from openapi.answers import problems
from tests.http.apps import AppServer, Client
from tests.http.conftest import RESOURCE, Cluster

Json = dict[str, Any]

VGPU = "nvidia.com/NVIDIA_L40S-24C"
BASE = "/apis/catalog.cozystack.io/v1alpha1"
V2, INDEX, V3 = "/openapi/v2", "/openapi/v3", f"/openapi/v3{BASE}"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def tag_of(body: bytes) -> str:
    """The entity tag that Kubernetes gives a document."""
    return f'"{hashlib.sha512(body).hexdigest().upper()}"'


@pytest.mark.parametrize("path", [V2, INDEX, V3, f"{V3}/"])
async def test_document(client: Client, path: str) -> None:
    """A document is JSON, with an entity tag and a date by which a client need not be sent it again."""
    response = await client.get(path, headers={"Accept-Encoding": "identity"})
    body = await response.read()
    assert (response.status, response.headers["Content-Type"]) == (200, "application/json")
    assert json.loads(body)
    assert response.headers["Etag"] == tag_of(body)
    assert response.headers["Cache-Control"] == "no-cache, private"
    assert parsedate_to_datetime(response.headers["Last-Modified"]) <= datetime.now(UTC)
    assert "Accept" in response.headers["Vary"].split(", ")


@pytest.mark.parametrize("path", [V2, INDEX, V3])
async def test_not_sent_again(client: Client, path: str) -> None:
    """Who has the document is told so, by its tag before its date."""
    first = await client.get(path)
    tag, date = first.headers["Etag"], first.headers["Last-Modified"]
    early = "Thu, 01 Jan 2026 00:00:00 GMT"
    for headers, status in (
        ({"If-None-Match": tag}, 304),
        ({"If-None-Match": f'"other", W/{tag}'}, 304),
        ({"If-None-Match": "*"}, 304),
        ({"If-None-Match": '"other"'}, 200),
        ({"If-None-Match": '"other"', "If-Modified-Since": date}, 200),
        ({"If-Modified-Since": date}, 304),
        ({"If-Modified-Since": early}, 200),
    ):
        response = await client.get(path, headers=headers)
        assert response.status == status, headers
        assert response.headers["Etag"] == tag
        assert bool(await response.read()) == (status == 200)


@pytest.mark.parametrize(
    ("path", "accept", "status"),
    [
        pytest.param(V2, "*/*", 200, id="anything"),
        pytest.param(V2, "application/*", 200, id="any application"),
        pytest.param(V2, f"{PROTOBUF},application/json", 200, id="protobuf first"),
        pytest.param(V2, PROTOBUF, 406, id="only protobuf"),
        pytest.param(V2, "text/html", 406, id="a page"),
        pytest.param(V3, "application/json", 200, id="JSON"),
        pytest.param(V3, "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", 406, id="only protobuf of 3"),
        pytest.param(INDEX, "text/html", 200, id="the index, which does not ask"),
    ],
)
async def test_accept(client: Client, path: str, accept: str, status: int) -> None:
    """Documents come in JSON; who takes nothing of the kind gets an empty 406."""
    response = await client.get(path, headers={"Accept": accept})
    assert response.status == status
    assert bool(await response.read()) == (status == 200)


async def test_index_names_ours_alone(client: Client) -> None:
    """The index has one entry, whose address carries the hash of the document, for it to be kept for ever."""
    index = await (await client.get(INDEX)).json()
    ((key, entry),) = index["paths"].items()
    assert key == "apis/catalog.cozystack.io/v1alpha1"
    response = await client.get(entry["serverRelativeURL"])
    assert response.status == 200
    tag = response.headers["Etag"]
    assert entry["serverRelativeURL"] == f"{V3}?hash={tag[1:-1]}"
    assert response.headers["Cache-Control"] == "public, immutable"
    expires = parsedate_to_datetime(response.headers["Expires"])
    assert timedelta(days=364) < expires - datetime.now(UTC) <= timedelta(days=366)


async def test_wrong_hash(client: Client) -> None:
    """A hash of another release is answered with what there is, not to be kept, and never with a redirect."""
    response = await client.get(f"{V3}?hash=OTHER", allow_redirects=False)
    assert (response.status, response.headers["Cache-Control"]) == (200, "no-cache, private")
    assert "Expires" not in response.headers


@pytest.mark.parametrize(
    ("codings", "compressed"),
    [("gzip", True), ("br, gzip;q=0.5", True), ("identity", False), ("gzip;q=0", False), ("", False)],
)
async def test_compressed(client: Client, codings: str, compressed: bool) -> None:
    """A document is compressed for who takes it so, and is the same then."""
    plain = await (await client.get(V3, headers={"Accept-Encoding": "identity"})).read()
    async with client.session.get(
        client.make_url(V3), headers={"Accept-Encoding": codings}, auto_decompress=False
    ) as response:
        body = await response.read()
        assert (response.headers.get("Content-Encoding") == "gzip") == compressed
    assert (gzip.decompress(body) if compressed else body) == plain


async def test_elsewhere(client: Client) -> None:
    """Other groups and versions of OpenAPI are not there, and nothing is written."""
    for path in ("/openapi/v3/apis/apps/v1", "/openapi/v3/apis", "/openapi/v4"):
        assert (await client.get(path)).status == 404
    assert (await client.post(V2)).status == 405


async def test_before_the_first_sync(client: Client, cluster: Cluster) -> None:
    """The documents do not wait for the cluster: kube-aggregator would remember a 404 until it is started anew."""
    cluster.unsynced = "not listed yet: pods"
    for path in (V2, INDEX, V3):
        assert (await client.get(path)).status == 200


async def test_any_group(aiohttp_client: AiohttpClient) -> None:
    """The server knows nothing of the group whose documents it has; without documents it says 503, not 404."""
    openapi = OpenAPI("toys.example.com/v1", v2=b'{"swagger": "2.0"}', v3=b'{"openapi": "3.0.0"}')
    served = GroupVersion("toys.example.com", "v1", (), openapi)
    client = await aiohttp_client(AppServer(make_app(Handlers(served, Health(), "0.1.0"), [only_loopback])))
    assert await (await client.get(V2)).json() == {"swagger": "2.0"}
    assert await (await client.get("/openapi/v3/apis/toys.example.com/v1")).json() == {"openapi": "3.0.0"}
    undocumented = GroupVersion("toys.example.com", "v1", ())
    bare = await aiohttp_client(AppServer(make_app(Handlers(undocumented, Health(), "0.1.0"), [only_loopback])))
    for path in (V2, INDEX):
        assert (await bare.get(path)).status == 503


def fill(view: View) -> None:
    """Classes and nodes of every kind that there is something to say about."""
    vgpu = {
        "vendor": "NVIDIA",
        "model": "L40S",
        "mode": "vgpu",
        "profile": "L40S-24C",
        "memory": 25769803776,
        "source": {"devicePlugin": {"resourceName": VGPU}},
        "license": {"secretName": "token", "featureType": 4},
        "tolerations": [
            {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
            {"key": "a", "operator": "Equal", "value": "b"},
        ],
    }
    classes: dict[str, Json] = {
        "vgpu": {"spec": vgpu, "status": {"ownedResourceName": VGPU}},
        "rival": {"spec": vgpu},
        "invalid": {"spec": {"mode": "mig", "memory": True, "tolerations": "all", "maxCount": "two", "license": {}}},
        "empty": {},
        "dra": {"spec": {**vgpu, "license": {"secretName": "token"}, "source": {"dra": {"deviceClassName": "gpu"}}}},
        "going": {"spec": vgpu, "metadata": {"deletionTimestamp": "2026-02-01T00:00:00Z"}},
    }
    for name, content in classes.items():
        metadata = {
            "name": name,
            "uid": f"u-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"note": "x"},
            "generation": 3,
            "managedFields": [{}],
            "finalizers": ["a/b"],
            "ownerReferences": [{}],
            **content.get("metadata", {}),
        }
        view.apply_class(parse_class({**content, "metadata": metadata}))
    taint = Taint("gpu", "", "NoExecute")
    sick = Node("n2", False, True, taints=(taint,), capacity={RESOURCE: 4}, allocatable={RESOURCE: 2})
    view.apply_node(sick)
    view.apply_node(Node("n3", capacity={VGPU: 80}, taints=(taint,)))
    view.apply_node(Node("n4", capacity={RESOURCE: 100}, allocatable={RESOURCE: 100}))
    view.apply_node(Node("n5", capacity={RESOURCE: 1}, malformed={RESOURCE: "many"}))
    view.apply_pod(Pod("ns", "big", "n2", {RESOURCE: 5}))
    view.apply_pod(Pod("ns", "waits", "", {RESOURCE: 5}, nominated_node="n2"))
    view.set_mapped({RESOURCE: ("a", "b", "c", "d")})


@pytest.fixture
async def document(client: Client) -> Json:
    """The server's own description of itself."""
    content: Json = await (await client.get(V3)).json()
    return content


async def every_answer(client: Client) -> tuple[list[Json], set[str]]:
    """The list, a page of it, each object and its catalog; and the reasons that classes have."""
    listing = await (await client.get(f"{BASE}/gpuclasses")).json()
    answers = [listing, await (await client.get(f"{BASE}/gpuclasses?limit=1")).json()]
    for item in listing["items"]:
        path = f"{BASE}/gpuclasses/{item['metadata']['name']}"
        answers += [await (await client.get(path)).json(), await (await client.get(f"{path}/catalog")).json()]
    return answers, {each["status"]["reason"] for each in listing["items"]}


async def test_every_answer_is_as_described(client: Client, cluster: Cluster, document: Json) -> None:
    """Lists, pages, objects and catalogs are as the schema of their kind says, and it names every field of them."""
    answers, reasons = await every_answer(client)
    fill(cluster.view)
    more, more_reasons = await every_answer(client)
    cluster.view.set_permits(Permits(frozenset(), stale=True))
    most, most_reasons = await every_answer(client)
    for answer in answers + more + most:
        assert problems(answer, document) == [], answer
    assert "continue" in more[1]["metadata"]
    assert reasons | more_reasons | most_reasons == set(ClassReason)
    nodes = [node for answer in answers + more for node in answer.get("nodes", [])]
    assert {each["reason"] for node in nodes for each in node["reasons"]} == set(NodeReason) - {NodeReason.NOT_SELECTED}


async def test_every_event_is_as_described(client: Client, cluster: Cluster, document: Json) -> None:
    """So is the object of every event, that of a bookmark included."""
    fill(cluster.view)
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    response = await client.get(f"{BASE}/gpuclasses?{query}")
    events = [json.loads(line) async for line in response.content]
    assert {each["type"] for each in events} == {"ADDED", "BOOKMARK"}
    for event in events:
        assert problems(event["object"], document) == [], event


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        pytest.param("GET", f"{BASE}/gpuclasses/none", {}, 404, id="no such object"),
        pytest.param("GET", f"{BASE}/none", {}, 404, id="no such resource"),
        pytest.param("DELETE", f"{BASE}/gpuclasses", {}, 405, id="a verb not served"),
        pytest.param("GET", f"{BASE}/gpuclasses", {"Accept": "text/html"}, 406, id="a page"),
        pytest.param("GET", f"{BASE}/gpuclasses?limit=x", {}, 400, id="an option that is none"),
        pytest.param("GET", f"{BASE}/gpuclasses?resourceVersionMatch=Exact", {}, 422, id="options that do not fit"),
        pytest.param(
            "GET", f"{BASE}/gpuclasses?resourceVersionMatch=Exact&resourceVersion=1", {}, 410, id="a version long gone"
        ),
    ],
)
async def test_every_failure_is_as_described(
    client: Client, document: Json, method: str, path: str, headers: dict[str, str], status: int
) -> None:
    """A Status is as the schema of failures says."""
    response = await client.request(method, path, headers=headers)
    assert response.status == status
    assert problems(await response.json(), document, definition="io.cozystack.catalog.v1alpha1.Status") == []


async def test_unsynced_is_as_described(client: Client, cluster: Cluster, document: Json) -> None:
    """So is the Status of a server that cannot answer yet."""
    cluster.unsynced = "not listed yet: pods"
    response = await client.get(f"{BASE}/gpuclasses")
    assert response.status == 503
    assert problems(await response.json(), document, definition="io.cozystack.catalog.v1alpha1.Status") == []


async def test_metadata_alone_is_as_described(client: Client, document: Json) -> None:
    """PartialObjectMetadata is a kind of meta.k8s.io, in no document of ours; its metadata is an object's."""
    headers = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    listing = await (await client.get(f"{BASE}/gpuclasses", headers=headers)).json()
    definition = "io.cozystack.catalog.v1alpha1.ObjectMeta"
    assert [problems(each["metadata"], document, definition=definition) for each in listing["items"]] == [[]]
