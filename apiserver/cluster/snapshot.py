"""Snapshot files: what kubectl printed, read back.

`kubectl get gpuclasses.cozystack.io,nodes,pods,namespaces,resourcequotas -A -o yaml` makes one; JSON and several
documents are taken as well. Without the last two kinds there are no tenants.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import yaml

from apiserver.cluster.dra import DeviceClassObject, mapped_names
from apiserver.cluster.kubevirt import KubeVirtObject, permitted_names
from apiserver.cluster.loads import Load, PodKey
from apiserver.cluster.namespaces import NamespaceObject, Quota, QuotaObject, to_namespace, to_quota
from apiserver.cluster.objects import NodeObject, PodObject, to_load, to_node, to_pod
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.gpu.classes import GPUClass, parse_class
from apiserver.gpu.nodes import Node
from apiserver.gpu.offers import Permits
from apiserver.gpu.pods import Pod
from apiserver.gpu.tenants import Namespace


class SnapshotError(ValueError):
    """The text is no snapshot; the message says where and why."""


@dataclass(slots=True)
class Snapshot:
    """The objects of one dump.

    Attributes:
        classes: the stored GPUClasses.
        nodes: the nodes.
        pods: the pods that hold or wait for devices.
        loads: what else every bound pod takes from its node.
        kubevirts: installations of KubeVirt.
        device_classes: DeviceClasses of DRA.
        namespaces: the namespaces.
        quotas: the ResourceQuotas that limit devices.
        skipped: how many objects of each kind are of no use here.
        rejected: objects of a useful kind that could not be read, each with the reason.
    """

    classes: list[GPUClass] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    loads: list[tuple[PodKey, Load]] = field(default_factory=list)
    kubevirts: list[KubeVirtObject] = field(default_factory=list)
    device_classes: list[DeviceClassObject] = field(default_factory=list)
    namespaces: list[Namespace] = field(default_factory=list)
    quotas: list[Quota] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    rejected: list[str] = field(default_factory=list)

    def fill(self, view: View, tenancy: Tenancy | None = None, *, kubevirt: bool = False) -> None:
        """Make the view hold exactly these objects; a kind that the dump lacks is not checked.

        Args:
            view: what is told.
            tenancy: what is told of namespaces and budgets, if anybody asks for them.
            kubevirt: whether KubeVirt's table decides what is permitted.
        """
        if tenancy is not None:
            tenancy.replace_quotas(self.quotas)
            tenancy.replace_namespaces(self.namespaces)
        view.set_permits(Permits(permitted_names(self.kubevirts) if kubevirt else None))
        view.set_mapped(mapped_names(self.device_classes))
        view.replace_classes(self.classes)
        view.replace_nodes(self.nodes)
        view.replace_pods(self.pods)
        view.loads.replace(self.loads)


def parse_snapshot(text: str) -> Snapshot:
    """Read a dump: JSON or YAML, one document or many, Lists or single objects.

    Raises:
        SnapshotError: it is neither JSON nor YAML, or a document is not a Kubernetes object.
    """
    snapshot = Snapshot()
    for document in _documents(text):
        for item in _items(document):
            _take(item, snapshot)
    return snapshot


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc] # the C loader is optional
    """YAML as Kubernetes means it: times stay strings."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _documents(text: str) -> Iterator[Any]:
    if text.lstrip().startswith("{"):
        try:
            yield from _json_documents(text)
        except (ValueError, RecursionError) as error:  # also a number of too many digits, or nesting too deep
            raise SnapshotError(f"not JSON: {error}") from error
        return
    try:
        yield from yaml.load_all(text, Loader=_Loader)  # derived from the safe loader
    except Exception as error:  # PyYAML raises whatever its constructors do, AttributeError for a bad time
        raise SnapshotError(f"not YAML: {error}") from error


def _json_documents(text: str) -> Iterator[Any]:
    """One JSON value after another, as several kubectl calls leave them in one stream."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        document, at = decoder.raw_decode(text, at)
        yield document
        at += len(text[at:]) - len(text[at:].lstrip())


def _items(document: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 # whatever a parser gave
    if document is None:
        return  # an empty document between two separators
    if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
        raise SnapshotError("a document is not a Kubernetes object: it has no kind")
    kind = document["kind"]
    if not (kind == "List" or (kind.endswith("List") and "items" in document)):
        yield document
        return
    for item in document.get("items") or ():
        if not isinstance(item, Mapping):
            raise SnapshotError(f"an item of a {kind} is not an object")
        # The items of a typed list, such as a NodeList, may leave out what the list already says.
        yield {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List"), **item}


def _take(item: Mapping[str, Any], snapshot: Snapshot) -> None:
    group, kind = str(item.get("apiVersion")).rpartition("/")[0], str(item.get("kind"))
    try:
        match (group, kind):
            case ("", "Node"):
                node = to_node(msgspec.convert(item, NodeObject))
                _require_text(node)
                snapshot.nodes.append(node)
            case ("", "Pod"):
                _take_pod(msgspec.convert(item, PodObject), snapshot)
            case ("cozystack.io", "GPUClass"):
                snapshot.classes.append(_writable(parse_class(item)))
            case ("", "Namespace"):
                namespace = to_namespace(msgspec.convert(item, NamespaceObject))
                _require_text(namespace.name, namespace.uid, namespace.creation_timestamp)
                snapshot.namespaces.append(namespace)
            case ("", "ResourceQuota"):
                quota = to_quota(msgspec.convert(item, QuotaObject))
                if quota is not None:
                    _require_text(quota.name)
                    snapshot.quotas.append(quota)
            case ("kubevirt.io", "KubeVirt"):
                snapshot.kubevirts.append(msgspec.convert(item, KubeVirtObject))
            case ("resource.k8s.io", "DeviceClass"):
                snapshot.device_classes.append(msgspec.convert(item, DeviceClassObject))
            case _:
                snapshot.skipped[kind] += 1
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        metadata = item.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        snapshot.rejected.append(f"{kind} {name}: {error}")


def _take_pod(raw: PodObject, snapshot: Snapshot) -> None:
    pod, load = to_pod(raw), to_load(raw)
    _require_text(raw.metadata.namespace, raw.metadata.name)
    if pod is not None:
        snapshot.pods.append(pod)
    if load is not None:
        snapshot.loads.append(((raw.metadata.namespace, raw.metadata.name), load))


def _writable(gpu_class: GPUClass) -> GPUClass:
    """The class, known to survive the way back to JSON, which text with lone surrogates does not.

    Raises:
        ValueError: it does not.
    """
    _require_text(gpu_class.metadata, gpu_class.spec, gpu_class.owned_resource_name, gpu_class.violations)
    return gpu_class


def _require_text(*values: object) -> None:
    """Raise unless all of it can be written as JSON.

    Raises:
        ValueError: it cannot.
    """
    msgspec.json.encode(values)
