"""What the checks share: a control plane, two replicas of the catalog behind it, and something to sell."""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.cluster.binaries import Binaries
from tests.cluster.catalog import API, ENDPOINT_SLICES, CatalogServer, Endpoint, apply_base, endpoint_slice
from tests.cluster.client import Client, Json, NotFoundError
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.cluster.network import LOOPBACK, Network, NetworkUnavailableError
from tests.cluster.waiting import wait_for
from tests.cluster.workload import STORED, create_node, create_pod, gpu_class, node, pod, pod_path
from tests.conformance.splitter import Splitter

GROUP: Final = "catalog.cozystack.io"
VERSION: Final = "v1alpha1"
PLURAL: Final = "gpuclasses"
CLASSES: Final = f"{API}/{PLURAL}"
RESOURCE: Final = f"{PLURAL}.{GROUP}"
CARD: Final = "nvidia.com/AD102GL_L40S"
VGPU: Final = "nvidia.com/NVIDIA_L40S-24C"
FREE: Final = {"l40s": 8, "l40s-24c": 2, "mi300x": 0}
"""The classes on the stage, and how many devices of each are free."""
BEGIN_SECONDS: Final = 1
SETTLE_SECONDS: Final = 5
"""For 4 s a replica takes no other's version up: it may be from before its first state."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A cluster that serves the catalog from two replicas. Each check leaves it as it found it.

    Attributes:
        control_plane: the cluster.
        replicas: both of them.
        splitter: the endpoint of the Service at first. It sends to one of them whatever comes through kube-apiserver:
            watches to the second, the rest to the first, unless a check says otherwise.
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

    def lead_to(self, *endpoints: Endpoint) -> None:
        """Have the Service lead to these endpoints; only where the replicas have addresses of their own."""
        self.client.put(ENDPOINT_SLICES, endpoint_slice(*endpoints))

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


@contextlib.contextmanager
def opened(
    binaries: Binaries, directory: Path, *, announce: Callable[[str], None], controllers: Iterable[str] = ()
) -> Iterator[Stage]:
    """A cluster with two replicas behind the splitter, and something on sale.

    Each replica has an address of its own, where network namespaces can be made. The thread that enters the block is in
    one itself: nothing from outside can be fetched there.

    Args:
        binaries: what the cluster runs.
        directory: empty or new.
        announce: told why the replicas have no addresses of their own, if they have none.
        controllers: as of `ControlPlane`.
    """
    with contextlib.ExitStack() as stack:
        network = None
        try:
            network = stack.enter_context(Network())
        except NetworkUnavailableError as reason:
            announce(f"Both replicas are on loopback, and no Service chooses between them: {reason}.")
        control_plane = stack.enter_context(ControlPlane(binaries, directory, controllers=controllers, network=network))
        client = stack.enter_context(control_plane.user_client(ADMIN, ADMIN_GROUPS))
        hosts = [LOOPBACK if network is None else network.add_host() for _ in range(2)]
        first, second = replicas = tuple(CatalogServer(control_plane, host=host) for host in hosts)
        first.install()
        for replica in replicas:
            stack.callback(replica.stop)
            replica.start()
        splitter = stack.enter_context(Splitter(control_plane, (first, second)))
        apply_base(control_plane, splitter.endpoint)
        first.wait_until_available()
        stage = Stage(control_plane, (first, second), splitter, client)
        _put_on_sale(stage)
        time.sleep(SETTLE_SECONDS)
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
