"""Offers to tenants over HTTP: what they say, what they never say, and to whom they are told."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp.pytest_plugin import AiohttpClient

from apiserver.catalog.gpuoffers import Offering
from apiserver.catalog.install import install
from apiserver.cluster.namespaces import Quota
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.gpu.classes import parse_class
from apiserver.gpu.nodes import Node
from apiserver.gpu.offers import Permits
from apiserver.gpu.orders import OrderReason
from apiserver.gpu.pods import Pod
from apiserver.gpu.quota import TOTAL, budget_key, read_limits
from apiserver.gpu.tenants import Namespace, TenantRules
from apiserver.gpu.tolerations import NO_SCHEDULE, Taint
from apiserver.serving.filters import only_loopback
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.server import make_app
from apiserver.serving.versions import VersionSource
from openapi.answers import problems
from tests.http.apps import AppServer, Client
from tests.http.test_api import TABLE, get

BASE = "/apis/catalog.cozystack.io/v1alpha1"
MARK = "hostonly"
"""In every name and text that only the host may know."""

CARD, SLICE = f"{MARK}.example.com/card", f"{MARK}.example.com/slice"
CLASS_UID, NAMESPACE_UID = "2a8161e5-fe1b-4434-bb10-6980550caef9", "4890afe0-b0ac-48b8-a57b-47b993f3cfc7"
LABELLED = {"gpuclass.cozystack.io/vgpu": "true", MARK: MARK}


def stored(name: str, resource: str, uid: str = CLASS_UID, **spec: object) -> dict[str, Any]:
    """A stored class full of what tenants must not see."""
    metadata = {
        "name": name,
        "uid": uid,
        "creationTimestamp": "2026-02-01T00:00:00Z",
        "labels": {MARK: MARK},
        "annotations": {MARK: MARK},
    }
    tolerations = [{"key": MARK, "operator": "Equal", "value": MARK, "effect": NO_SCHEDULE}]
    fields = {
        "vendor": "NVIDIA",
        "model": "L40S",
        "mode": "passthrough",
        "memory": "48Gi",
        "source": {"devicePlugin": {"resourceName": resource}},
        "tolerations": tolerations,
        **spec,
    }
    return {"metadata": metadata, "spec": fields, "status": {"ownedResourceName": resource}}


VGPU: dict[str, Any] = {
    "mode": "vgpu",
    "profile": "L40S-24C",
    "license": {"secretName": f"{MARK}-secret", "featureType": 4},
}


@dataclass
class Host:
    """What the server under test sees, to be changed by a test."""

    view: View = field(default_factory=View)
    tenancy: Tenancy = field(default_factory=Tenancy)
    unsynced: str | None = None

    def set_quota(self, namespace: str, name: str, hard: dict[str, Any], used: dict[str, Any]) -> None:
        """Let a ResourceQuota be so; its keys are class names, or TOTAL."""
        keys = ({budget_key(each): value for each, value in numbers.items()} for numbers in (hard, used))
        self.tenancy.apply_quota(Quota(namespace, name, read_limits(name, *keys)))


@pytest.fixture
def host() -> Host:
    """Five cards on one node, three slices of another, and two tenants; only `red` is entitled to vGPUs."""
    host = Host()
    host.view.apply_class(parse_class(stored("card", CARD)))
    host.view.apply_class(parse_class(stored("slice", SLICE, maxCount=2, **VGPU)))
    for name, resource, devices in (("a", CARD, 5), ("b", SLICE, 3)):
        taint = Taint(MARK, MARK, NO_SCHEDULE)
        host.view.apply_node(
            Node(f"{MARK}-{name}", taints=(taint,), capacity={resource: devices}, allocatable={resource: devices})
        )
    host.tenancy.apply_namespace(Namespace("red", NAMESPACE_UID, "2026-01-01T00:00:00Z", LABELLED))
    host.tenancy.apply_namespace(Namespace("blue", str(uuid.uuid4()), "2026-03-01T00:00:00Z"))
    return host


Serve = Callable[..., Awaitable[Client]]


@pytest.fixture
def serve(host: Host, aiohttp_client: AiohttpClient) -> Serve:
    """Makes a client of a server, with offers or without."""

    async def make(*, offers: bool = True) -> Client:
        offering = Offering(host.tenancy, TenantRules(), lambda: host.unsynced) if offers else None
        served = install(host.view, VersionSource(lambda: 1.8e9), lambda: None, offering)
        app = make_app(Handlers(served, Health(), "0.1.0"), [only_loopback])
        return await aiohttp_client(AppServer(app))

    return make


@pytest.fixture
async def client(serve: Serve) -> Client:
    """A client of the server with offers."""
    return await serve()


async def offer(client: Client, namespace: str = "red", name: str = "card") -> Any:  # noqa: ANN401 # JSON
    """One offer."""
    return await get(client, f"{BASE}/namespaces/{namespace}/gpuoffers/{name}")


async def test_offer(client: Client, host: Host) -> None:
    """An offer says what is sold, what the namespace may and has left, and what it can order now."""
    host.set_quota("red", "q", {"slice": "4", TOTAL: 10}, {"slice": "3", TOTAL: 1})
    found = await offer(client, name="slice")
    assert found == {
        "apiVersion": "catalog.cozystack.io/v1alpha1",
        "kind": "GPUOffer",
        "metadata": {
            "name": "slice",
            "namespace": "red",
            "uid": str(uuid.uuid5(uuid.UUID(NAMESPACE_UID), CLASS_UID)),
            "creationTimestamp": "2026-02-01T00:00:00Z",
            "resourceVersion": found["metadata"]["resourceVersion"],
        },
        "offer": {
            "vendor": "NVIDIA",
            "model": "L40S",
            "mode": "vgpu",
            "profile": "L40S-24C",
            "memory": "48Gi",
            "maxCount": 2,
            "license": {"required": True, "featureType": 4, "secretName": "gpuclass-license-slice"},
        },
        "entitled": True,
        "budget": {
            "class": {"hard": 4, "used": 3, "remaining": 1},
            "total": {"hard": 10, "used": 1, "remaining": 9},
        },
        "orderable": 1,
        "orderableAtMost": 1,
        "maxPerInstance": 1,
        "reason": "Orderable",
        "message": found["message"],
    }


async def test_reasons(client: Client, host: Host) -> None:
    """Every reason, with its figures; a number that nobody has counted is left out, and never 0."""

    async def verdict(namespace: str = "red", name: str = "card") -> tuple[str, int | None, int]:
        found = await offer(client, namespace, name)
        return found["reason"], found.get("orderable"), found["orderableAtMost"]

    assert await verdict() == ("Orderable", 5, 5)
    assert await verdict("blue", "slice") == ("NotEntitled", 0, 0)
    host.set_quota("red", "q", {"card": 3}, {})
    assert await verdict() == ("BudgetUnknown", None, 3)
    assert (await offer(client))["budget"]["class"].keys() == {"hard", "message"}
    host.set_quota("red", "r", {TOTAL: 2}, {TOTAL: 4})
    assert await verdict() == ("BudgetExhausted", 0, 0)
    assert (await offer(client))["budget"]["total"] == {"hard": 2, "used": 4, "remaining": 0}
    assert await verdict("blue") == ("Orderable", 5, 5)
    host.view.apply_pod(Pod(f"{MARK}-ns", "vm", f"{MARK}-a", {CARD: 5}))
    assert await verdict("blue") == ("NoCapacity", 0, 0)
    host.view.set_permits(Permits(frozenset()))
    assert await verdict("blue") == ("NotOffered", 0, 0)


async def test_unknown_namespace(client: Client, host: Host) -> None:
    """A namespace that is not there lists as empty, has no object, and is followed until it is."""
    path = f"{BASE}/namespaces/green/gpuoffers"
    assert (await get(client, path))["items"] == []
    assert (await get(client, f"{path}/card", 404))["message"] == 'gpuoffers.catalog.cozystack.io "card" not found'
    async with client.get(path, params={"watch": "1"}) as response:
        host.tenancy.apply_namespace(Namespace("green"))
        events = [await next_event(response) for _ in range(2)]
        assert sorted(told(event) for event in events) == [("ADDED", "green", "card"), ("ADDED", "green", "slice")]
        assert "uid" not in events[0]["object"]["metadata"]
        host.tenancy.delete_namespace("green")
        events = [await next_event(response) for _ in range(2)]
        assert sorted(told(event) for event in events) == [("DELETED", "green", "card"), ("DELETED", "green", "slice")]


async def next_event(response: aiohttp.ClientResponse) -> Any:  # noqa: ANN401 # JSON
    """The next line of a watch."""
    async with asyncio.timeout(60):
        return json.loads(await response.content.readline())


def told(event: Any) -> tuple[str, str, str]:  # noqa: ANN401 # JSON
    """Type, namespace and name of an event."""
    metadata = event["object"]["metadata"]
    return event["type"], metadata["namespace"], metadata["name"]


async def test_paths(client: Client) -> None:
    """One object has a namespace; a list and a watch may go across; nothing else is served."""
    assert "requested resource" in (await get(client, f"{BASE}/gpuoffers/card", 404))["message"]
    listing = await get(client, f"{BASE}/gpuoffers")
    assert listing["kind"] == "GPUOfferList"
    keys = [(item["metadata"]["namespace"], item["metadata"]["name"]) for item in listing["items"]]
    assert keys == [("blue", "card"), ("blue", "slice"), ("red", "card"), ("red", "slice")]
    page = await get(client, f"{BASE}/gpuoffers?limit=3")
    rest = await get(client, f"{BASE}/gpuoffers?limit=3&continue={page['metadata']['continue']}")
    assert page["items"] + rest["items"] == listing["items"]
    response = await client.delete(f"{BASE}/namespaces/red/gpuoffers/card")
    assert response.status == 405


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=card", {"card"}),
        ("metadata.namespace=blue", set()),
        ("offer.mode=vgpu", {"slice"}),
        ("offer.vendor!=NVIDIA", set()),
        ("reason=Orderable", {"card", "slice"}),
    ],
)
async def test_field_selectors(client: Client, selector: str, names: set[str]) -> None:
    """Offers are selected by what decides for a person."""
    listing = await get(client, f"{BASE}/namespaces/red/gpuoffers?fieldSelector={selector}")
    assert {item["metadata"]["name"] for item in listing["items"]} == names


async def test_table(client: Client, host: Host) -> None:
    """The columns say what can be ordered, and tell the unknown from nothing and from no limit."""
    host.set_quota("red", "q", {"card": 3}, {})
    host.set_quota("red", "r", {"slice": 2}, {"slice": 1})
    table = await get(client, f"{BASE}/namespaces/red/gpuoffers", headers=TABLE)
    assert [column["name"] for column in table["columnDefinitions"] if not column["priority"]] == [
        "Name",
        "Orderable",
        "Max",
        "Budget-Left",
        "Entitled",
        "Reason",
        "Age",
    ]
    assert [row["cells"][:6] for row in table["rows"]] == [
        ["card", "<unknown>", 3, "<unknown>", True, "BudgetUnknown"],
        ["slice", "1", 1, "1", True, "Orderable"],
    ]
    assert table["rows"][0]["object"]["metadata"]["namespace"] == "red"
    table = await get(client, f"{BASE}/namespaces/blue/gpuoffers", headers=TABLE)
    assert [row["cells"][3] for row in table["rows"]] == ["unlimited", "unlimited"]
    host.set_quota("red", "s", {TOTAL: 0}, {})
    table = await get(client, f"{BASE}/namespaces/red/gpuoffers", headers=TABLE)
    assert [row["cells"][3] for row in table["rows"]] == ["0", "0"]


def every_state(host: Host) -> None:
    """Classes in every state, each full of what only the host may know."""
    rival = stored(f"{MARK}-rival", CARD, str(uuid.uuid4()))
    host.view.apply_class(parse_class(rival))  # both record the name: neither is offered
    host.view.apply_class(parse_class(stored("terse", "", mode=MARK, memory=MARK)))
    host.view.apply_class(parse_class(stored("dra", "", source={"dra": {"deviceClassName": MARK}})))
    host.view.set_mapped({CARD: (MARK,)})
    host.set_quota("red", "q", {"slice": "x", TOTAL: 4}, {})


async def everything(client: Client, host: Host) -> bytes:
    """The bytes of every representation of the offers in `red`, in the middle of changes."""
    path = f"{BASE}/namespaces/red/gpuoffers"
    names = [item["metadata"]["name"] for item in (await get(client, path))["items"]]
    assert len(names) >= 2
    queries = [path, f"{BASE}/gpuoffers", *(f"{path}/{name}" for name in [*names, "none"] if MARK not in name)]
    tables = [f"{query}?includeObject={how}" for query in queries for how in ("None", "Metadata", "Object")]
    accepts = (
        "application/json",
        "application/yaml",
        "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    )
    found = [await (await client.get(query, headers=TABLE)).read() for query in tables]
    found += [
        await (await client.get(query, headers={"Accept": accept})).read() for query in queries for accept in accepts
    ]
    for headers in ({}, TABLE):
        host.view.apply_class(parse_class(stored("terse", "", mode=MARK, memory=MARK)))
        query = {"watch": "1", "timeoutSeconds": "1"}
        async with client.get(path, params=query, headers=headers) as response:
            await response.content.readline()
            host.view.apply_pod(Pod(MARK, MARK, f"{MARK}-b", {SLICE: 1}))
            host.view.delete_class("terse")
            found.append(await response.content.read())
        assert b"DELETED" in found[-1]
        host.view.delete_pod((MARK, MARK))
    return b"\n".join(found)


@pytest.mark.parametrize("permits", [Permits(), Permits(frozenset(), stale=True)])
async def test_nothing_of_the_host(client: Client, host: Host, permits: Permits) -> None:
    """No node, taint, toleration, resource name, label, annotation, Secret or message of the host is in any byte."""
    every_state(host)
    host.view.set_permits(permits)
    found = await everything(client, host)
    for name in (f"{MARK}-rival",):  # its own offer carries its own name, and no other's does
        others = [
            item for item in (await get(client, f"{BASE}/gpuoffers"))["items"] if item["metadata"]["name"] != name
        ]
        assert MARK not in json.dumps(others)
        found = found.replace(name.encode(), b"")
    assert found.count(b"gpuclass-license-slice") > 3
    assert MARK.encode() not in found
    for word in (b"tolerations", b"resourceName", b"nodes", b"devicePlugin", b"annotations", b"labels", b'"free"'):
        assert word not in found


async def test_the_host_is_seen_elsewhere(client: Client, host: Host) -> None:
    """The marks that offers must not carry are really there: the hoster's own answers do."""
    every_state(host)
    assert MARK in json.dumps(await get(client, f"{BASE}/gpuclasses"))
    assert MARK in json.dumps(await get(client, f"{BASE}/gpuclasses/slice/catalog"))


async def test_every_answer_is_as_described(client: Client, host: Host) -> None:
    """Lists, objects and events are as the schema says, whatever state they are in."""
    every_state(host)
    document = await get(client, f"/openapi/v3{BASE}")
    reasons = set()
    states: list[Callable[[], None]] = [
        lambda: None,
        lambda: host.view.delete_class(f"{MARK}-rival"),
        lambda: host.set_quota("red", "q", {"card": "5"}, {"card": "5"}),
        lambda: host.set_quota("red", "q", {"card": "5"}, {}),
        lambda: host.view.apply_pod(Pod("ns", "vm", f"{MARK}-a", {CARD: 5})),
    ]
    for change in states:
        change()
        listing = await get(client, f"{BASE}/gpuoffers")
        assert problems(listing, document) == []
        reasons |= {item["reason"] for item in listing["items"]}
    assert reasons == set(OrderReason)
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    response = await client.get(f"{BASE}/namespaces/red/gpuoffers?{query}")
    events = [json.loads(line) async for line in response.content]
    assert {each["type"] for each in events} == {"ADDED", "BOOKMARK"}
    assert [found for event in events for found in problems(event["object"], document)] == []


async def test_an_invisible_change_is_no_event(client: Client, host: Host) -> None:
    """What the host gives away or gets back changes nothing for a tenant whose budget is smaller."""
    host.set_quota("red", "q", {TOTAL: 2}, {TOTAL: 0})
    path = f"{BASE}/namespaces/red/gpuoffers"
    async with client.get(path, params={"watch": "1", "timeoutSeconds": "1"}) as response:
        for _ in range(2):
            await next_event(response)
        host.view.apply_pod(Pod("ns", "vm", f"{MARK}-a", {CARD: 3}))
        assert await response.content.read() == b""


async def test_only_offers_are_refused(client: Client, host: Host) -> None:
    """While nothing true can be said of tenants, classes are answered; offers come back by themselves."""
    host.unsynced = "not listed yet: namespaces (403 Forbidden)"
    for path in (f"{BASE}/gpuoffers", f"{BASE}/namespaces/red/gpuoffers", f"{BASE}/namespaces/red/gpuoffers/card"):
        assert host.unsynced in (await get(client, path, 503))["message"]
    assert (await client.get(f"{BASE}/gpuoffers", params={"watch": "1"})).status == 503
    assert len((await get(client, f"{BASE}/gpuclasses"))["items"]) == 2
    host.unsynced = None
    assert len((await get(client, f"{BASE}/gpuoffers"))["items"]) == 4


async def test_switched_off(serve: Serve) -> None:
    """Without offers nothing names them: not discovery, not OpenAPI; asking for them is 404."""
    client = await serve(offers=False)
    for path in (f"{BASE}/gpuoffers", f"{BASE}/namespaces/red/gpuoffers", f"{BASE}/namespaces/red/gpuoffers/card"):
        assert (await get(client, path, 404))["reason"] == "NotFound"
    for path in (BASE, "/openapi/v2", "/openapi/v3", f"/openapi/v3{BASE}"):
        text = json.dumps(await get(client, path))
        assert ("gpuoffer" in text.lower(), "catalog.cozystack.io" in text) == (False, True)
    document = await get(client, f"/openapi/v3{BASE}")
    assert problems(await get(client, f"{BASE}/gpuclasses"), document) == []
    with_offers = await serve()
    document = await get(with_offers, f"/openapi/v3{BASE}")
    assert "io.cozystack.catalog.v1alpha1.GPUOfferBudget" in document["components"]["schemas"]


async def test_discovery(client: Client) -> None:
    """Offers are namespaced, and found by their own short name and in the category."""
    resources = {each["name"]: each for each in (await get(client, BASE))["resources"]}
    assert resources["gpuoffers"] == {
        "name": "gpuoffers",
        "singularName": "gpuoffer",
        "namespaced": True,
        "kind": "GPUOffer",
        "verbs": ["get", "list", "watch"],
        "shortNames": ["gpuoffer"],
        "categories": ["gpu"],
    }
