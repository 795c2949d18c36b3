"""For how long `gpuclasses/fit` keeps the event loop from anything else, in each representation.

`python -m tests.bench.fit [NODES]`. Two clients ask without pause, as many as are answered at once, while each step of
the loop is timed: by the processor time of the loop's own thread, which a busy machine changes little, and by the
clock, which includes waiting for the writer's thread to give way, and whatever else the machine does. The longest
collections of garbage are told beside them: these hold every thread, whoever causes them.
"""

import asyncio
import gc
import sys
import time
from typing import Self

import aiohttp

from apiserver.catalog.install import install
from apiserver.cluster.view import View
from apiserver.garbage import settle
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.nodes import Compute, Node
from apiserver.serving.filters import only_loopback
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.server import listening, make_app
from apiserver.serving.versions import VersionSource

NODES = 5_000
PODS_ON_EACH = 20
ROUNDS = 10
RESOURCE = "nvidia.com/gpu"
QUERY = "devices=2&cpu=8&memory=64Gi"
ACCEPT = {
    "JSON": "application/json",
    "JSON, indented": "application/json;pretty=1",
    "Table": "application/json;as=Table;v=v1;g=meta.k8s.io",
    "YAML": "application/yaml",
}


def make_view(nodes: int) -> View:
    """So many nodes with 8 devices and 20 pods each."""
    view = View()
    view.apply_class(GPUClass("gpu", {"name": "gpu"}, resource_name=RESOURCE))
    devices = {RESOURCE: 8}
    for number in range(nodes):
        name = f"worker-{number:05}.example.internal"
        view.apply_node(Node(name, capacity=devices, allocatable=devices, compute=Compute(64_000, 2**38, 110)))
        for pod in range(PODS_ON_EACH):
            view.loads.apply(("ns", f"{number}-{pod}"), (name, 100, 2**28, False))
    return view


class Steps:
    """The length of each step of the loop in milliseconds, while it is entered."""

    def __init__(self) -> None:
        self.processor: list[float] = []
        self.clock: list[float] = []
        self.garbage: list[float] = []

    def __enter__(self) -> Self:
        self._run = run = asyncio.Handle._run  # noqa: SLF001 # where a loop makes a step

        def timed(handle: asyncio.Handle) -> None:
            clock, processor = time.perf_counter(), time.thread_time()
            run(handle)
            self.processor.append((time.thread_time() - processor) * 1000)
            self.clock.append((time.perf_counter() - clock) * 1000)

        asyncio.Handle._run = timed  # type: ignore[assignment,method-assign] # noqa: SLF001
        gc.callbacks.append(self._collecting)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign] # noqa: SLF001
        gc.callbacks.remove(self._collecting)

    def _collecting(self, phase: str, _: object) -> None:
        if phase == "start":
            self._collects_since = time.thread_time()
        else:
            self.garbage.append((time.thread_time() - self._collects_since) * 1000)


async def _ask(url: str, accept: str) -> None:
    """Ask from another process, so that only the server is on this loop."""
    script = f"for n in $(seq {ROUNDS}); do curl -s -o /dev/null -H 'Accept: {accept}' '{url}'; done"
    process = await asyncio.create_subprocess_shell(script)
    await process.wait()


async def main() -> None:
    """Print the figures."""
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    served = install(make_view(nodes), VersionSource(lambda: 1.8e9), lambda: None)
    app = make_app(Handlers(served, Health(), "0.1.0"), [only_loopback])
    # As a server on a cluster does.
    sys.setswitchinterval(0.001)
    await settle(lambda: None)
    async with listening(app, address="127.0.0.1", port=0) as base:
        url = f"{base}/apis/catalog.cozystack.io/v1alpha1/gpuclasses/gpu/fit?{QUERY}"
        async with aiohttp.ClientSession() as session:
            answer = await (await session.get(url)).json()
        sys.stdout.write(f"{nodes} nodes, {answer['fits']} fit, {len(answer['nodes'])} nodes told\n")
        for name, accept in ACCEPT.items():
            began = time.perf_counter()
            with Steps() as steps:
                await asyncio.gather(_ask(url, accept), _ask(url, accept))
            each = (time.perf_counter() - began) / ROUNDS * 1000
            processor, clock, garbage = (
                ", ".join(f"{step:.1f}" for step in sorted(of)[-3:])
                for of in (steps.processor, steps.clock, steps.garbage)
            )
            sys.stdout.write(
                f"{name}: {each:.0f} ms for two at once; longest steps {processor} ms of processor time, "
                f"{clock} ms by the clock; garbage {garbage} ms\n"
            )


if __name__ == "__main__":
    asyncio.run(main())
