"""A Kubernetes API server that replays a large cluster: pages of Nodes and Pods, and watches with bookmarks alone.

Run as `python -m tests.bench.replay PORT NODES GPU_NODES PODS CLASSES`. Plain HTTP on loopback. One page of Pods is
made at the start; the others are it with the number of the page in the names.
"""

import asyncio
import sys
import time
from typing import Final

import orjson
from aiohttp import web

from tests.bench.objects import class_object, node_object, pod_object

VERSION: Final = "1000000"
PAGE: Final = 500
GPU_POD_EVERY: Final = 50
BOOKMARK_SECONDS: Final = 5
CLASSES_PATH: Final = "/apis/cozystack.io/v1alpha1/gpuclasses"
NODES_PATH: Final = "/api/v1/nodes"
PODS_PATH: Final = "/api/v1/pods"
EMPTY_PATHS: Final = ("/api/v1/namespaces", "/api/v1/resourcequotas")
FIRST_PATH: Final = "/first"
MARK: Final = "@@@@"


class Replay:
    """What is replayed.

    Args:
        nodes: how many Nodes.
        gpu_nodes: how many of them have GPUs.
        pods: how many Pods; a multiple of 500.
        classes: how many GPUClasses.
    """

    def __init__(self, nodes: int, gpu_nodes: int, pods: int, classes: int) -> None:
        self._nodes = [orjson.dumps(node_object(index, gpu=index < gpu_nodes)) for index in range(nodes)]
        self._classes = [orjson.dumps(class_object(index)) for index in range(classes)]
        self._pod_pages = pods // PAGE
        self._pods = b",".join(
            orjson.dumps(
                pod_object(f"pod-{MARK}-{index}", index % gpu_nodes, version=1, gpu=index % GPU_POD_EVERY == 0)
            )
            for index in range(PAGE)
        )
        self._first: float | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        if request.path == FIRST_PATH:
            return web.json_response(self._first)
        if request.path not in (CLASSES_PATH, NODES_PATH, PODS_PATH, *EMPTY_PATHS):
            return web.Response(status=404)
        if "watch" in request.query:
            return await self._watch(request)
        if request.path == NODES_PATH and self._first is None:
            self._first = time.time()
        if request.path in EMPTY_PATHS or request.query.get("limit") == "1":  # the latter asks how new the cluster is
            return _list(b"", "")
        number = int(request.query.get("continue", "0"))
        if request.path == PODS_PATH:
            items, pages = self._pods.replace(MARK.encode(), b"%04d" % number), self._pod_pages
        else:
            whole = self._nodes if request.path == NODES_PATH else self._classes
            items = b",".join(whole[number * PAGE : (number + 1) * PAGE])
            pages = -(-len(whole) // PAGE)
        return _list(items, str(number + 1) if number + 1 < pages else "")

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        bookmark = orjson.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": VERSION}}}) + b"\n"
        while True:
            await response.write(bookmark)
            await asyncio.sleep(BOOKMARK_SECONDS)


def _list(items: bytes, more: str) -> web.Response:
    metadata = orjson.dumps({"resourceVersion": VERSION, "continue": more})
    return web.Response(
        body=b'{"metadata":' + metadata + b',"items":[' + items + b"]}", content_type="application/json"
    )


def main() -> None:
    """Serve until killed."""
    port, *counts = map(int, sys.argv[1:])
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", Replay(*counts).answer)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None)


if __name__ == "__main__":
    main()
