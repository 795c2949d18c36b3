"""Objects as large as on a real cluster: 3 to 10 kB, most of it what nobody reads here."""

from collections.abc import Mapping
from typing import Any, Final

from tests.cluster.client import Json

GPUS: Final = 8
IMAGES: Final = 50
CLASS_COUNT: Final = 50
TIME: Final = "2026-01-01T00:00:00Z"


def class_spec(index: int) -> Json:
    """What a class that is sold says: a vGPU with its resource name."""
    return {
        "vendor": "NVIDIA",
        "model": "L40S",
        "mode": "vgpu",
        "profile": "L40S-24C",
        "memory": "24Gi",
        "source": {"devicePlugin": {"resourceName": device(index)}},
    }


def class_object(index: int) -> Json:
    """A stored class."""
    return {
        "metadata": {"name": f"class-{index:03}", "uid": f"uid-class-{index}", "creationTimestamp": TIME},
        "spec": {"vendor": "NVIDIA", "model": "L40S", "source": {"devicePlugin": {"resourceName": device(index)}}},
    }


def device(index: int) -> str:
    """The resource name of the class of that number."""
    return f"nvidia.com/L40S-{index:03}"


def node_object(index: int, *, gpu: bool) -> Json:
    """A Node of about 9 kB, with the labels, images and conditions that kubelets write."""
    name = f"node-{index:05}"
    devices = {device(index % CLASS_COUNT): str(GPUS)} if gpu else {}
    room = {"cpu": "64", "memory": "263842840Ki", "pods": "110", "ephemeral-storage": "1855467Mi", **devices}
    kinds = ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": TIME,
            "labels": {f"feature.node.kubernetes.io/cpu-{number}": "true" for number in range(20)},
            "managedFields": _managed_fields("kubelet"),
        },
        "spec": {"podCIDR": "10.1.0.0/24", "providerID": f"metal://{name}"},
        "status": {
            "capacity": room,
            "allocatable": room,
            "conditions": [
                {
                    "type": kind,
                    "status": "True" if kind == "Ready" else "False",
                    "lastHeartbeatTime": TIME,
                    "reason": kind,
                }
                for kind in kinds
            ],
            "images": [
                {"names": [f"registry.invalid/team/image-{number}:v1.2.3"], "sizeBytes": 123456789 + number}
                for number in range(IMAGES)
            ],
        },
    }


def heartbeat(node: Mapping[str, Any], index: int) -> Json:
    """The Node after its kubelet said again that it is well."""
    conditions = [
        {**each, "lastHeartbeatTime": f"2026-01-02T00:00:{index % 60:02}Z"} for each in node["status"]["conditions"]
    ]
    metadata = {**node["metadata"], "resourceVersion": str(index + 2)}
    return {**node, "metadata": metadata, "status": {**node["status"], "conditions": conditions}}


def pod_object(name: str, node: int, *, version: int, gpu: bool) -> Json:
    """A bound Pod of about 5 kB, with volumes, environment, conditions and managed fields."""
    devices = {device(node % CLASS_COUNT): "1"} if gpu else {}
    resources = {"requests": {"cpu": "500m", "memory": "1Gi", **devices}, "limits": {"memory": "1Gi", **devices}}
    container = {
        "name": "main",
        "image": "registry.invalid/team/image:v1.2.3",
        "env": [{"name": f"SETTING_{number}", "value": f"value-{number}"} for number in range(20)],
        "resources": resources,
        "volumeMounts": [{"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
    }
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "resourceVersion": str(version),
            "creationTimestamp": TIME,
            "labels": {"app": name},
            "managedFields": _managed_fields("kube-controller-manager"),
        },
        "spec": {"nodeName": f"node-{node:05}", "containers": [container], "serviceAccountName": "default"},
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": TIME} for kind in ("Ready", "PodScheduled")
            ],
            "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0, "image": container["image"]}],
        },
    }


def _managed_fields(manager: str) -> list[Json]:
    fields: Json = {f'k:{{"name":"FIELD_{number}"}}': {".": {}, "f:name": {}, "f:value": {}} for number in range(30)}
    return [{"manager": manager, "operation": "Update", "time": TIME, "fieldsType": "FieldsV1", "fieldsV1": fields}]
