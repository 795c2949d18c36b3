"""`/metrics`: what it says, in whose words, to whom, and when."""

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp.pytest_plugin import AiohttpClient
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from apiserver.catalog.install import install
from apiserver.cluster.client import connect
from apiserver.cluster.live import Live
from apiserver.cluster.view import View
from apiserver.delegation import Reviews
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.nodes import Node
from apiserver.gpu.pods import Pod
from apiserver.measured import Access, Measured
from apiserver.serving.authentication import AuthenticationConfig, Authenticator
from apiserver.serving.authorization import Authorizer
from apiserver.serving.filters import authenticating, authorizing
from apiserver.serving.handlers import Handlers
from apiserver.serving.limits import Inflight, ending_in_time, limiting
from apiserver.serving.server import make_app
from apiserver.serving.users import User
from apiserver.serving.versions import VersionSource
from tests.fake_apiserver import FakeApiserver
from tests.http.apps import AppServer, Client
from tests.http.conftest import RESOURCE, Cluster
from tests.http.running import CLASSES, LIST, SPEC, running, write_kubeconfig, write_snapshot

SLOW = f"{LIST}?resourceVersion=9007199254740991&resourceVersionMatch=NotOlderThan"
"""Waits three seconds for a version that does not come."""

ROUTE = {"verb", "group", "version", "resource", "subresource", "scope", "component"}
UPSTREAM = {
    "apiserver_request_total": ROUTE | {"dry_run", "code"},
    "apiserver_request_duration_seconds_bucket": ROUTE | {"dry_run", "le"},
    "apiserver_request_duration_seconds_sum": ROUTE | {"dry_run"},
    "apiserver_request_duration_seconds_count": ROUTE | {"dry_run"},
    "apiserver_longrunning_requests": ROUTE,
    "apiserver_request_sli_duration_seconds_bucket": ROUTE | {"le"},
    "apiserver_request_sli_duration_seconds_sum": ROUTE,
    "apiserver_request_sli_duration_seconds_count": ROUTE,
    "apiserver_response_sizes_bucket": ROUTE | {"le"},
    "apiserver_response_sizes_sum": ROUTE,
    "apiserver_response_sizes_count": ROUTE,
    "apiserver_watch_events_total": {"group", "version", "resource"},
    "apiserver_current_inflight_requests": {"request_kind"},
    "apiserver_request_terminations_total": ROUTE | {"code"},
    "authentication_attempts_total": {"result"},  # by the parser of the library; see below
    "authorization_attempts_total": {"result"},
}
"""Names and labels as in apiserver pkg/endpoints/metrics and pkg/endpoints/filters of Kubernetes 1.37."""

BUCKETS = {
    "apiserver_request_duration_seconds_bucket": "0.005 0.025 0.05 0.1 0.2 0.4 0.6 0.8 1 1.25 1.5 2 3 4 5 6 8 10 15 20 "
    "30 45 60 +Inf",
    "apiserver_request_sli_duration_seconds_bucket": "0.05 0.1 0.2 0.4 0.6 0.8 1 1.25 1.5 2 3 4 5 6 8 10 15 20 30 45 "
    "60 +Inf",
    "apiserver_response_sizes_bucket": "1000 10000 100000 1e+06 1e+07 1e+08 1e+09 +Inf",
}
"""In the words of Go, for the bound is a label."""

VALUES = {
    "verb": {"GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "APPLY", "DELETE", "other"},
    "dry_run": {"", "All", "invalid"},
    "group": {"", "catalog.cozystack.io"},
    "version": {"", "v1alpha1"},
    "resource": {"", "gpuclasses"},
    "subresource": {"", "catalog", "/healthz", "/livez", "/readyz", "/apis"},
    "scope": {"", "resource", "namespace", "cluster"},
    "component": {"", "apiserver"},
}
"""All that the labels of requests may ever hold."""


async def review(token: str) -> User | None:
    """Everybody is who the token says, but nobody is `bad`."""
    return None if token == "bad" else User(token)


async def may(review: Mapping[str, Any]) -> Mapping[str, object]:
    """`mallory` may do nothing, and `alice` everything but read metrics; that only `prometheus` may."""
    spec = review["spec"]
    path = spec.get("nonResourceAttributes", {})
    is_allowed = spec["user"] == "prometheus" and path == {"path": "/metrics", "verb": "get"}
    return {"status": {"allowed": is_allowed or (spec["user"] == "alice" and path.get("path") != "/metrics")}}


@pytest.fixture
def inflight() -> Inflight:
    """Room for one."""
    return Inflight(1, 1)


@pytest.fixture
def measured(cluster: Cluster, inflight: Inflight) -> Measured:
    """What is measured of a server that knows its callers by their tokens."""
    served = install(cluster.view, VersionSource(lambda: 1.8e9), lambda: cluster.unsynced)
    access = Access(Authenticator(AuthenticationConfig(), token_reviewer=review), Authorizer(may), Reviews())
    return Measured(served, inflight, cluster.view, lambda: cluster.unsynced, access=access)


@pytest.fixture
async def client(cluster: Cluster, measured: Measured, aiohttp_client: AiohttpClient) -> Client:
    """A client of it."""
    assert measured.access is not None
    authenticate = authenticating(measured.access.authenticator, ())
    authorize = authorizing(measured.access.authorizer)
    filters = [ending_in_time, authenticate, limiting(measured.inflight), authorize]
    handlers = Handlers(measured.served, cluster.health, "0.1.0", traffic=measured.traffic, metrics=measured.text)
    return await aiohttp_client(AppServer(make_app(handlers, filters)))


def as_(name: str) -> dict[str, str]:
    """Who asks."""
    return {"Authorization": f"Bearer {name}"}


def parsed(text: str) -> list[Sample]:
    """Every sample of a text that Prometheus can read."""
    return [sample for family in text_string_to_metric_families(text) for sample in family.samples]


async def scraped(client: Client) -> list[Sample]:
    """Every sample there is."""
    async with client.get("/metrics", headers=as_("prometheus")) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == CONTENT_TYPE_PLAIN_0_0_4
        return parsed(await response.text())


def total(samples: list[Sample], name: str, **labels: str) -> float:
    """The sum of the samples that have these labels."""
    return sum(each.value for each in samples if each.name == name and labels.items() <= each.labels.items())


async def eventually(client: Client, condition: Callable[[list[Sample]], bool]) -> list[Sample]:
    """Every sample, once they are as they shall be."""
    async with asyncio.timeout(20):
        while True:
            samples = await scraped(client)
            if condition(samples):
                return samples
            await asyncio.sleep(0.01)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for it."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 # no event tells it
            await asyncio.sleep(0.01)


async def test_names_and_labels(client: Client, inflight: Inflight) -> None:
    """Every family of upstream that is served has upstream's name, labels and buckets, and no other is called so."""
    slow = asyncio.create_task(client.get(f"{SLOW}&timeout=500ms", headers=as_("alice")))
    await until(lambda: inflight.reading == 1)
    assert (await client.get(LIST, headers=as_("alice"))).status == 429
    assert (await slow).status == 504
    async with client.get(f"{LIST}?watch=1&timeoutSeconds=1", headers=as_("alice")) as watch:
        await watch.read()
    samples = await scraped(client)
    found: dict[str, set[frozenset[str]]] = {}
    for sample in samples:
        if sample.name.startswith(("apiserver_", "authentication_", "authorization_")):
            found.setdefault(sample.name, set()).add(frozenset(sample.labels))
    assert found == {name: {frozenset(labels)} for name, labels in UPSTREAM.items()}
    for name, bounds in BUCKETS.items():
        labels = next(each.labels for each in samples if each.name == name)
        rest = {key: value for key, value in labels.items() if key != "le"}
        series = [each for each in samples if each.name == name and rest.items() <= each.labels.items()]
        assert [each.labels["le"] for each in series] == bounds.split()
        assert [each.value for each in series] == sorted(each.value for each in series)
        assert series[-1].value == total(samples, name.replace("_bucket", "_count"), **rest)
    terminated = {each.labels["code"]: each.value for each in samples if each.name.endswith("_terminations_total")}
    assert terminated == {"429": 1, "504": 1}
    assert total(samples, "apiserver_current_inflight_requests", request_kind="readOnly") == 1


async def test_counter_without_total(client: Client) -> None:
    """The one counter of upstream whose name does not end in `_total` is declared as one, too."""
    async with client.get("/metrics", headers=as_("prometheus")) as response:
        lines = (await response.text()).splitlines()
    assert "# TYPE authentication_attempts counter" in lines
    assert 'authentication_attempts{result="success"} 1.0' in lines
    assert not any("authentication_attempts_total" in line for line in lines)


@pytest.mark.parametrize(
    ("method", "path", "labels"),
    [
        pytest.param("GET", LIST, {"verb": "LIST", "scope": "cluster", "code": "200"}, id="list"),
        pytest.param("GET", f"{LIST}/l40s", {"verb": "GET", "scope": "resource", "code": "200"}, id="get"),
        pytest.param("GET", f"{LIST}/x", {"verb": "GET", "scope": "resource", "code": "404"}, id="get nothing"),
        pytest.param("HEAD", LIST, {"verb": "LIST", "code": "405"}, id="head"),
        pytest.param("GET", f"{LIST}/l40s/catalog", {"verb": "GET", "subresource": "catalog"}, id="subresource"),
        pytest.param(
            "GET", f"{LIST}/l40s/other", {"resource": "gpuclasses", "subresource": ""}, id="unknown subresource"
        ),
        pytest.param(
            "POST", f"{LIST}?dryRun=All", {"verb": "POST", "scope": "resource", "dry_run": "All"}, id="create"
        ),
        pytest.param(
            "DELETE", f"{LIST}?dryRun=x", {"verb": "DELETE", "scope": "cluster", "dry_run": "invalid"}, id="all"
        ),
        pytest.param("OPTIONS", LIST, {"verb": "other", "resource": "gpuclasses"}, id="unknown verb"),
        pytest.param(
            "GET", "/livez", {"verb": "GET", "subresource": "/livez", "component": "", "group": ""}, id="health"
        ),
        pytest.param("GET", "/apis", {"verb": "GET", "subresource": "/apis", "component": "apiserver"}, id="discovery"),
        pytest.param("GET", "/openapi/v2", {"verb": "GET", "subresource": "", "component": ""}, id="OpenAPI"),
        pytest.param(
            "GET", "/apis/a.b/v1/namespaces/n/c", {"group": "", "version": "", "scope": "namespace"}, id="group"
        ),
    ],
)
async def test_labels(client: Client, method: str, path: str, labels: dict[str, str]) -> None:
    """A request is counted once, under the words that upstream would use for it."""
    async with client.request(method, path, headers=as_("alice")):
        pass
    samples = [each for each in await scraped(client) if each.name == "apiserver_request_total"]
    assert len(samples) == 1
    assert labels.items() <= samples[0].labels.items()
    assert samples[0].value == 1


async def test_bounded(client: Client, measured: Measured) -> None:
    """Whatever is asked a thousand times in a thousand ways, the labels hold only what is declared."""
    methods = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE")
    paths = (
        "/{0}",
        "/healthz/{0}",
        "/apis/{0}",
        "/apis/{0}/v1/things",
        "/apis/catalog.cozystack.io/{0}/gpuclasses",
        "/apis/catalog.cozystack.io/v1alpha1/{0}",
        "/apis/catalog.cozystack.io/v1alpha1/namespaces/{0}/{0}",
        LIST + "/{0}",
        LIST + "/l40s/{0}",
        LIST + "?dryRun={0}",
        LIST + "?labelSelector={0}",
    )
    for number in range(1000):
        path = paths[number % len(paths)].format(f"odd-{number}")
        async with client.request(methods[number % len(methods)], path, headers=as_("alice")) as response:
            assert response.status < 500
    samples = await scraped(client)
    for sample in samples:
        assert "odd" not in json.dumps(sample.labels)
        for label in sample.labels.keys() & VALUES.keys() if sample.name.startswith("apiserver_") else ():
            assert sample.labels[label] in VALUES[label], sample
        assert sample.labels.get("code", "200").isdecimal()
    requests = [each for each in samples if each.name == "apiserver_request_total"]
    assert sum(each.value for each in requests) == 1000
    assert len(requests) < 100
    before = len(measured.traffic.figures), len(samples)
    for number in range(1000, 1100):
        async with client.get(f"/apis/odd-{number}/v1/things/odd", headers=as_("alice")):
            pass
    assert len(measured.traffic.figures) <= before[0] + 1


async def test_who_may(client: Client) -> None:
    """Metrics are for who may get that path; who may not, and who is not known, is refused and counted."""
    for name, status in (("mallory", 403), ("alice", 403), ("bad", 401), ("prometheus", 200)):
        async with client.get("/metrics", headers=as_(name)) as response:
            assert response.status == status
    async with client.post("/metrics", headers=as_("alice")) as response:
        assert response.status == 403
    samples = await scraped(client)
    assert total(samples, "authentication_attempts_total", result="success") == 5
    assert total(samples, "authentication_attempts_total", result="error") == 1
    assert total(samples, "authorization_attempts_total", result="allowed") == 2
    assert total(samples, "authorization_attempts_total", result="no-opinion") == 3


async def test_watches(client: Client) -> None:
    """A watch counts while it is open, its events as they are sent, and its end as a success, also if it is left."""
    gauge = {"verb": "WATCH", "resource": "gpuclasses", "scope": "cluster"}
    for opened in (1, 2):
        async with client.get(f"{LIST}?watch=1", headers=as_("alice")) as watch:
            await watch.content.readline()
            async with client.ws_connect(f"{LIST}?watch=1", headers=as_("alice")) as socket:
                await socket.receive_str()
                samples = await scraped(client)
                assert total(samples, "apiserver_longrunning_requests", **gauge) == 2
                assert total(samples, "apiserver_watch_events_total", resource="gpuclasses") == 2 * opened
            watch.close()
        await eventually(client, lambda now: not total(now, "apiserver_longrunning_requests", **gauge))
    samples = await eventually(client, lambda now: total(now, "apiserver_request_total", verb="WATCH") == 4)
    assert total(samples, "apiserver_request_total", verb="WATCH", code="200") == 2
    assert total(samples, "apiserver_request_total", verb="WATCH", code="101") == 2
    assert total(samples, "apiserver_request_duration_seconds_count", verb="WATCH") == 4


async def test_abandoned(client: Client, inflight: Inflight) -> None:
    """A request whose client left before the answer is counted, with the code 0 as upstream."""
    slow = asyncio.create_task(client.get(SLOW, headers=as_("alice")))
    await until(lambda: inflight.reading == 1)
    slow.cancel()
    await until(lambda: inflight.reading == 0)
    assert total(await scraped(client), "apiserver_request_total", verb="LIST", code="0") == 1


async def test_figures_of_classes(client: Client, cluster: Cluster) -> None:
    """Each class has its figures; while no true one can be told there is none, and metrics are still answered."""
    samples = await scraped(client)
    told = {each.name: each.value for each in samples if each.labels.get("class") == "l40s"}
    assert told == {
        "gpuclass_devices_allocatable": 4,
        "gpuclass_devices_requested": 1,
        "gpuclass_devices_free": 3,
        "gpuclass_devices_overcommitted": 0,
        "gpuclass_devices_unavailable": 0,
        "gpuclass_devices_pending": 0,
        "gpuclass_max_free_per_node": 3,
        "gpuclass_offered": 1,
    }
    assert total(samples, "gpuclass_offered", reason="Offered") == 1
    assert total(samples, "gpuclass_resource_devices_free", resource=RESOURCE) == 3
    assert total(samples, "gpuclass_catalog_view_current") == 1
    cluster.unsynced = "out of date"
    samples = await scraped(client)
    assert not [each for each in samples if each.name.startswith(("gpuclass_devices", "gpuclass_offered"))]
    assert not [each for each in samples if each.name.startswith(("gpuclass_resource", "gpuclass_max"))]
    assert [each.value for each in samples if each.name == "gpuclass_catalog_view_current"] == [0]


async def test_size(measured: Measured, cluster: Cluster) -> None:
    """A class and a resource name each have a fixed number of series; nodes, pods and tenants have none."""

    async def series(prefix: str) -> int:
        samples = parsed((await measured.text()).decode())
        return len([each for each in samples if each.name.startswith("gpuclass_") and prefix in each.name])

    per_class, per_resource = (
        await series("") - await series("resource") - await series("catalog"),
        await series("resource"),
    )
    others = await series("catalog")
    assert (per_class, per_resource) == (8, 7)
    for number in range(100):
        resource = f"example.com/{number % 20}"
        cluster.view.apply_class(GPUClass(f"class-{number}", resource_name=resource))
        cluster.view.apply_node(Node(f"node-{number}", capacity={resource: 8}, allocatable={resource: 7}))
        for pod in range(10):
            cluster.view.apply_pod(
                Pod(f"tenant-{pod}", f"pod-{number}", f"node-{number}" if pod else "", {resource: 1})
            )
    assert await series("resource") == 21 * per_resource
    assert await series("") == 101 * per_class + 21 * per_resource + others
    text = (await measured.text()).decode()
    assert not [word for word in ("node-1", "pod-1", "tenant-") if word in text]


@pytest.mark.parametrize("resource", ["example.com/shared", "example.com/alone"])
async def test_pool_counts_once(measured: Measured, cluster: Cluster, resource: str) -> None:
    """Classes that share a resource name each tell all its devices; by resource name, each device is told once."""
    sellers = ("one", "other") if resource.endswith("shared") else ("one",)
    for name in sellers:
        cluster.view.apply_class(GPUClass(name, resource_name=resource))
    cluster.view.apply_node(Node("a", capacity={resource: 8}, allocatable={resource: 6}))
    cluster.view.apply_node(Node("b", capacity={resource: 4}, allocatable={resource: 3}, unschedulable=True))
    cluster.view.apply_pod(Pod("ns", "p", "a", {resource: 7}))
    cluster.view.apply_pod(Pod("ns", "q", "", {resource: 2}))
    samples = parsed((await measured.text()).decode())
    found = {each.name.rpartition("_")[2]: each.value for each in samples if each.labels.get("resource") == resource}
    once = {"allocatable": 6, "requested": 7, "free": 0, "overcommitted": 1, "unavailable": 6, "pending": 2}
    assert found == {**once, "unhealthy": 3}
    for key, value in once.items():
        told = {name: total(samples, f"gpuclass_devices_{key}", **{"class": name}) for name in sellers}
        assert told == dict.fromkeys(sellers, value)


async def test_index(client: Client) -> None:
    """The path is named where paths are listed."""
    async with client.get("/", headers=as_("alice")) as response:
        assert "/metrics" in (await response.json())["paths"]


# Real processes.


async def samples_of(session: aiohttp.ClientSession, url: str) -> list[Sample]:
    """Every sample of a server."""
    async with session.get(f"{url}/metrics") as response:
        assert response.status == 200
        return parsed(await response.text())


async def test_snapshot(tmp_path: Path) -> None:
    """What serves a file on loopback tells its metrics to everybody there; nothing follows a cluster."""
    flags = ("--snapshot", write_snapshot(tmp_path / "snapshot.json"), "--insecure-port", "0")
    async with running(*flags) as server, aiohttp.ClientSession() as session:
        samples = await samples_of(session, server.url)
        assert total(samples, "gpuclass_offered", **{"class": "one"}) == 1
        assert total(samples, "process_resident_memory_bytes") > 1e6
        assert not [each for each in samples if "reflector" in each.name or each.name.startswith("authentic")]


async def test_ages(tmp_path: Path) -> None:
    """While the cluster is away the ages rise and the failures grow."""
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())
        async with FakeApiserver() as apiserver:
            apiserver.put(CLASSES, "one", spec=SPEC)
            kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", apiserver.url)
            server = await stack.enter_async_context(
                running("--local", "--kubeconfig", kubeconfig, "--insecure-port", "0")
            )
            await shown(session, server.url, "gpuclass_offered", **{"class": "one"})
            apiserver.put(CLASSES, "two", spec=SPEC)
            await shown(session, server.url, "gpuclass_catalog_reflector_events_total", collection="gpuclasses")
            samples = await samples_of(session, server.url)
            for collection in ("gpuclasses", "nodes", "pods"):
                for name in ("synced", "lists_total", "watches_total"):
                    assert total(samples, f"gpuclass_catalog_reflector_{name}", collection=collection) == 1
        first = await samples_of(session, server.url)
        await asyncio.sleep(2)
        second = await samples_of(session, server.url)
        for collection in ("gpuclasses", "nodes", "pods"):
            before, after = (
                total(each, "gpuclass_catalog_reflector_age_seconds", collection=collection) for each in (first, second)
            )
            assert 0 < before <= after - 1.9
            assert total(second, "gpuclass_catalog_reflector_failures_total", collection=collection) > 0


async def test_stale(tmp_path: Path) -> None:
    """Figures that may not be told any more are no metrics either; how old they are still is one."""
    view = View()
    live = Live(view, max_staleness=1)
    served = install(view, VersionSource(lambda: 1.8e9), live.untold)
    measured = Measured(served, Inflight(), view, live.untold, live.reflectors)
    async with FakeApiserver() as apiserver:
        apiserver.put(CLASSES, "one", spec=SPEC)
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", apiserver.url)
        async with await connect(kubeconfig, user_agent="test") as client:
            before = parsed((await measured.text()).decode())
            assert [(each.name, each.value) for each in before if each.name.startswith("gpuclass")] == [
                ("gpuclass_catalog_view_current", 0)
            ]
            following = asyncio.create_task(live.run(client))
            await until(lambda: live.untold() is None)
            fresh = parsed((await measured.text()).decode())
            await until(lambda: live.stale() is not None)
            stale = parsed((await measured.text()).decode())
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
    assert total(fresh, "gpuclass_offered", **{"class": "one"}) == 1
    assert {each.name for each in stale if each.name.startswith("gpuclass_")} == {"gpuclass_catalog_view_current"} | {
        f"gpuclass_catalog_reflector_{name}"
        for name in ("age_seconds", "synced", "events_total", "lists_total", "watches_total", "failures_total")
    }
    assert max(each.value for each in stale if each.name == "gpuclass_catalog_reflector_age_seconds") > 1


async def shown(session: aiohttp.ClientSession, url: str, name: str, **labels: str) -> None:
    """Wait until a number is not 0."""
    async with asyncio.timeout(60):
        while True:
            if total(await samples_of(session, url), name, **labels):
                return
            await asyncio.sleep(0.05)
