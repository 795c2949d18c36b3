"""A server of a small cluster, without authentication."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from aiohttp.pytest_plugin import AiohttpClient

from apiserver.catalog.install import install
from apiserver.cluster.view import View
from apiserver.gpu.classes import parse_class
from apiserver.gpu.nodes import Node
from apiserver.gpu.pods import Pod
from apiserver.serving.filters import only_loopback
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.server import make_app
from apiserver.serving.versions import VersionSource
from tests.http.apps import AppServer, Client

RESOURCE = "nvidia.com/AD102GL_L40S"


@dataclass
class Cluster:
    """What the server under test sees, to be changed by a test.

    Attributes:
        view: one class with 3 of 4 devices free on one node.
        health: the checks.
        unsynced: why no data can be answered; None when it can.
        watchers: how many watches the server has.
        now: kube-apiserver's time, in seconds since 1970.
    """

    view: View = field(default_factory=View)
    health: Health = field(default_factory=Health)
    unsynced: str | None = None
    watchers: Callable[[], int] = lambda: 0
    now: float = 1.8e9


@pytest.fixture
def cluster() -> Cluster:
    """One class, one node, one pod."""
    cluster = Cluster()
    spec = {
        "vendor": "NVIDIA",
        "model": "L40S",
        "mode": "passthrough",
        "memory": "48Gi",
        "source": {"devicePlugin": {"resourceName": RESOURCE}},
        "maxCount": 2,
    }
    metadata = {"name": "l40s", "uid": "u-1", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"tier": "gold"}}
    cluster.view.apply_class(parse_class({"metadata": metadata, "spec": spec}))
    cluster.view.apply_node(Node("n1", capacity={RESOURCE: 4}, allocatable={RESOURCE: 4}))
    cluster.view.apply_pod(Pod("ns", "vm", "n1", {RESOURCE: 1}))
    return cluster


@pytest.fixture
async def client(cluster: Cluster, aiohttp_client: AiohttpClient) -> Client:
    """A client of the server."""
    served = install(cluster.view, VersionSource(lambda: cluster.now), lambda: cluster.unsynced)
    cluster.watchers = lambda: served.resources[0].store.watchers
    app = make_app(Handlers(served, cluster.health, "0.1.0"), [only_loopback])
    return await aiohttp_client(AppServer(app))
