"""Metrics, alerts and dashboard: what Prometheus makes of two live replicas, and whether what is shipped fits it."""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.catalog import MANIFESTS, NAMESPACE, CatalogServer, read_documents
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.documents import DOCS, Shell, blocks, commands
from tests.cluster.waiting import wait_for
from tests.cluster.workload import create_node, create_pod, ensure_namespace, gpu_class, node, pod
from tests.http.running import running, write_kubeconfig
from tests.monitoring import reference, shipped
from tests.monitoring.judging import Promjudge, Scrape

LIST = "/apis/catalog.cozystack.io/v1alpha1/gpuclasses"
STORED = "/apis/cozystack.io/v1alpha1/gpuclasses"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
POOL, OTHER = "example.com/pool", "example.com/other"
SHARED = ("--resource-names=shared",)
ROLE = "gpuclass-catalog-metrics-reader"
PAGE = DOCS / "metrics.md"
PROMETHEUS = {"namespace": "monitoring", "name": "prometheus-k8s"}
JOB = {"job": "gpuclass-catalog", "namespace": NAMESPACE}
STEP, SPAN = 60, 20 * 60
WAITS = 'gpuclass_devices_pending{class="other"} 1.0'
NAMED_BY_UPSTREAM = {'authentication_attempts: counter metrics should have "_total" suffix'}
"""What the linter finds wrong with a name that is Kubernetes' own."""


@pytest.fixture(scope="module")
def component(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> list[Json]:
    """What kustomize makes of the base with the component, besides what it makes of the base alone."""
    directory = tmp_path_factory.mktemp("overlay")
    places = {
        name: os.path.relpath(MANIFESTS / name, directory.resolve()) for name in ("base", "components/monitoring")
    }
    (directory / "kustomization.yaml").write_text(
        f"resources: [{places['base']}]\ncomponents: [{places['components/monitoring']}]\n"
    )
    base = read_documents(control_plane.kubectl("kustomize", str(MANIFESTS / "base")).stdout)
    return [
        each for each in read_documents(control_plane.kubectl("kustomize", str(directory)).stdout) if each not in base
    ]


@pytest.fixture
def token(api: Client, control_plane: ControlPlane, component: list[Json]) -> Iterator[str]:
    """A token of Prometheus' service account, to which the page about metrics binds the role of the component."""
    where = f"/api/v1/namespaces/{PROMETHEUS['namespace']}/serviceaccounts"
    (role,) = (each for each in component if each["kind"] == "ClusterRole")
    assert role["metadata"]["name"] == ROLE
    (binding,) = commands(PAGE)
    shell = Shell(DOCS, (control_plane.binaries.kubectl.parent,), {"KUBECONFIG": str(control_plane.kubeconfig)})
    made = [f"{where}/{PROMETHEUS['name']}", f"{RBAC}/clusterroles/{ROLE}", f"{RBAC}/clusterrolebindings/{ROLE}"]
    ensure_namespace(api, PROMETHEUS["namespace"])
    try:
        api.post(where, {"metadata": {"name": PROMETHEUS["name"]}})
        api.post(f"{RBAC}/clusterroles", role)
        shell.run(binding)
        yield api.post(f"{made[0]}/token", {"spec": {}})["status"]["token"]
    finally:
        for path in made:
            api.request("DELETE", path)


@pytest.fixture
def sold(api: Client) -> None:
    """Two classes sell one pool, a third something that nobody has free."""
    api.post(STORED, gpu_class("pool-a", POOL))
    api.post(STORED, gpu_class("pool-b", POOL))
    api.post(STORED, gpu_class("other", OTHER))
    create_node(api, node("whole", capacity={POOL: 8, OTHER: 1}))
    create_node(api, node("sick", capacity={POOL: 4}, allocatable={POOL: 3}))
    create_node(api, node("cordoned", capacity={POOL: 2}, unschedulable=True))
    for name, where, devices in (("p", "whole", {POOL: 5}), ("q", "whole", {OTHER: 1})):
        create_pod(api, pod(name, node=where, requests=devices))
    create_pod(api, pod("waits", requests={OTHER: 1}))


def scraped(server: CatalogServer, token: str) -> str:
    """What the server says to Prometheus; it knows who asks by the token alone."""
    with Client(server.port, authority=server.authority, address=server.host.address) as client:
        answer = client.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
    assert answer.code == 200, answer.body
    return answer.body.decode()


@contextmanager
def two_replicas(control_plane: ControlPlane) -> Iterator[tuple[CatalogServer, CatalogServer]]:
    """Two replicas, reached directly, in which any number of classes may sell a resource name."""
    with ExitStack() as stack:
        servers = [CatalogServer(control_plane, arguments=SHARED) for _ in range(2)]
        for server in servers:
            stack.callback(server.stop)
            server.start(until="/readyz")
        yield servers[0], servers[1]


def kept_up(*texts: str) -> list[Scrape]:
    """As if replicas had said the same for 20 minutes, each minute; of an empty one nothing was heard."""
    return [
        Scrape(time, {**JOB, "instance": f"10.0.0.{number}:6443"}, text)
        for time in range(0, SPAN + 1, STEP)
        for number, text in enumerate(texts, 1)
    ]


def firing(promjudge: Promjudge, *texts: str) -> set[tuple[str, str]]:
    """The alerts that fire at the end of the 20 minutes, each with what it is about."""
    alerts = promjudge.firing(kept_up(*texts), shipped.rules(), [float(each) for each in range(0, SPAN + 1, STEP)])
    for each in alerts:
        assert not re.search(r"<no value>|<nil>|%!|{{", " ".join(each.annotations.values()))
    about = ("class", "resource", "collection", "instance")
    return {(each.name, next((each.labels[key] for key in about if key in each.labels), "")) for each in alerts}


@pytest.mark.usefixtures("sold", "catalog")
def test_two_replicas(control_plane: ControlPlane, promjudge: Promjudge, token: str) -> None:
    """Over two replicas and two classes that share a pool, what the dashboard shows is what there is."""
    with two_replicas(control_plane) as replicas:
        wait_for(lambda: all(WAITS in scraped(each, token) for each in replicas), "all of it at both")
        before = [scraped(each, token) for each in replicas]
        for each in replicas:
            with each.client() as client:
                for path in (LIST, f"{LIST}/other", f"{LIST}?watch=1&timeoutSeconds=1"):
                    assert client.request("GET", path).code == 200
        texts = [scraped(each, token) for each in replicas]
    assert set(promjudge.lint(texts[0])) <= NAMED_BY_UPSTREAM
    scrapes = kept_up(*before)[:-4] + kept_up(*texts)[-4:]
    shown = {each.title: promjudge.answers(scrapes, list(each.queries), SPAN) for each in shipped.panels()}
    assert {title: results[0][()] for title, results in shown.items() if list(results[0]) == [()]} == {
        "Free": 6,  # 3 on `whole`, 3 on `sick`
        "Held by pods": 6,
        "Waited for": 1,
        "Unavailable": 3,
        "Sick": 1,
        "Overcommitted": 0,
        "Held, free and unavailable devices": 6,
        "Replicas": 2,
    }
    assert [each[()] for each in shown["Held, free and unavailable devices"]] == [6, 6, 3]
    assert shown["Free by class"] == [{("pool-a",): 6, ("pool-b",): 6, ("other",): 0}]
    offered, free, largest, *_ = shown["Classes now"]
    assert offered == {(name, "Offered"): 1 for name in ("pool-a", "pool-b", "other")}
    assert (free["pool-a",], largest["pool-a",]) == (6, 3)
    assert not [title for title, results in shown.items() if not all(results)], "a panel shows nothing"
    (documented,) = blocks(PAGE, "promql")
    in_all, of_each = promjudge.answers(scrapes, documented.splitlines(), SPAN)
    assert in_all == {(): 6}
    assert of_each == {("pool-a",): 6, ("pool-b",): 6, ("other",): 0}
    # What a query without regard to replicas and sharing would show.
    naive = promjudge.answer(scrapes, "sum(gpuclass_devices_free)", SPAN)
    assert naive == {(): 24}
    assert firing(promjudge, *texts) == {("GPUClassExhausted", "other"), ("GPUDevicesUnhealthy", POOL)}
    assert firing(promjudge, texts[0], "") == {
        ("GPUClassExhausted", "other"),
        ("GPUDevicesUnhealthy", POOL),
        ("GPUCatalogReplicaDown", "10.0.0.2:6443"),
    }
    assert firing(promjudge, "", "") == {
        ("GPUCatalogDown", ""),
        ("GPUCatalogReplicaDown", "10.0.0.1:6443"),
        ("GPUCatalogReplicaDown", "10.0.0.2:6443"),
    }


@pytest.mark.usefixtures("sold")
def test_alerts_of_faults(api: Client, catalog: CatalogServer, promjudge: Promjudge, token: str) -> None:
    """A conflict over a resource name and devices that went away under their pods are told; mended, they are not."""
    found = {("GPUResourceNameConflict", "pool-b"), ("GPUDevicesUnhealthy", POOL), ("GPUClassExhausted", "other")}
    lost = {"status": {"allocatable": {POOL: "2"}}}
    wait_for(lambda: firing(promjudge, scraped(catalog, token)) == found, "the alerts of the conflict")
    api.patch("/api/v1/nodes/whole/status", lost)
    overcommitted = found | {("GPUNodeOvercommitted", POOL)}
    wait_for(lambda: firing(promjudge, scraped(catalog, token)) == overcommitted, "the alert of the lost devices")
    api.delete(f"{STORED}/pool-b")
    for name in ("waits", "q"):
        api.delete(f"/api/v1/namespaces/default/pods/{name}")
    for name, devices in (("whole", 8), ("sick", 4)):
        api.patch(f"/api/v1/nodes/{name}/status", {"status": {"allocatable": {POOL: str(devices)}}})
    wait_for(lambda: not firing(promjudge, scraped(catalog, token)), "the end of all alerts")


async def test_alerts_of_a_lost_cluster(promjudge: Promjudge, tmp_path: Path) -> None:
    """A replica that cannot reach the cluster tells no figures, and that is told."""
    nowhere = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    async with (
        running("--local", "--kubeconfig", nowhere, "--insecure-port", "0") as server,
        aiohttp.ClientSession() as session,
    ):
        text = ""
        while 'reflector_failures_total{collection="nodes"} 1' not in text:
            text = await (await session.get(f"{server.url}/metrics")).text()
    collections = ("gpuclasses", "nodes", "pods", "namespaces", "resourcequotas")
    assert firing(promjudge, text) == {("GPUCatalogViewStale", "10.0.0.1:6443")} | {
        ("GPUCatalogCollectionStale", each) for each in collections
    }


def test_what_is_exported_is_clean(catalog: CatalogServer, promjudge: Promjudge) -> None:
    """The linter of promtool finds nothing but a name that is upstream's, and every metric is in the reference."""
    with catalog.client() as client:
        text = client.request("GET", "/metrics").body.decode()
    assert set(promjudge.lint(text)) <= NAMED_BY_UPSTREAM
    assert promjudge.lint(text.replace("process_open_fds", "process_open_total")), "it can find something"
    exported = {each.name for each in text_string_to_metric_families(text)}
    assert exported == {each.removesuffix("_total") for each in reference.names()}


def test_alerts_are_whole(promjudge: Promjudge) -> None:
    """Prometheus accepts the rules; each alert says how bad it is and where to read on, and names what is exported."""
    assert promjudge.check_rules(shipped.rules()) == []
    assert promjudge.check_rules(shipped.rules().replace("max by (class)", "max by class"))
    alerts = shipped.alerts()
    for alert in alerts:
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert alert["annotations"]["runbook_url"].endswith(f"docs/runbooks.md#{alert['alert'].lower()}")
    expressions = promjudge.parse(*(each["expr"] for each in alerts))
    assert {name for each in expressions for name in each.metrics} <= {*reference.names(), "up"}


def test_every_alert_has_a_runbook() -> None:
    """And every runbook an alert."""
    assert sorted(shipped.anchors()) == sorted(each["alert"].lower() for each in shipped.alerts())


def test_dashboard(promjudge: Promjudge) -> None:
    """Grafana's own model has every field of it, and each query names what is exported and minds the replicas."""
    board = shipped.dashboard()
    assert promjudge.check_dashboard(board) == []
    assert promjudge.check_dashboard({**board, "panels": [{**board["panels"][1], "options": {"none": 1}}]})
    panels = shipped.panels()
    assert len({each.title for each in panels}) == len(panels)
    for panel in panels:
        assert panel.unit
        assert panel.raw["description"]
        sources = [panel.raw["datasource"], *(each["datasource"] for each in panel.raw["targets"])]
        assert sources == [{"type": "prometheus", "uid": "${datasource}"}] * len(sources)
    queries = [query for panel in panels for query in panel.queries]
    for query, parsed in zip(queries, promjudge.parse(*queries), strict=True):
        assert parsed.error == ""
        assert "$" not in query
        assert set(parsed.metrics) <= {*reference.samples(), "up"}
        if any(name.startswith("gpuclass_") for name in parsed.metrics):
            assert re.search(r"max by \([a-z, ]+\) \((rate\()?gpuclass_", query), query
        else:
            assert 'job="gpuclass-catalog"' in query, "kube-apiserver has metrics of these names, too"


@pytest.mark.usefixtures("catalog")  # its namespace is there
def test_component(control_plane: ControlPlane, component: list[Json]) -> None:
    """Kustomize adds these four objects to the base; kube-apiserver takes those whose kinds it knows."""
    assert {(each["kind"], each["metadata"]["name"]) for each in component} == {
        ("ClusterRole", ROLE),
        ("ConfigMap", "gpuclass-catalog-dashboard"),
        ("PrometheusRule", "gpuclass-catalog"),
        ("ServiceMonitor", "gpuclass-catalog"),
    }
    for each in component:
        if not each["apiVersion"].startswith("monitoring.coreos.com/"):
            text = yaml.safe_dump(each)
            control_plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    monitor = next(each for each in component if each["kind"] == "ServiceMonitor")
    (service,) = (each for each in read_documents((MANIFESTS / "base/service.yaml").read_text()))
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {each["name"] for each in service["spec"]["ports"]}
    assert JOB["job"] == service["metadata"]["name"]


def test_reference() -> None:
    """The page about metrics says what is exported."""
    assert reference.is_current(), "run: .venv/bin/python -m tests.monitoring.reference"
