"""The writer: changes Nodes, Pods and classes at a steady pace, and notes what came of each request and when.

The figures grow in steps of random size, so that the same ones hardly ever come twice: an old answer cannot pass for a
new one.
"""

import contextlib
import functools
import http.client
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

from tests.cluster.client import ApiError, Client, Json
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.workload import NODES, STORED, create_node, gpu_class, node, pod
from tests.faults.figures import whole
from tests.faults.history import Written

PODS: Final = "/api/v1/namespaces/default/pods"
PATHS: Final = {"nodes": NODES, "pods": PODS, "gpuclasses": STORED}
RESOURCES: Final = tuple(f"vendor.example/card-{letter}" for letter in "abcd")
PAUSE_SECONDS: Final = 0.2
TIMEOUT_SECONDS: Final = 5
MOST_PODS: Final = 40
NOT_ANSWERED: Final = (OSError, http.client.HTTPException, ApiError)


class Writer:
    """Writes in a thread of its own for as long as a `with` block lasts.

    Attributes:
        written: what was answered with success, in order.
        failed: requests that were not.
        refused: of those, what was said, for the report.
    """

    def __init__(self, control_plane: ControlPlane, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311 # no secret
        certificate = control_plane.authority.client(ADMIN, ADMIN_GROUPS)
        self._client = Client(
            control_plane.port,
            authority=control_plane.authority.certificate,
            certificate=certificate,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        self.written: list[Written] = []
        self.failed = 0
        self._known: dict[str, dict[str, Json]] = {kind: {} for kind in PATHS}
        self._number = 0
        self._is_unsure = False
        self._unsure_since = 0.0
        self._keeps_classes = False
        self._busy = threading.Lock()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._put_on_stage()
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.set()
        self._thread.join(10 * TIMEOUT_SECONDS)
        self._client.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """While the block lasts nothing is written."""
        with self._busy:
            yield

    @contextmanager
    def keeping_classes(self) -> Iterator[None]:
        """While the block lasts no class comes or goes; all else changes on."""
        with self._busy:
            self._keeps_classes = True
        try:
            yield
        finally:
            self._keeps_classes = False

    def wait_for_writes(self, since: float, *, timeout_seconds: float = 60) -> None:
        """Wait until Nodes and Pods have been changed by requests that were sent after a time."""

        def is_done() -> bool:
            recent = {each.kind for each in self.written[-30:] if each.asked >= since}
            return recent >= {"nodes", "pods"}

        wait_for(is_done, "the cluster to be changed", timeout_seconds=timeout_seconds)

    @property
    def latest_version(self) -> int:
        """The latest version that was confirmed."""
        return int(max((each.version for each in self.written), default=0))

    def _put_on_stage(self) -> None:
        for number in range(6):
            capacity = {resource: self._chance.randrange(500, 2000) for resource in RESOURCES[:3]}
            wanted = node(f"gpu-{number}", capacity=capacity)
            self._note("nodes", f"gpu-{number}", functools.partial(create_node, self._client, wanted))
        for letter, resource in zip("abc", RESOURCES[:3], strict=True):
            self._create_class(f"card-{letter}", resource)

    def _run(self) -> None:
        step = 0
        while not self._ending.wait(PAUSE_SECONDS):
            with self._busy:
                asked = time.time()
                try:
                    if self._is_unsure:
                        self._read_again()
                    self._step(step)
                except NOT_ANSWERED:
                    self.failed += 1
                    self._unsure_since = self._unsure_since if self._is_unsure else asked
                    self._is_unsure = True
            step += 1

    def _step(self, step: int) -> None:
        if step % 25 == 24 and not self._keeps_classes:  # now and then
            self._change_class()
        elif step % 2:
            self._change_node()
        else:
            self._change_pod()

    def _change_node(self) -> None:
        name = self._chance.choice(sorted(self._known["nodes"]))
        known = self._known["nodes"][name]
        path = f"{NODES}/{name}"
        if self._chance.random() < 0.2:  # one in five
            cordon = {"spec": {"unschedulable": not known["spec"].get("unschedulable", False)}}
            self._note("nodes", name, lambda: self._client.patch(path, cordon))
            return
        resource = self._chance.choice(RESOURCES[:3])
        capacity = whole(known["status"]["capacity"][resource]) + self._chance.randrange(1, 9)
        allocatable = max(0, capacity - self._chance.randrange(200))
        status = {"capacity": {resource: str(capacity)}, "allocatable": {resource: str(allocatable)}}
        self._note("nodes", name, lambda: self._client.patch(f"{path}/status", {"status": status}))

    def _change_pod(self) -> None:
        pods = self._known["pods"]
        unbound = [name for name, each in pods.items() if not each["spec"].get("nodeName")]
        running = sorted(set(pods) - set(unbound))
        if unbound:
            self._bind(unbound[0])
        elif len(pods) > MOST_PODS or (running and self._chance.random() < 0.3):  # three in ten
            name = self._chance.choice(running)
            if self._chance.random() < 0.3 and pods[name]["status"].get("phase") != "Succeeded":
                ended = {"status": {"phase": "Succeeded"}}
                self._note("pods", name, lambda: self._client.patch(f"{PODS}/{name}/status", ended))
            else:
                self._delete("pods", name)
        else:
            self._create_pod()

    def _create_pod(self) -> None:
        self._number += 1
        asks = {self._chance.choice(RESOURCES[:3]): self._chance.randrange(1, 130)}
        bound = self._chance.choice(sorted(self._known["nodes"])) if self._chance.random() < 0.5 else None
        wanted = pod(f"vm-{self._number}", node=bound, requests=asks)
        self._note("pods", f"vm-{self._number}", lambda: self._client.post(PODS, wanted))

    def _bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": self._chance.choice(sorted(self._known["nodes"]))}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}

        def bind() -> Json:
            self._client.post(f"{PODS}/{name}/binding", binding)
            return self._client.get(f"{PODS}/{name}")  # the answer to a binding does not tell the Pod's version

        self._note("pods", name, bind)

    def _change_class(self) -> None:
        passing = [name for name in self._known["gpuclasses"] if name.startswith("passing-")]
        if passing:
            self._delete("gpuclasses", passing[0])
        else:
            self._number += 1
            self._create_class(f"passing-{self._number}", RESOURCES[3])

    def _create_class(self, name: str, resource: str) -> None:
        self._note("gpuclasses", name, lambda: self._client.post(STORED, gpu_class(name, resource)))

    def _note(self, kind: str, name: str, change: Callable[[], Json]) -> None:
        """Make a change, and note the object as it then is and the times."""
        asked = time.time()
        obj = change()
        self._remember(kind, name, obj, asked)

    def _delete(self, kind: str, name: str) -> None:
        asked, version = time.time(), self.latest_version + 0.5
        self._client.delete(f"{PATHS[kind]}/{name}")
        self._known[kind].pop(name, None)
        self.written.append(Written(kind, name, version, asked, time.time(), None))

    def _remember(self, kind: str, name: str, obj: Json, asked: float) -> None:
        self._known[kind][name] = obj
        version = float(obj["metadata"]["resourceVersion"])
        self.written.append(Written(kind, name, version, asked, time.time(), obj))

    def _read_again(self) -> None:
        """After an answer was lost: what does the cluster hold, and what of it was not noted yet?"""
        known = {
            kind: {item["metadata"]["name"]: item for item in self._client.items(path)} for kind, path in PATHS.items()
        }
        now, noted = time.time(), {(each.kind, each.name, each.version) for each in self.written}
        gone_at = self.latest_version + 0.5
        for kind, objects in known.items():
            for name, obj in objects.items():
                version = float(obj["metadata"]["resourceVersion"])
                if (kind, name, version) not in noted:
                    self.written.append(Written(kind, name, version, self._unsure_since, now, obj))
            for name in self._known[kind].keys() - objects.keys():
                self.written.append(Written(kind, name, gone_at, self._unsure_since, now, None))
        self._known = known
        self._is_unsure = False
        with contextlib.suppress(ValueError):
            self._number = max(self._number, *(int(name.rpartition("-")[2]) for name in known["pods"]))
