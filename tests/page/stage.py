"""What the page asks: a server in this process, over a view that a test changes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from apiserver.catalog.install import install
from apiserver.cluster.view import View
from apiserver.gpu.classes import parse_class
from apiserver.gpu.nodes import Node
from apiserver.gpu.pods import Pod
from apiserver.serving.filters import only_loopback
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.requests import Request, Response
from apiserver.serving.server import App, listening, make_app
from apiserver.serving.versions import VersionSource
from apiserver.ui import PATH, make_page


@dataclass
class Stage:
    """A server that a test changes, stops and starts.

    Attributes:
        view: what it knows.
        unsynced: why no data can be answered; None when it can.
        now: its time, in seconds since 1970.
        asked: the targets that were asked for.
        going: nothing is answered while it is not set.
    """

    view: View = field(default_factory=View)
    unsynced: str | None = None
    now: float = 1.8e9
    asked: list[str] = field(default_factory=list)
    going: asyncio.Event = field(default_factory=asyncio.Event)
    _port: int = 0
    _app: App | None = None
    _running: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def page(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self._port}{PATH}"

    async def start(self) -> None:
        """Listen, at the same port as before."""
        self.going.set()
        self._app = self._make_app()
        url = await self._running.enter_async_context(
            listening(App(self._answer, self._close), address="127.0.0.1", port=self._port)
        )
        self._port = int(url.rpartition(":")[2])

    async def stop(self) -> None:
        """End every watch, and listen no more."""
        await self._running.aclose()

    def replace(self) -> None:
        """Be another server from now on, which knows nothing of the versions of the one before."""
        before, self._app = self._app, self._make_app()
        if before is not None:
            before.close()

    def add_class(self, name: str, **spec: object) -> None:
        """A class, whose resource name is its own unless the spec says otherwise."""
        self.view.apply_class(parse_class(gpu_class(name, **spec)))

    def add_node(self, name: str, resource: str, devices: int, allocatable: int | None = None) -> None:
        """A node with devices."""
        allocatable = devices if allocatable is None else allocatable
        self.view.apply_node(Node(name, capacity={resource: devices}, allocatable={resource: allocatable}))

    def add_pod(self, name: str, node: str, resource: str, devices: int) -> None:
        """A pod that holds devices."""
        self.view.apply_pod(Pod("ns", name, node, {resource: devices}))

    def _make_app(self) -> App:
        served = install(self.view, VersionSource(lambda: self.now), lambda: self.unsynced)
        return make_app(Handlers(served, Health(), "0.1.0", documents={PATH: make_page()}), [only_loopback])

    async def _answer(self, request: Request) -> Response:
        self.asked.append(request.path_qs)
        await self.going.wait()
        assert self._app is not None
        return await self._app.answer(request)

    def _close(self) -> None:
        if self._app is not None:
            self._app.close()


def resource_of(name: str) -> str:
    """The resource name of a class that was added."""
    return f"example.org/{name}"


def gpu_class(name: str, **spec: object) -> dict[str, Any]:
    """A stored GPUClass."""
    metadata = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    source = {"devicePlugin": {"resourceName": resource_of(name)}}
    sold = {"vendor": "NVIDIA", "model": "L40S", "mode": "passthrough", "memory": "48Gi", "source": source}
    return {"metadata": metadata, "spec": sold | spec}


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    """A server of one class with 3 of 4 devices free on one node."""
    stage = Stage()
    stage.add_class("l40s", maxCount=2)
    stage.add_node("n1", resource_of("l40s"), 4)
    stage.add_pod("vm", "n1", resource_of("l40s"), 1)
    await stage.start()
    try:
        yield stage
    finally:
        await stage.stop()
