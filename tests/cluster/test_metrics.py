"""`/metrics` on a real cluster: who may read it, what it says, and kube-apiserver's own as the judge of its words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Client, Json
from tests.cluster.waiting import wait_for

RBAC = "/apis/rbac.authorization.k8s.io/v1"
LIST = "/apis/catalog.cozystack.io/v1alpha1/gpuclasses"
SHARED = {
    "apiserver_request",
    "apiserver_request_duration_seconds",
    "apiserver_response_sizes",
    "apiserver_longrunning_requests",
    "apiserver_watch_events",
    "apiserver_current_inflight_requests",
    "authentication_attempts",
    "authorization_attempts",
    "process_resident_memory_bytes",
}
"""What both have; the library names a counter without its `_total`."""


def families(client: Client) -> dict[str, Metric]:
    """What a server says, as Prometheus reads it."""
    answer = client.request("GET", "/metrics")
    assert answer.code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4; charset=utf-8")
    return {family.name: family for family in text_string_to_metric_families(answer.body.decode())}


def shape(family: Metric) -> tuple[str, set[tuple[str, frozenset[str]]], list[str]]:
    """Type, names and labels of the samples, and the bounds of the first series."""
    bounds: list[str] = []
    for sample in family.samples:
        bound = sample.labels.get("le")
        if bound is None or bound in bounds:
            break
        bounds.append(bound)
    return family.type, {(sample.name, frozenset(sample.labels)) for sample in family.samples}, bounds


@contextmanager
def reader_of_metrics(api: Client, user: str) -> Iterator[None]:
    """Let a user read metrics."""
    name = {"metadata": {"name": "metrics-reader"}}
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    role: Json = {**name, "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [rule]}
    group: Mapping[str, str] = {"apiGroup": "rbac.authorization.k8s.io"}
    binding: Json = {
        **role,
        "kind": "ClusterRoleBinding",
        "roleRef": {**group, "kind": "ClusterRole", "name": "metrics-reader"},
        "subjects": [{**group, "kind": "User", "name": user}],
    }
    del binding["rules"]
    api.post(f"{RBAC}/clusterroles", role)
    api.post(f"{RBAC}/clusterrolebindings", binding)
    try:
        yield
    finally:
        api.delete(f"{RBAC}/clusterrolebindings/metrics-reader")
        api.delete(f"{RBAC}/clusterroles/metrics-reader")


def test_in_the_words_of_kube_apiserver(api: Client, catalog: CatalogServer) -> None:
    """Every family that both servers have is of the same type, with the same samples, labels and buckets."""
    with catalog.client() as client:
        assert client.request("GET", LIST).code == 200
        assert (
            client.request(
                "GET",
                f"{LIST}?watch=1&timeoutSeconds=1&sendInitialEvents=true"
                "&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
            ).code
            == 200
        )
        ours = families(client)
    theirs = families(api)
    both = {name for name in ours.keys() & theirs.keys() if ours[name].samples and theirs[name].samples}
    assert both >= SHARED
    assert {name: shape(ours[name]) for name in both} == {name: shape(theirs[name]) for name in both}


def test_who_may_read(api: Client, catalog: CatalogServer) -> None:
    """A user needs the right to that path, and no other; each collection that is followed tells how old it is."""
    with catalog.client("nobody-special", ()) as client:
        assert client.request("GET", "/metrics").code == 403
    with reader_of_metrics(api, "prometheus"), catalog.client("prometheus", ()) as client:
        wait_for(lambda: client.request("GET", "/metrics").code == 200, "the right", timeout_seconds=30)
        told = families(client)
        assert client.request("GET", LIST).code == 403
    ages = {each.labels["collection"]: each.value for each in told["gpuclass_catalog_reflector_age_seconds"].samples}
    assert ages.keys() >= {"gpuclasses", "nodes", "pods", "namespaces", "resourcequotas", "configmaps"}
    assert max(ages.values()) < 180
    reviews = {each.labels["code"]: each.value for each in told["apiserver_delegated_authz_request"].samples}
    assert reviews.keys() == {"201"}
    assert reviews["201"] >= 2
