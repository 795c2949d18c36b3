"""What measuring costs in time of the processor: microseconds for each request, milliseconds for each scrape."""

import asyncio
import time
from types import SimpleNamespace
from typing import cast

from aiohttp.test_utils import make_mocked_request

from apiserver.catalog.install import install
from apiserver.cluster.view import View
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.nodes import Node
from apiserver.measured import Measured
from apiserver.serving.answers import Answer
from apiserver.serving.filters import Filter, Handler, measuring
from apiserver.serving.limits import Inflight
from apiserver.serving.request_info import read_request
from apiserver.serving.requests import Request, Response
from apiserver.serving.versions import VersionSource

LIST = "/apis/catalog.cozystack.io/v1alpha1/gpuclasses"
ROUNDS, REQUESTS = 7, 50_000


def measured(*, classes: int, nodes: int) -> Measured:
    """A server of so many classes, each with a resource name of its own."""
    view = View()
    for number in range(classes):
        view.apply_class(GPUClass(f"class-{number}", resource_name=f"example.com/{number}"))
    for number in range(nodes):
        devices = {f"example.com/{number % classes}": 8}
        view.apply_node(Node(f"node-{number}", capacity=devices, allocatable=devices))
    return Measured(install(view, VersionSource(time.time), lambda: None), Inflight(), view)


async def microseconds(path: str, middleware: Filter) -> float:
    """For one request, at the best of some rounds."""
    transport = SimpleNamespace(is_closing=lambda: False, get_extra_info=lambda *_: None)
    protocol = SimpleNamespace(transport=transport, ssl_context=None, peername=None, sockname=None)
    request = cast("Request", make_mocked_request("GET", path, transport=transport, protocol=protocol))
    request.info = read_request("GET", request.path, request.query)
    request.begun = request.terminated = None
    response = Answer(body=bytes(3000))

    async def answer(_: Request) -> Response:
        return response

    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(REQUESTS):
            await middleware(answer, request)
        best = min(best, time.process_time() - began)
    return best / REQUESTS * 1e6


async def nothing(handler: Handler, request: Request) -> Response:
    """Only hand on."""
    return await handler(request)


async def main() -> None:
    """Print the figures."""
    measure = measuring(measured(classes=3, nodes=10).traffic)
    for path in (LIST, f"{LIST}/name", "/livez", f"{LIST}/name/unknown", "/unknown"):
        print(f"{await microseconds(path, measure) - await microseconds(path, nothing):6.2f} µs  GET {path}")  # noqa: T201
    for classes, nodes in ((3, 10), (50, 1000), (1000, 5000)):
        served, best, text = measured(classes=classes, nodes=nodes), float("inf"), b""
        for _ in range(ROUNDS):
            began = time.process_time()
            text = await served.text()
            best = min(best, time.process_time() - began)
        print(f"{best * 1e3:6.1f} ms  /metrics of {classes} classes, {nodes} nodes: {len(text)} bytes")  # noqa: T201


if __name__ == "__main__":
    asyncio.run(main())
