"""Tenants: namespaces and ResourceQuotas off the wire, joined by deltas."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.cluster.client import Access, ClusterClient, ClusterError, Response
from apiserver.cluster.collection import JSON
from apiserver.cluster.live import Live
from apiserver.cluster.namespaces import NamespaceObject, Quota, QuotaObject, to_namespace, to_quota
from apiserver.cluster.snapshot import parse_snapshot
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.gpu.quota import TOTAL, Limit, budget_key
from apiserver.gpu.tenants import Namespace, Tenant
from tests.fake_apiserver import FakeApiserver

KEY = budget_key("c")
NAMESPACES_PATH, QUOTAS_PATH = "/api/v1/namespaces", "/api/v1/resourcequotas"
HARD = {"hard": {KEY: "5", "pods": "10"}}


def quota(spec: Any, used: Any = None) -> Quota | None:  # noqa: ANN401 # any JSON
    """What the model makes of a ResourceQuota."""
    raw = {"metadata": {"name": "q", "namespace": "ns"}, "spec": spec, "status": {"used": used}}
    return to_quota(msgspec.convert(raw, QuotaObject))


@pytest.mark.parametrize(
    ("spec", "limits"),
    [
        pytest.param(HARD, {"c"}, id="one of our keys"),
        pytest.param({"hard": {KEY: 1, budget_key(TOTAL): 2}}, {"c", TOTAL}, id="both"),
        pytest.param({"hard": {"pods": "1", "requests.nvidia.com/gpu": "1"}}, set(), id="foreign keys only"),
        pytest.param({**HARD, "scopes": []}, {"c"}, id="no scopes"),
        pytest.param({**HARD, "scopes": ["BestEffort"]}, set(), id="with a scope it is about pods"),
        pytest.param({**HARD, "scopeSelector": {}}, {"c"}, id="a selector of nothing is none"),
        pytest.param({**HARD, "scopeSelector": {"matchExpressions": [{}]}}, set(), id="with a scope selector too"),
        pytest.param({"hard": ["x"]}, set(), id="no map"),
        pytest.param({"hard": {1: 2, None: 3, KEY: 1}}, {"c"}, id="keys that YAML allows"),
        pytest.param({}, set(), id="nothing at all"),
    ],
)
def test_quota_off_the_wire(spec: dict[str, Any], limits: set[str]) -> None:
    """Only what limits devices is kept."""
    read = quota(spec)
    assert set(read.limits if read else ()) == limits
    if read is not None:
        assert (read.namespace, read.name) == ("ns", "q")


@pytest.mark.parametrize(("used", "limit"), [({KEY: "2"}, 2), ({}, None), (None, None), ("x", None), ({KEY: {}}, None)])
def test_used_off_the_wire(used: Any, limit: int | None) -> None:  # noqa: ANN401 # any JSON
    """What is used may be missing or broken, and is not known then."""
    read = quota(HARD, used)
    assert read is not None
    assert read.limits["c"].used == limit


def test_namespace_off_the_wire() -> None:
    """Of a namespace its metadata is enough; one that ends says so."""
    metadata = {"name": "ns", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}}
    raw = {"kind": "PartialObjectMetadata", "metadata": metadata}
    assert to_namespace(msgspec.convert(raw, NamespaceObject)) == Namespace(
        "ns", "u", "2026-01-01T00:00:00Z", {"a": "b"}
    )
    raw["metadata"] = {**metadata, "deletionTimestamp": "2026-01-02T00:00:00Z"}
    assert to_namespace(msgspec.convert(raw, NamespaceObject)).terminating


NAMES = st.sampled_from(["a", "b"])
NAMESPACES = st.builds(Namespace, NAMES, st.sampled_from(["1", "2"]), terminating=st.booleans())
LIMITS = st.builds(Limit, st.just("q"), st.integers(0, 3), st.none() | st.integers(0, 3))
QUOTAS = st.builds(Quota, NAMES, NAMES, st.dictionaries(st.sampled_from(["c", TOTAL]), LIMITS, min_size=1))
DELTAS = st.lists(
    st.tuples(st.just("apply_namespace"), st.tuples(NAMESPACES))
    | st.tuples(st.just("delete_namespace"), st.tuples(NAMES))
    | st.tuples(st.just("replace_namespaces"), st.tuples(st.lists(NAMESPACES, max_size=2)))
    | st.tuples(st.just("apply_quota"), st.tuples(QUOTAS))
    | st.tuples(st.just("delete_quota"), st.tuples(NAMES, NAMES))
    | st.tuples(st.just("replace_quotas"), st.tuples(st.lists(QUOTAS, max_size=3))),
    max_size=20,
)


def everything(tenancy: Tenancy) -> dict[str, Tenant | None]:
    """All that a tenancy says."""
    return {name: tenancy.tenant(name) for name in tenancy.names()}


@given(DELTAS)
def test_deltas_equal_rebuild(deltas: list[tuple[str, tuple[Any, ...]]]) -> None:
    """After any sequence of deltas it says what one built from nothing says, and exactly what changed was told."""
    tenancy, namespaces, quotas = Tenancy(), dict[str, Namespace](), dict[tuple[str, str], Quota]()
    changes = tenancy.follow()
    for verb, arguments in deltas:
        before = everything(tenancy)
        getattr(tenancy, verb)(*arguments)
        (value, *_) = arguments
        if verb == "apply_namespace":
            namespaces[value.name] = value
        elif verb == "delete_namespace":
            namespaces.pop(value, None)
        elif verb == "replace_namespaces":
            namespaces = {each.name: each for each in value}
        elif verb == "apply_quota":
            quotas[value.namespace, value.name] = value
        elif verb == "delete_quota":
            quotas.pop(arguments, None)
        else:
            quotas = {(each.namespace, each.name): each for each in value}
        after, taken = everything(tenancy), changes.take()
        assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == taken.names
        assert taken.departed == {name: before[name] for name in before if name not in after}
    rebuilt = Tenancy()
    rebuilt.replace_namespaces(namespaces.values())
    rebuilt.replace_quotas(quotas.values())
    assert everything(tenancy) == everything(rebuilt)


class Refusing:
    """A transport for which one path is forbidden until it is allowed."""

    def __init__(self, client: ClusterClient, path: str) -> None:
        self.stream = client.stream
        self.allowed = False
        self._client = client
        self._path = path

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON) -> Response:
        """Read, or be refused."""
        if path == self._path and not self.allowed:
            raise ClusterError(403, "Forbidden", "not you")
        return await self._client.get(path, params, accept=accept)


async def until(check: Callable[[], bool]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(20):
        while not check():  # noqa: ASYNC110 # a state, not an event
            await asyncio.sleep(0.01)


async def test_live() -> None:
    """A refused kind keeps tenants waiting and nobody else; namespaces are asked for as metadata alone."""
    async with FakeApiserver() as server, ClusterClient(Access(server.url), user_agent="tests") as client:
        server.put(NAMESPACES_PATH, "ns")
        server.put(QUOTAS_PATH, "q", metadata={"name": "q", "namespace": "ns"}, spec=HARD)
        tenancy, transport = Tenancy(), Refusing(client, QUOTAS_PATH)
        live = Live(View(), tenancy=tenancy)
        assert live.tenants_untold() is not None
        task = asyncio.create_task(live.run(transport))
        try:
            await until(lambda: live.unsynced() is None and "403" in (live.tenants_problem() or ""))
            assert (live.untold(), live.awaited()) == (None, None)
            assert "resourcequotas" in (live.tenants_untold() or "")
            transport.allowed = True
            await until(lambda: live.tenants_untold() is None)
            server.remove(QUOTAS_PATH, "q")
            await until(lambda: tenancy.tenant("ns") == Tenant(Namespace("ns")))
            await until(lambda: any(each.path == NAMESPACES_PATH for each in server.watches))
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    accepted = {each.headers["Accept"].partition(";g=")[0] for each in server.seen if each.path == NAMESPACES_PATH}
    assert accepted == {f"application/json;as=PartialObjectMetadata{end}" for end in ("", "List")}
    assert {each.headers["Accept"] for each in server.seen if each.path == QUOTAS_PATH} == {JSON}


async def test_switched_off() -> None:
    """Without tenants nothing is asked of namespaces and ResourceQuotas, and nothing waits for them."""
    async with FakeApiserver() as server, ClusterClient(Access(server.url), user_agent="tests") as client:
        live = Live(View())
        task = asyncio.create_task(live.run(client))
        try:
            await until(lambda: live.untold() is None)
            assert (live.tenants_problem(), live.awaited()) == (None, None)
            await until(lambda: len({each.path for each in server.watches}) >= 3)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert {each.path for each in server.seen} & {NAMESPACES_PATH, QUOTAS_PATH} == set()


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("Namespace", {"name": "\ud800"}),
        ("Namespace", {}),
        ("Namespace", {"name": "a", "labels": ["x"]}),
        ("ResourceQuota", {"name": "\ud800", "namespace": "ns"}),
        ("ResourceQuota", {"name": 3}),
    ],
)
def test_rejected_in_a_snapshot(kind: str, metadata: Any) -> None:  # noqa: ANN401 # any JSON
    """An object that cannot be told is named, and the others are kept."""
    good = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
    bad = {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": HARD}
    snapshot = parse_snapshot(json.dumps({"kind": "List", "items": [bad, good]}))
    assert ([each.name for each in snapshot.namespaces], len(snapshot.rejected)) == (["ns"], 1)


def test_snapshot() -> None:
    """A dump may carry namespaces and ResourceQuotas."""
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}},
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "ns"}, "spec": HARD},
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "r", "namespace": "ns"}, "spec": {}},
    ]
    snapshot = parse_snapshot(json.dumps({"kind": "List", "items": objects}))
    assert (snapshot.rejected, snapshot.skipped) == ([], {})
    tenancy = Tenancy()
    snapshot.fill(View(), tenancy)
    found = tenancy.tenant("ns")
    assert found is not None
    assert {name: budget.at_most for name, budget in found.budgets.items()} == {"c": 5}
    parse_snapshot("").fill(View(), tenancy)
    assert list(tenancy.names()) == []
