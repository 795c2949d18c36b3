"""Resources that have nothing to do with GPUs, declared through the public API of `apiserver.serving` alone."""

import asyncio
import json
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import aiohttp
import pytest
from aiohttp.pytest_plugin import AiohttpClient

from apiserver.serving import history
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.resources import Document, GroupVersion, Parameters, Resource, Subresource
from apiserver.serving.server import make_app
from apiserver.serving.store import ResourceStore
from apiserver.serving.tables import Column, Layout
from apiserver.serving.versions import VersionSource
from tests.http.apps import AppServer, Client

Json = dict[str, Any]

BASE = "/apis/toys.example.com/v1"
BOXES, CARS = f"{BASE}/boxes", f"{BASE}/cars"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


def _name(item: Mapping[str, Any], _: datetime) -> str:
    return str(item["metadata"]["name"])


NAMES = Layout((Column("Name", _name, "Name.", format="name"),))


class Toys:
    """Cars in namespaces, and boxes at the cluster scope, each with its `lid`."""

    def __init__(self) -> None:
        versions = VersionSource(time.time)
        self.cars = ResourceStore(versions, lambda _: None)
        self.boxes = ResourceStore(versions, lambda _: None)
        lid = Subresource("lid", "Lid", NAMES, self._lid)
        self.served = GroupVersion(
            "toys.example.com",
            "v1",
            (
                Resource("boxes", "box", "Box", False, self.boxes, NAMES, subresources=(lid,)),
                Resource("cars", "car", "Car", True, self.cars, NAMES, short_names=("c",), categories=("toys",)),
            ),
        )

    def put_car(self, namespace: str, name: str, *, uid: str = "u", fill: str = "", **labels: str) -> None:
        """Put a car into its namespace."""
        metadata = {"name": name, "namespace": namespace, "uid": uid, "labels": labels}
        content = {"apiVersion": "toys.example.com/v1", "kind": "Car", "metadata": metadata, "fill": fill}
        self.cars.put((namespace, name), content)

    def put_box(self, name: str) -> None:
        """Put a box."""
        content = {"apiVersion": "toys.example.com/v1", "kind": "Box", "metadata": {"name": name}}
        self.boxes.put(("", name), content)

    async def _lid(self, namespace: str, name: str, _: Parameters) -> Document | None:
        box = self.boxes.get((namespace, name))
        return None if box is None else Document({**box.object, "kind": "Lid"})


@pytest.fixture
def toys() -> Toys:
    """Three cars in two namespaces, and a box."""
    made = Toys()
    made.put_car("a", "one", colour="red", wheels="4")
    made.put_car("a", "two", colour="blue", wheels="6")
    made.put_car("b", "one")
    made.put_box("big")
    return made


@pytest.fixture
async def client(toys: Toys, aiohttp_client: AiohttpClient) -> Client:
    """A client of a server of toys."""
    app = make_app(Handlers(toys.served, Health(), "1.2.3"), [])
    return await aiohttp_client(AppServer(app))


async def get(client: Client, path: str, accept: str = "application/json", status: int = 200) -> Json:
    """The JSON of an answer."""
    async with client.get(path, headers={"Accept": accept}) as response:
        assert response.status == status, await response.text()
        answer: Json = await response.json(content_type=None)
        return answer


async def next_event(response: aiohttp.ClientResponse) -> tuple[str, Json]:
    """The next event of a watch."""
    async with asyncio.timeout(20):
        event = json.loads(await response.content.readline())
    return event["type"], event["object"]


def keys(answer: Json) -> list[tuple[str, str]]:
    """Namespace and name of each item."""
    return [(each["metadata"].get("namespace", ""), each["metadata"]["name"]) for each in answer["items"]]


async def test_discovery(client: Client) -> None:
    """Scope, names, verbs and subresources are as declared, in both forms of discovery."""
    entries = {each["name"]: each for each in (await get(client, BASE))["resources"]}
    assert list(entries) == ["boxes", "boxes/lid", "cars"]
    assert (entries["cars"]["namespaced"], entries["boxes"]["namespaced"]) == (True, False)
    assert (entries["cars"]["shortNames"], entries["cars"]["categories"]) == (["c"], ["toys"])
    assert "shortNames" not in entries["boxes"]
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    (group,) = (await get(client, "/apis", accept))["items"]
    scopes = {each["resource"]: each["scope"] for each in group["versions"][0]["resources"]}
    assert scopes == {"boxes": "Cluster", "cars": "Namespaced"}


async def test_scopes(client: Client) -> None:
    """Cars are found in their namespace and across all; boxes only at the cluster scope, and so their lids."""
    assert keys(await get(client, CARS)) == [("a", "one"), ("a", "two"), ("b", "one")]
    assert keys(await get(client, f"{BASE}/namespaces/b/cars")) == [("b", "one")]
    assert keys(await get(client, f"{BASE}/namespaces/none/cars")) == []
    car = await get(client, f"{BASE}/namespaces/b/cars/one")
    assert (car["kind"], car["metadata"]["namespace"]) == ("Car", "b")
    await get(client, f"{BASE}/namespaces/b/cars/two", status=404)
    await get(client, f"{BASE}/namespaces/b/boxes", status=404)
    assert (await get(client, f"{BOXES}/big/lid"))["kind"] == "Lid"
    await get(client, f"{BOXES}/small/lid", status=404)
    await get(client, f"{BASE}/namespaces/b/cars/one/lid", status=404)


async def test_a_name_needs_its_namespace(client: Client) -> None:
    """A namespaced object cannot be asked for by its name alone."""
    await get(client, f"{CARS}/one", status=404)


async def test_tables(client: Client) -> None:
    """Each row carries metadata, from which kubectl takes the NAMESPACE column."""
    table = await get(client, CARS, TABLE)
    assert [row["object"]["metadata"]["namespace"] for row in table["rows"]] == ["a", "a", "b"]
    old = await get(client, CARS, TABLE.replace("v=v1", "v=v1beta1"))
    assert {old["apiVersion"], *(row["object"]["apiVersion"] for row in old["rows"])} == {"meta.k8s.io/v1beta1"}


async def test_metadata_alone(client: Client) -> None:
    """The controllers' Accept, protobuf first, gets metadata as JSON."""
    accept = f"application/vnd.kubernetes.protobuf;{METADATA},application/json;{METADATA},application/json"
    listing = await get(client, CARS, accept)
    assert (listing["kind"], len(listing["items"])) == ("PartialObjectMetadataList", 3)
    assert set(listing["items"][0]) == {"kind", "apiVersion", "metadata"}


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"labelSelector": "colour=red"}, 1),
        ({"labelSelector": "colour!=red"}, 2),
        ({"labelSelector": "colour in (red,blue)"}, 2),
        ({"labelSelector": "colour notin (red)"}, 2),
        ({"labelSelector": "colour"}, 2),
        ({"labelSelector": "!colour"}, 1),
        ({"labelSelector": "wheels>4"}, 1),
        ({"labelSelector": "wheels<5,colour==red"}, 1),
        ({"fieldSelector": "metadata.namespace=a"}, 2),
        ({"fieldSelector": "metadata.namespace!=a"}, 1),
        ({"fieldSelector": "metadata.name=one,metadata.namespace==b"}, 1),
    ],
)
async def test_selectors(client: Client, query: dict[str, str], count: int) -> None:
    """Every operator selects what it says."""
    async with client.get(CARS, params=query) as response:
        assert len((await response.json())["items"]) == count


async def test_pages(client: Client) -> None:
    """Pages go over namespaces, each object once, all at the version of the first."""
    found, versions, token = [], set(), ""
    for _ in range(3):
        page = await get(client, f"{CARS}?limit=1&continue={token}")
        found += keys(page)
        versions.add(page["metadata"]["resourceVersion"])
        token = page["metadata"].get("continue", "")
    assert (found, len(versions), token) == ([("a", "one"), ("a", "two"), ("b", "one")], 1, "")


async def test_watch_of_a_namespace(client: Client, toys: Toys) -> None:
    """A watch tells of its namespace and selection alone; made again is DELETED and ADDED, leaving is DELETED."""
    version = (await get(client, CARS))["metadata"]["resourceVersion"]
    query = {"watch": "1", "resourceVersion": version, "labelSelector": "colour"}
    async with client.get(f"{BASE}/namespaces/a/cars", params=query) as response:
        toys.put_car("b", "other", colour="red")
        toys.put_car("a", "one", uid="again", colour="red")
        toys.put_car("a", "two")
        told = [await next_event(response) for _ in range(3)]
    assert [(kind, each["metadata"]["name"]) for kind, each in told] == [
        ("DELETED", "one"),
        ("ADDED", "one"),
        ("DELETED", "two"),
    ]


async def test_initial_events(client: Client) -> None:
    """The initial events end with a bookmark of the kind."""
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    async with client.get(f"{BOXES}?{query}") as response:
        (added, _), (mark, end) = await next_event(response), await next_event(response)
    assert (added, mark, end["kind"]) == ("ADDED", "BOOKMARK", "Box")
    assert end["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_too_old(client: Client) -> None:
    """A version from before the server is one ERROR event 410."""
    async with client.get(f"{CARS}?watch=1&resourceVersion=1") as response:
        kind, status = await next_event(response)
        assert (response.status, kind, status["code"]) == (200, "ERROR", 410)
        assert await response.content.read() == b""


@pytest.mark.parametrize("protocols", [(), ("base64.binary.k8s.io",)])
async def test_websocket(client: Client, toys: Toys, protocols: tuple[str, ...]) -> None:
    """A WebSocket of one namespace gets its events, with Headlamp's subprotocol and without one."""
    async with client.ws_connect(f"{BASE}/namespaces/b/cars?watch=1", protocols=protocols) as socket:
        assert (await socket.receive_json(timeout=20))["type"] == "ADDED"
        toys.put_car("a", "one", colour="green")
        toys.put_car("b", "one", colour="green")
        event = await socket.receive_json(timeout=20)
    assert (event["type"], event["object"]["metadata"]["namespace"]) == ("MODIFIED", "b")


async def test_a_slow_watcher(client: Client, toys: Toys, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who does not read falls out of what is remembered and is closed; who reads gets every event meanwhile."""
    monkeypatch.setattr(history, "KEEP_CHANGES", 20)
    version = (await get(client, CARS))["metadata"]["resourceVersion"]
    path = f"{BASE}/namespaces/a/cars?watch=1&resourceVersion={version}"
    async with client.get(path, read_bufsize=1024) as slow, client.get(path, read_bufsize=2**22) as quick:
        for number in range(100):
            toys.put_car("a", "one", fill=f"{number}" * 200_000)
            kind, car = await next_event(quick)
            assert (kind, car["fill"][:2]) == ("MODIFIED", f"{number}"[:1] * 2 if number < 10 else f"{number}")
        assert len(toys.cars.history.remembered()) <= 20
        async with asyncio.timeout(30):
            received = await slow.content.read()
    assert received.count(b"\n") < 100


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"])
@pytest.mark.parametrize("path", [BASE, BOXES, f"{BOXES}/big", f"{BOXES}/big/lid", f"{BASE}/namespaces/a/cars/one"])
async def test_nothing_can_be_written(client: Client, method: str, path: str) -> None:
    """Every other method is 405, on every path, without an Allow header."""
    async with client.request(method, path) as response:
        assert response.status == 405
        assert "Allow" not in response.headers
