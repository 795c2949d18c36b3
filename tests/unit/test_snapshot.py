"""Snapshots: every form kubectl prints, and what is left out."""

import json

import pytest
import yaml

from apiserver.cluster.snapshot import SnapshotError, parse_snapshot
from apiserver.cluster.view import View

CLASS = {"apiVersion": "cozystack.io/v1alpha1", "kind": "GPUClass", "metadata": {"name": "a"}}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "ns"},
    "spec": {"containers": [{"resources": {"requests": {"nvidia.com/gpu": "1"}}}]},
}
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}
SERVED = {"apiVersion": "catalog.cozystack.io/v1alpha1", "kind": "GPUClass", "metadata": {"name": "b"}}
ALL = [CLASS, NODE, POD, SECRET, SERVED]
LIST = {"apiVersion": "v1", "kind": "List", "items": ALL}
TYPED = {"apiVersion": "v1", "kind": "PodList", "items": [{key: POD[key] for key in ("metadata", "spec")}]}


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(json.dumps(LIST), id="a JSON list"),
        pytest.param(json.dumps(LIST, indent=2) + "\n", id="an indented JSON list"),
        pytest.param(yaml.safe_dump(LIST), id="a YAML list"),
        pytest.param("".join(json.dumps(each) + "\n" for each in ALL), id="JSON objects one after another"),
        pytest.param("---\n" + yaml.safe_dump_all(ALL, explicit_start=True) + "---\n", id="YAML documents"),
        pytest.param(yaml.safe_dump_all([{**LIST, "items": [CLASS, NODE, SECRET, SERVED]}, TYPED]), id="a typed list"),
    ],
)
def test_forms(text: str) -> None:
    """One dump in every form is the same dump; unknown kinds are counted, ours from the API among them."""
    snapshot = parse_snapshot(text)
    assert [each.name for each in snapshot.classes] == ["a"]
    assert [each.name for each in snapshot.nodes] == ["n"]
    assert [each.name for each in snapshot.pods] == ["p"]
    assert snapshot.skipped == {"Secret": 1, "GPUClass": 1}
    assert snapshot.rejected == []


def test_times_stay_text() -> None:
    """An unquoted time in YAML is a string, as Kubernetes means it."""
    text = yaml.safe_dump(CLASS).replace("name: a", "name: a\n  creationTimestamp: 2026-01-01T00:00:00Z")
    snapshot = parse_snapshot(text)
    assert snapshot.classes[0].creation_timestamp == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "text",
    ["{", "a: [", "[]", "- a", "just words", '{"a": 1}', '{"kind": "List", "items": [1]}', "kind: 3", "a: &a *b"],
)
def test_no_snapshot(text: str) -> None:
    """What is no dump of Kubernetes objects is refused as a whole."""
    with pytest.raises(SnapshotError):
        parse_snapshot(text)


@pytest.mark.parametrize("text", ["", "\n", "---\n", "# nothing\n"])
def test_empty(text: str) -> None:
    """An empty dump is an empty cluster."""
    assert parse_snapshot(text).nodes == []


def test_rejected() -> None:
    """An object of the wrong shape is named, and the others are kept."""
    bad = {**NODE, "metadata": {"name": "bad"}, "spec": {"taints": "none"}}
    nameless = {**CLASS, "metadata": {}}
    snapshot = parse_snapshot(json.dumps({**LIST, "items": [bad, NODE, nameless]}))
    assert [each.name for each in snapshot.nodes] == ["n"]
    assert [each.partition(":")[0] for each in snapshot.rejected] == ["Node bad", "GPUClass None"]


def test_text_that_is_none() -> None:
    """A string that cannot be written as UTF-8 costs its object only."""
    broken = {**CLASS, "metadata": {"name": "x", "labels": {"a": "\ud800"}}}
    snapshot = parse_snapshot(json.dumps({**LIST, "items": [broken, CLASS]}))
    assert [each.name for each in snapshot.classes] == ["a"]
    assert len(snapshot.rejected) == 1


def test_fill() -> None:
    """A view is made equal to the dump, and forgets what is not in it."""
    view = View()
    parse_snapshot(json.dumps(LIST)).fill(view)
    parse_snapshot(json.dumps({**LIST, "items": [{**CLASS, "metadata": {"name": "c"}}]})).fill(view)
    assert list(view.names()) == ["c"]
    assert view.nodes_without_resource("c") == 0


KUBEVIRT = {
    "apiVersion": "kubevirt.io/v1",
    "kind": "KubeVirt",
    "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
    "spec": {"configuration": {"permittedHostDevices": {}}},
}
DEVICE_CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.example.com"},
    "spec": {"extendedResourceName": "nvidia.com/gpu"},
}
SELLING = {
    **CLASS,
    "spec": {
        "vendor": "NVIDIA",
        "model": "L40S",
        "mode": "passthrough",
        "memory": "48Gi",
        "source": {"devicePlugin": {"resourceName": "nvidia.com/gpu"}},
    },
}


@pytest.mark.parametrize(
    ("objects", "kubevirt", "reason", "device_classes"),
    [
        pytest.param([], True, "Offered", (), id="an absent kind is not checked"),
        pytest.param([KUBEVIRT, DEVICE_CLASS], True, "NotPermitted", ("gpu.example.com",), id="both are there"),
        pytest.param([KUBEVIRT], False, "Offered", (), id="nobody asked for KubeVirt"),
    ],
)
def test_optional_kinds(objects: list[object], kubevirt: bool, reason: str, device_classes: tuple[str, ...]) -> None:
    """A dump may carry every kind that is watched."""
    snapshot = parse_snapshot(json.dumps({**LIST, "items": [SELLING, *objects]}))
    assert (snapshot.skipped, snapshot.rejected) == ({}, [])
    view = View()
    snapshot.fill(view, kubevirt=kubevirt)
    report = view.report("a")
    assert report is not None
    assert (report.offer.reason, view.device_classes("a")) == (reason, device_classes)
