"""What the checks share: a control plane, two replicas of the catalog behind it, and something to sell."""

import contextlib
import functools
import itertools
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster.catalog import API, CatalogServer, adapt, manifests
from tests.cluster.client import Client, Json, NotFoundError
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.workload import create_node, create_pod, node, pod, pod_path
from tests.conformance.splitter import Splitter

GROUP: Final = "catalog.cozystack.io"
VERSION: Final = "v1alpha1"
PLURAL: Final = "gpuclasses"
CLASSES: Final = f"{API}/{PLURAL}"
RESOURCE: Final = f"{PLURAL}.{GROUP}"
STORED: Final = "/apis/cozystack.io/v1alpha1/gpuclasses"
CARD: Final = "nvidia.com/AD102GL_L40S"
VGPU: Final = "nvidia.com/NVIDIA_L40S-24C"
FREE: Final = {"l40s": 8, "l40s-24c": 2, "mi300x": 0}
"""The classes on the stage, and how many devices of each are free."""
BEGIN_SECONDS: Final = 1


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster that serves the catalog from two replicas. Each check leaves it as it found it.

    Attributes:
        control_plane: the cluster.
        replicas: both of them.
        splitter: sends to one of them whatever comes through kube-apiserver: watches to the second, the rest to the
            first, unless a check says otherwise.
        client: the administrator's connection.
    """

    control_plane: ControlPlane
    replicas: tuple[CatalogServer, CatalogServer]
    splitter: Splitter
    client: Client
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def scratch(self, name: str) -> Path:
        """A new directory for what a check writes."""
        directory = self.control_plane.directory / f"{name}-{next(self._numbers)}"
        directory.mkdir()
        return directory

    def wait_for_watches(self, count: int = 1) -> None:
        """Wait until so many watches have begun since `splitter.take_watches`.

        A replica whose clock is behind waits a moment before it begins a watch from another's version, and then tells
        only what came of the changes meanwhile.
        """
        wait_for(lambda: len(self.splitter.watches) >= count, f"{count} watches to reach a replica")
        time.sleep(BEGIN_SECONDS)

    def wait_for_free(self, name: str, free: int) -> None:
        """Wait until both replicas tell this figure."""
        self._wait(name, lambda item: item is not None and item["status"]["free"] == free, f"{name} to have {free}")

    def wait_for_label(self, name: str, key: str, value: str) -> None:
        """Wait until both replicas show the label of a class."""

        def has_label(item: Json | None) -> bool:
            return item is not None and item["metadata"].get("labels", {}).get(key) == value

        self._wait(name, has_label, f"the label {key}={value}")

    @contextlib.contextmanager
    def sold(self, name: str, count: int) -> Iterator[None]:
        """While the block lasts a Pod holds devices of the class l40s, and both replicas say so."""
        created = create_pod(self.client, pod(name, node="gpu-1", requests={CARD: count}))
        try:
            self.wait_for_free("l40s", FREE["l40s"] - count)
            yield
        finally:
            self.client.delete(pod_path(created))
            self.wait_for_free("l40s", FREE["l40s"])

    def add_class(self, name: str, resource: str = "example.com/none") -> None:
        """Make a class, and wait until both replicas serve it."""
        self.client.post(STORED, gpu_class(name, resource))
        self.wait_until_served(name)

    def remove_class(self, name: str) -> None:
        """Delete a class, and wait until no replica serves it; one that is gone already is fine."""
        with contextlib.suppress(NotFoundError):
            self.client.delete(f"{STORED}/{name}")
        self.wait_until_gone(name)

    def wait_until_served(self, name: str) -> None:
        """Wait until both replicas serve a class."""
        self._wait(name, lambda item: item is not None, f"{name} to be served")

    def wait_until_gone(self, name: str) -> None:
        """Wait until neither replica serves a class."""
        self._wait(name, lambda item: item is None, f"{name} to be gone")

    def _wait(self, name: str, matches: Callable[[Json | None], bool], what: str) -> None:
        for replica in self.replicas:
            with replica.client() as client:
                wait_for(functools.partial(_matches, client, name, matches), what)


def gpu_class(name: str, resource: str, **spec: object) -> Json:
    """A stored class."""
    fields = {
        "vendor": "NVIDIA",
        "model": "L40S",
        "mode": "passthrough",
        "memory": "48Gi",
        "source": {"devicePlugin": {"resourceName": resource}},
        **spec,
    }
    return {"apiVersion": "cozystack.io/v1alpha1", "kind": "GPUClass", "metadata": {"name": name}, "spec": fields}


@contextlib.contextmanager
def set_up(control_plane: ControlPlane, replicas: tuple[CatalogServer, CatalogServer]) -> Iterator[Stage]:
    """Put both replicas, which are running, behind the cluster, and put something on sale."""
    with (
        Splitter(control_plane, replicas) as splitter,
        control_plane.user_client(ADMIN, ADMIN_GROUPS) as client,
    ):
        base = adapt(manifests(control_plane, "base"), port=splitter.port, authority=splitter.authority.read_bytes())
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": base})
        control_plane.kubectl("apply", "-f", "-", stdin=listed)
        replicas[0].wait_until_available()
        stage = Stage(control_plane, replicas, splitter, client)
        _put_on_sale(stage)
        yield stage


def _put_on_sale(stage: Stage) -> None:
    client = stage.client
    create_node(client, node("gpu-1", capacity={CARD: 4}))
    create_node(client, node("gpu-2", capacity={CARD: 4, VGPU: 2}))
    gold = gpu_class("l40s", CARD, maxCount=3)
    gold["metadata"]["labels"] = {"tier": "gold"}
    client.post(STORED, gold)
    client.post(STORED, gpu_class("l40s-24c", VGPU, mode="vgpu", profile="L40S-24C", memory="24Gi"))
    client.post(STORED, gpu_class("mi300x", "amd.com/gpu", vendor="AMD", model="MI300X", memory="192Gi"))
    for name, free in FREE.items():
        stage.wait_for_free(name, free)


def _matches(client: Client, name: str, matches: Callable[[Json | None], bool]) -> bool:
    try:
        item = client.get(f"{CLASSES}/{name}")
    except NotFoundError:
        return matches(None)
    return matches(item)
