"""Classes, Nodes and Pods: building them, and bringing Nodes and Pods onto a cluster as if kubelets had."""

from collections.abc import Iterable, Mapping

from tests.cluster.client import Client, Json, NotFoundError
from tests.cluster.waiting import wait_for

STORED = "/apis/cozystack.io/v1alpha1/gpuclasses"
DEVICE = "nvidia.com/AD102GL_L40S"
NODES = "/api/v1/nodes"
NAMESPACES = "/api/v1/namespaces"
ROOM = {"cpu": "64", "memory": "256Gi", "pods": "110"}
IMAGE = "registry.invalid/none"


def gpu_class(name: str, resource: str = DEVICE, **spec: object) -> Json:
    """A stored class: a passthrough one, unless its spec says otherwise."""
    fields = {
        "vendor": "NVIDIA",
        "model": "L40S",
        "mode": "passthrough",
        "memory": "48Gi",
        "source": {"devicePlugin": {"resourceName": resource}},
        **spec,
    }
    return {"apiVersion": "cozystack.io/v1alpha1", "kind": "GPUClass", "metadata": {"name": name}, "spec": fields}


def node(
    name: str,
    *,
    capacity: Mapping[str, str | int] | None = None,
    allocatable: Mapping[str, str | int] | None = None,
    taints: Iterable[Json] = (),
    unschedulable: bool = False,
    labels: Mapping[str, str] | None = None,
) -> Json:
    """A Node that is Ready and has room for Pods.

    Args:
        name: its name, and its host name.
        capacity: what it has besides cpu, memory and pods, as resource to quantity.
        allocatable: the part of it for Pods; by default all of the capacity.
        taints: as in spec.taints.
        unschedulable: whether it is cordoned.
        labels: besides the host name.
    """
    spec: Json = {"taints": list(taints)}
    if unschedulable:
        spec["unschedulable"] = True
    capacity = capacity or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {
            "capacity": _quantities({**ROOM, **capacity}),
            "allocatable": _quantities({**ROOM, **(capacity if allocatable is None else allocatable)}),
            "conditions": [ready_condition("True")],
        },
    }


def pod(
    name: str,
    *,
    node: str | None = None,
    requests: Mapping[str, str | int] | None = None,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    spec: Json | None = None,
) -> Json:
    """A Pod of one container.

    Args:
        name: its name.
        node: the Node it is bound to; without one the scheduler will look for one.
        requests: resource to quantity; of extended resources the limit is the same, as Kubernetes demands.
        namespace: where it is.
        labels: its labels.
        spec: further fields of its spec, such as tolerations; they replace what stands there.
    """
    requested = _quantities(requests or {})
    limits = {resource: quantity for resource, quantity in requested.items() if "/" in resource}
    container: Json = {"name": "main", "image": IMAGE, "resources": {"requests": requested, "limits": limits}}
    bound = {} if node is None else {"nodeName": node}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": dict(labels or {})},
        "spec": {"containers": [container], **bound, **(spec or {})},
    }


def ready_condition(status: str) -> Json:
    """The Node condition Ready: "True", "False" or "Unknown"."""
    return {"type": "Ready", "status": status}


def create_node(client: Client, node: Json) -> Json:
    """Create a Node, and return it as it then is.

    Its status is kept at creation, as a kubelet's is when it registers; a taint that admission adds is taken away.
    """
    created = client.post(NODES, node)
    taints = node.get("spec", {}).get("taints", [])
    if created["spec"].get("taints", []) != taints:
        created = client.patch(f"{NODES}/{node['metadata']['name']}", {"spec": {"taints": taints}})
    return created


def create_pod(client: Client, pod: Json) -> Json:
    """Create a Pod, its Namespace too if there is none, and its status if it has one."""
    namespace = pod["metadata"].get("namespace", "default")
    ensure_namespace(client, namespace)
    created = client.post(f"{NAMESPACES}/{namespace}/pods", pod)
    if pod.get("status"):
        created = client.patch(f"{pod_path(created)}/status", {"status": pod["status"]})
    return created


def ensure_namespace(client: Client, name: str, labels: Mapping[str, str] | None = None) -> None:
    """Create a Namespace unless it is there."""
    metadata = {"name": name, "labels": dict(labels or {})}
    try:
        client.get(f"{NAMESPACES}/{name}")
    except NotFoundError:
        client.post(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def bind(client: Client, pod: Json, node: str) -> None:
    """Bind an unbound Pod to a Node, as a scheduler does."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}, "target": target}
    client.post(f"{pod_path(pod)}/binding", binding)


def set_phase(client: Client, pod: Json, phase: str) -> Json:
    """Say of a Pod what a kubelet would: Running, Succeeded, Failed."""
    return client.patch(f"{pod_path(pod)}/status", {"status": {"phase": phase}})


def wait_until_placed(client: Client, pod: Json) -> str:
    """Wait until the scheduler has bound the Pod, and return its Node's name.

    Raises:
        TimeoutError: it was not bound.
    """
    path = pod_path(pod)
    name: str = wait_for(lambda: client.get(path)["spec"].get("nodeName"), f"{path} to be bound")
    return name


def wait_until_refused(client: Client, pod: Json) -> str:
    """Wait until the scheduler says that it finds no Node for the Pod, and return its message.

    Raises:
        TimeoutError: it did not say so, or bound the Pod.
    """
    path = pod_path(pod)

    def refusal() -> str | None:
        for condition in client.get(path)["status"].get("conditions", []):
            if (condition["type"], condition.get("reason")) == ("PodScheduled", "Unschedulable"):
                message: str = condition["message"]
                return message
        return None

    return wait_for(refusal, f"{path} to be refused")


def pod_path(pod: Json) -> str:
    """Where a Pod is on the API."""
    metadata = pod["metadata"]
    return f"{NAMESPACES}/{metadata.get('namespace', 'default')}/pods/{metadata['name']}"


def _quantities(resources: Mapping[str, str | int]) -> dict[str, str]:
    return {resource: str(quantity) for resource, quantity in resources.items()}
