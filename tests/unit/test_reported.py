"""Faults that people reported of programs that count GPUs: each stays right here."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiserver.cluster.snapshot import parse_snapshot
from apiserver.cluster.view import View

Json = dict[str, Any]

REPORTED: list[Json] = yaml.safe_load(Path(__file__).with_name("reported.yaml").read_text())
PLAIN = "nvidia.com/gpu"


def stored_class(facts: Json) -> Json:
    """A stored class of the resource name, with the tolerations."""
    source = {"devicePlugin": {"resourceName": facts.get("resourceName", PLAIN)}}
    spec = {"vendor": "v", "model": "m", "mode": "passthrough", "memory": "24Gi", "source": source}
    spec["tolerations"] = facts.get("tolerations", [])
    return {"apiVersion": "cozystack.io/v1alpha1", "kind": "GPUClass", "metadata": {"name": "class"}, "spec": spec}


def node(name: str, facts: Json) -> Json:
    """A node as the API has it."""
    status: Json = {"conditions": [{"type": "Ready", "status": str(facts.get("ready", "True"))}]}
    quantities = {"allocatable": facts.get("alloc"), "capacity": facts.get("cap", facts.get("alloc"))}
    for key, devices in quantities.items():
        if devices is not None:
            status[key] = devices if isinstance(devices, dict) else {PLAIN: devices}
    spec = {"unschedulable": facts.get("cordoned", False), "taints": [taint(each) for each in facts.get("taints", ())]}
    metadata = {"name": name, "labels": facts.get("labels", {})}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def taint(text: str) -> Json:
    """A taint from kubectl's spelling of it."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}


def pod(name: str, facts: Json, resource: str) -> Json:
    """A pod as the API has it."""

    def container(index: int, devices: object) -> Json:
        requests = devices if isinstance(devices, dict) else {resource: devices}
        return {"name": f"c{index}", "resources": {"requests": requests}}

    spec: Json = {"containers": [container(index, each) for index, each in enumerate(facts.get("main", ()))]}
    spec["initContainers"] = []
    for index, text in enumerate(facts.get("init", ())):
        match = re.fullmatch(r"([si])(\S+)", text)
        assert match
        restart = {"restartPolicy": "Always"} if match[1] == "s" else {}
        spec["initContainers"].append({**container(index, match[2]), "name": f"i{index}", **restart})
    if "node" in facts:
        spec["nodeName"] = facts["node"]
    if "overhead" in facts:
        spec["overhead"] = facts["overhead"] if isinstance(facts["overhead"], dict) else {resource: facts["overhead"]}
    metadata = {"name": name, "namespace": "default"}
    if facts.get("terminating"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    status = {"phase": facts.get("phase", ""), "nominatedNodeName": facts.get("nominatedNodeName", "")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


@pytest.mark.parametrize("case", [pytest.param(each, id=each["reported"]) for each in REPORTED])
def test_reported(case: Json) -> None:
    """The class has the figures that Kubernetes' own rules give, and none of the reported ones."""
    gpu_class = case.get("class", {})
    resource = gpu_class.get("resourceName", PLAIN)
    items = [stored_class(gpu_class), *(node(name, facts or {}) for name, facts in case["nodes"].items())]
    for index, facts in enumerate(case.get("pods", ())):
        items += [pod(f"p{index}-{number}", facts, resource) for number in range(facts.get("times", 1))]
    snapshot = parse_snapshot(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    assert snapshot.rejected == []
    view = View()
    snapshot.fill(view)
    report = view.report("class")
    assert report is not None
    assert (report.tally.free, report.tally.max_free_per_node) == (case["expect"]["free"], case["expect"]["max"])
    assert report.offer.offered
    assert report.tally.free == sum(each.share.free for each in view.nodes("class"))
