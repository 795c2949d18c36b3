"""`gpuclasses/fit` over HTTP: the answer, the refusals, and what a subresource may ask of the server."""

import asyncio
import json
from typing import Any

import pytest
import yaml
from aiohttp.pytest_plugin import AiohttpClient

from apiserver.catalog.install import install
from apiserver.gpu.nodes import Compute, Node
from apiserver.serving.filters import only_loopback
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.resources import Document, GroupVersion, Parameters, Resource, Subresource
from apiserver.serving.server import make_app
from apiserver.serving.store import ResourceStore
from apiserver.serving.tables import Column, Layout
from apiserver.serving.versions import VersionSource
from openapi.answers import problems
from tests.http.apps import AppServer, Client
from tests.http.conftest import RESOURCE, Cluster

FIT = "/apis/catalog.cozystack.io/v1alpha1/gpuclasses/l40s/fit"
ASKED = {"devices": "1", "cpu": "2", "memory": "4Gi"}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.fixture
def roomy(cluster: Cluster) -> Cluster:
    """The node has room for two such pods by memory, another for one by cpu; a third is not Ready."""
    devices = {RESOURCE: 4}
    for name, compute, ready in (
        ("n1", Compute(64_000, 12 * 2**30, 110), True),
        ("n2", Compute(3_000, 64 * 2**30, 110), True),
        ("n3", Compute(64_000, 64 * 2**30, 110), False),
    ):
        cluster.view.apply_node(Node(name, ready=ready, capacity=devices, allocatable=devices, compute=compute))
    cluster.view.loads.apply(("ns", "other"), ("n1", 1000, 2**30, False))
    return cluster


@pytest.mark.usefixtures("roomy")
async def test_answer(client: Client) -> None:
    """The answer repeats the question, counts, names the nodes, and is as its schema says."""
    response = await client.get(FIT, params={**ASKED, "count": "10"})
    page = await response.json()
    assert response.status == 200
    assert page["metadata"]["name"] == "l40s"
    assert page["request"] == {"devices": 1, "cpu": "2", "memory": "4Gi", "count": 10}
    assert (page["fits"], page["countReached"], page["offered"]) == (3, False, True)
    assert page["nodes"] == [{"name": "n1", "count": 2}, {"name": "n2", "count": 1}]
    document = json.loads(await (await client.get("/openapi/v3/apis/catalog.cozystack.io/v1alpha1")).read())
    assert problems(page, document) == []


@pytest.mark.usefixtures("roomy")
async def test_count(client: Client) -> None:
    """No more than the count is said to fit, and each node is told with the most it would take."""
    page = await (await client.get(FIT, params={**ASKED, "count": "2"})).json()
    assert (page["fits"], page["countReached"]) == (2, True)
    assert sum(each["count"] for each in page["nodes"]) == 3


@pytest.mark.usefixtures("roomy")
async def test_table(client: Client) -> None:
    """As a Table it has a row for each node."""
    table = await (await client.get(FIT, params=ASKED, headers={"Accept": TABLE})).json()
    assert [each["name"] for each in table["columnDefinitions"]] == ["Node", "Count"]
    assert [row["cells"] for row in table["rows"]] == [["n1", 2], ["n2", 1]]


async def test_live(client: Client, roomy: Cluster) -> None:
    """A pod that comes takes its part at once, and one that cannot be read is told of."""
    roomy.view.loads.apply(("ns", "new"), ("n2", 2000, 0, True))
    page = await (await client.get(FIT, params=ASKED)).json()
    assert page["nodes"] == [{"name": "n1", "count": 2}]
    assert "ns/new" in page["notes"][0]


@pytest.mark.parametrize(
    ("query", "fields"),
    [
        pytest.param("", ["devices", "cpu", "memory"], id="no question"),
        pytest.param("devices=1&cpu=2&memory=4GB", ["memory"], id="a wrong quantity"),
        pytest.param("devices=3&cpu=2&memory=4Gi", ["devices"], id="more than spec.maxCount"),
        pytest.param("devices=1&cpu=2&cpu=2&memory=4Gi", ["cpu"], id="given twice"),
        pytest.param("devices=1&cpu=2&memory=4Gi&watch=true&labelSelector=a", ["labelSelector", "watch"], id="unknown"),
    ],
)
async def test_bad_request(client: Client, query: str, fields: list[str]) -> None:
    """Every wrong parameter is named, in a sentence and for a program."""
    response = await client.get(f"{FIT}?{query}")
    status = await response.json()
    assert (response.status, status["kind"], status["reason"]) == (400, "Status", "BadRequest")
    assert [each["field"] for each in status["details"]["causes"]] == fields


@pytest.mark.usefixtures("roomy")
@pytest.mark.parametrize("more", [{"pretty": "true"}, {"timeout": "30s"}, {"resourceVersion": "0"}])
async def test_what_any_get_may_ask(client: Client, more: dict[str, str]) -> None:
    """What clients add to any request is no parameter of the question."""
    assert (await client.get(FIT, params={**ASKED, **more})).status == 200


async def test_not_there(client: Client, cluster: Cluster) -> None:
    """An unknown class is 404 whatever is asked, writing is 405, and before the sync it is 503."""
    assert (await client.get(FIT.replace("l40s", "none"))).status == 404
    assert (await client.post(FIT, params=ASKED)).status == 405
    cluster.unsynced = "not listed yet: pods"
    assert (await client.get(FIT, params=ASKED)).status == 503


async def test_memory_overhead(roomy: Cluster, aiohttp_client: AiohttpClient) -> None:
    """With an overhead for launchers fewer fit, and the answer says why."""
    served = install(roomy.view, VersionSource(lambda: 1.8e9), lambda: None, vm_memory_overhead=2 * 2**30)
    client = await aiohttp_client(AppServer(make_app(Handlers(served, Health(), "0.1.0"), [only_loopback])))
    page = await (await client.get(FIT, params=ASKED)).json()
    assert page["nodes"] == [{"name": "n1", "count": 1}, {"name": "n2", "count": 1}]
    assert page["request"]["memoryOverhead"] == str(2 * 2**30)


@pytest.mark.parametrize("accept", ["application/json", "application/yaml", TABLE])
async def test_many_nodes(client: Client, cluster: Cluster, accept: str) -> None:
    """An answer of many nodes is whole in every representation, and the server answers others meanwhile."""
    devices = {RESOURCE: 4}
    for number in range(1500):
        cluster.view.apply_node(
            Node(f"w{number:04}", capacity=devices, allocatable=devices, compute=Compute(8000, 2**36, 110))
        )
    large = asyncio.create_task(client.get(FIT, params=ASKED, headers={"Accept": accept}))
    assert (await client.get("/livez")).status == 200
    text = await (await large).text()
    page: Any = yaml.safe_load(text) if accept == "application/yaml" else json.loads(text)
    expected = [[f"w{number:04}", 4] for number in range(1500)]
    if accept == TABLE:
        assert [row["cells"] for row in page["rows"]] == expected
    else:
        assert [[node["name"], node["count"]] for node in page["nodes"]] == expected
        assert page["fits"] == 100


class Toy:
    """A group of toys whose part `slow` answers when it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.entered = asyncio.Semaphore(0)
        self.asked: list[Parameters] = []
        columns = Layout([Column("Name", lambda item, _: item["metadata"]["name"], "Its name.", format="name")])
        store = ResourceStore(VersionSource(lambda: 1.8e9), lambda _: None)
        slow = Subresource("slow", "Slow", columns, self.read, at_once=2)
        self.served = GroupVersion(
            "toys.io", "v1", [Resource("toys", "toy", "Toy", False, store, columns, subresources=[slow])]
        )

    async def read(self, _: str, name: str, parameters: Parameters) -> Document:
        """Wait, and answer."""
        self.asked.append(parameters)
        self.entered.release()
        await self.go.wait()
        return Document({"apiVersion": "toys.io/v1", "kind": "Slow", "metadata": {"name": name}})


SLOW = "/apis/toys.io/v1/toys/a/slow"


async def let_in(client: Client, toy: Toy) -> asyncio.Task[Any]:
    """A request that is being answered; one that is refused is tried again."""
    entered = asyncio.create_task(toy.entered.acquire())
    async with asyncio.timeout(30):
        while True:
            task = asyncio.create_task(client.get(SLOW))
            await asyncio.wait([task, entered], return_when=asyncio.FIRST_COMPLETED)
            if entered.done():
                return task


async def test_no_more_at_once(aiohttp_client: AiohttpClient) -> None:
    """Beyond so many at once a request is told when to come again; what ends, or is given up, makes room."""
    toy = Toy()
    app = make_app(Handlers(toy.served, Health(), "0.1.0"), [only_loopback])
    client = await aiohttp_client(AppServer(app))
    first, second = await let_in(client, toy), await let_in(client, toy)
    refused = await client.get(SLOW)
    status = await refused.json()
    assert (refused.status, refused.headers["Retry-After"], status["reason"]) == (429, "1", "TooManyRequests")
    assert status["details"]["retryAfterSeconds"] == 1
    first.cancel()
    third = await let_in(client, toy)
    toy.go.set()
    assert [(await each).status for each in (second, third)] == [200, 200]
    assert (await client.get(SLOW)).status == 200


async def test_parameters_as_they_were_given(aiohttp_client: AiohttpClient) -> None:
    """A subresource gets every value of its own parameters, and nothing of what any request may carry."""
    toy = Toy()
    toy.go.set()
    client = await aiohttp_client(AppServer(make_app(Handlers(toy.served, Health(), "0.1.0"), [only_loopback])))
    assert (await client.get(f"{SLOW}?a=1&a=2&pretty=0&b=&timeout=1s")).status == 200
    assert toy.asked == [{"a": ["1", "2"], "b": [""]}]
