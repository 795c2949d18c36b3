"""Watches over HTTP and WebSocket."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from apiserver.gpu.classes import parse_class
from apiserver.gpu.pods import Pod
from tests.http.apps import Client
from tests.http.conftest import RESOURCE, Cluster

PATH = "/apis/catalog.cozystack.io/v1alpha1/gpuclasses"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
WATCH_LIST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}


async def next_event(response: aiohttp.ClientResponse) -> Any:  # noqa: ANN401 # JSON
    """The next line of a watch."""
    async with asyncio.timeout(60):
        return json.loads(await response.content.readline())


def bind(cluster: Cluster, name: str) -> None:
    """Bind a pod that takes one device."""
    cluster.view.apply_pod(Pod("ns", name, "n1", {RESOURCE: 1}))


async def test_watch(client: Client, cluster: Cluster) -> None:
    """A watch is one JSON object on a line for each event, and answers before the first one comes."""
    version = (await (await client.get(PATH)).json())["metadata"]["resourceVersion"]
    async with client.get(PATH, params={"watch": "1", "resourceVersion": version}) as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/json"
        assert response.headers["Transfer-Encoding"] == "chunked"
        assert len(response.headers["Audit-Id"]) == 36
        bind(cluster, "a")
        event = await next_event(response)
        assert (event["type"], event["object"]["kind"], event["object"]["status"]["free"]) == (
            "MODIFIED",
            "GPUClass",
            2,
        )
        cluster.view.delete_class("l40s")
        event = await next_event(response)
        assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "l40s")


async def test_nothing_visible_is_no_event(client: Client, cluster: Cluster) -> None:
    """A change of the cluster that changes no class wakes nobody."""
    async with client.get(PATH, params={"watch": "1", "timeoutSeconds": "1"}) as response:
        assert (await next_event(response))["type"] == "ADDED"
        cluster.view.apply_pod(Pod("ns", "unbound", "", {RESOURCE: 1}))
        assert await response.content.read() == b""


async def test_watch_list(client: Client) -> None:
    """Client-go's WatchList: all objects, and a bookmark of the same kind that says that they were all."""
    async with client.get(PATH, params={"watch": "1", **WATCH_LIST}) as response:
        added, mark = await next_event(response), await next_event(response)
    assert (added["type"], mark["type"], mark["object"]["kind"]) == ("ADDED", "BOOKMARK", "GPUClass")
    assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert int(mark["object"]["metadata"]["resourceVersion"]) >= int(added["object"]["metadata"]["resourceVersion"])


async def test_table_events(client: Client, cluster: Cluster) -> None:
    """Each event is a Table of one row, and only the first declares the columns."""
    async with client.get(
        PATH, params={"watch": "1", **WATCH_LIST, "includeObject": "None"}, headers=TABLE
    ) as response:
        added, mark = await next_event(response), await next_event(response)
        bind(cluster, "a")
        modified = await next_event(response)
    assert len(added["object"]["columnDefinitions"]) > 8
    assert (mark["object"]["columnDefinitions"], modified["object"]["columnDefinitions"]) == ([], [])
    assert modified["object"]["rows"][0]["cells"][:2] == ["l40s", 2]
    assert "object" not in modified["object"]["rows"][0]
    assert mark["object"]["rows"][0]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_metadata_events(client: Client) -> None:
    """The metadata client gets metadata."""
    accept = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
    accept += "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    async with client.get(PATH, params={"watch": "1"}, headers={"Accept": accept}) as response:
        event = await next_event(response)
    assert set(event["object"]) == {"kind", "apiVersion", "metadata"}
    assert event["object"]["kind"] == "PartialObjectMetadata"


async def test_too_old(client: Client) -> None:
    """A version that is too old is 200 with one ERROR event, and the end."""
    async with client.get(PATH, params={"watch": "1", "resourceVersion": "1"}, headers=TABLE) as response:
        event = await next_event(response)
        assert (response.status, event["type"], event["object"]["kind"]) == (200, "ERROR", "Status")
        assert event["object"]["code"] == 410
        assert await response.content.read() == b""


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"timeoutSeconds": "x"}, 400),
        ({"labelSelector": "a b"}, 400),
        ({"fieldSelector": "metadata.name===a"}, 400),
        ({"continue": "x"}, 422),
        ({"continue": "x", "resourceVersion": "0"}, 422),
        ({"fieldSelector": "spec.none=1"}, 400),
        ({"resourceVersion": "x"}, 422),
        ({"sendInitialEvents": "true"}, 422),
        ({"resourceVersion": "9007199254740991"}, 504),
    ],
)
async def test_refused(client: Client, query: dict[str, str], code: int) -> None:
    """What cannot begin is refused with a code, not within a stream."""
    response = await client.get(PATH, params={"watch": "1", **query})
    assert (response.status, (await response.json())["code"]) == (code, code)


async def test_yaml_is_refused(client: Client) -> None:
    """A watch comes in JSON only."""
    response = await client.get(PATH, params={"watch": "1"}, headers={"Accept": "application/yaml"})
    assert response.status == 406


async def test_unsynced(client: Client, cluster: Cluster) -> None:
    """Until the first sync a watch is 503, never an empty stream."""
    cluster.unsynced = "pods"
    assert (await client.get(PATH, params={"watch": "1"})).status == 503


async def test_no_true_answer_any_more(client: Client, cluster: Cluster) -> None:
    """A watch under way ends cleanly when no true answer can be given any more; the next one is 503."""
    query = {"watch": "1", "timeoutSeconds": "3", "allowWatchBookmarks": "1"}  # a bookmark is due after a second
    async with client.get(PATH, params=query) as response:
        await next_event(response)
        bind(cluster, "a")
        await next_event(response)
        cluster.unsynced = "out of date: pods"
        bind(cluster, "b")
        assert await response.content.read() == b""
    assert (await client.get(PATH, params={"watch": "1"})).status == 503


async def test_selectors(client: Client, cluster: Cluster) -> None:
    """Lists and watches are about the selected objects only."""

    async def count(**query: str) -> int:
        return len((await (await client.get(PATH, params=query)).json())["items"])

    assert await count(labelSelector="tier=gold") == 1
    assert await count(labelSelector="tier!=gold") == 0
    assert await count(fieldSelector="metadata.name=l40s,spec.mode=passthrough,status.offered=true") == 1
    assert await count(fieldSelector="spec.vendor=AMD") == 0
    query = {"watch": "1", "fieldSelector": "status.offered=false", "timeoutSeconds": "1"}
    async with client.get(PATH, params=query) as response:
        bind(cluster, "a")
        assert await response.content.read() == b""


@pytest.mark.parametrize("protocols", [(), ("base64.binary.k8s.io",)])
async def test_websocket(client: Client, cluster: Cluster, protocols: tuple[str, ...]) -> None:
    """One event to a text message; the one sub-protocol that was asked for is agreed to."""
    async with client.ws_connect(f"{PATH}?watch=1", protocols=protocols) as socket:
        assert socket.protocol == (protocols[0] if protocols else None)
        assert (await socket.receive_json(timeout=60))["type"] == "ADDED"
        bind(cluster, "a")
        assert (await socket.receive_json(timeout=60))["object"]["status"]["free"] == 2


async def test_websocket_ends(client: Client) -> None:
    """A WebSocket ends with its time as a watch does."""
    async with client.ws_connect(f"{PATH}?watch=1&timeoutSeconds=1") as socket:
        await socket.receive_json(timeout=60)
        assert (await socket.receive(timeout=60)).type is aiohttp.WSMsgType.CLOSE


async def test_websocket_of_another_page(client: Client) -> None:
    """A page of another origin may not open a WebSocket to a server without authentication."""
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await client.ws_connect(f"{PATH}?watch=1", origin="http://evil.example.com")
    assert refused.value.status == 403
    own = str(client.make_url("")).rstrip("/")
    async with client.ws_connect(f"{PATH}?watch=1", origin=own) as socket:
        await socket.receive_json(timeout=60)


async def test_came_and_went_unread(client: Client, cluster: Cluster) -> None:
    """A class that came and went while nobody read here is DELETED for who saw it at another replica."""
    version = int((await (await client.get(PATH)).json())["metadata"]["resourceVersion"])
    passing = {"metadata": {"name": "passing", "uid": "u-2"}, "spec": {}}
    cluster.view.apply_class(parse_class(passing))
    cluster.view.delete_class("passing")
    cluster.now += 10
    later = version + (5 * 16_000 << 10)  # 5 s, by which no replica's clock is ahead
    foreign = {"watch": "1", "resourceVersion": str(later), "timeoutSeconds": "1"}
    async with client.get(PATH, params=foreign) as response:
        events = [await next_event(response) for _ in range(2)]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "l40s"),
        ("DELETED", "passing"),
    ]
    assert events[1]["object"]["metadata"]["uid"] == "u-2"


async def test_who_leaves_is_forgotten(client: Client, cluster: Cluster) -> None:
    """A client that goes away leaves nothing behind, though nothing happens that could be told to it."""
    for _ in range(3):
        response = await client.get(PATH, params={"watch": "1"})
        await next_event(response)
        assert cluster.watchers() > 0
        response.close()
    async with client.ws_connect(f"{PATH}?watch=1") as socket:
        await socket.receive_json(timeout=60)
    async with asyncio.timeout(60):
        while cluster.watchers():  # noqa: ASYNC110 # a number, not an event
            await asyncio.sleep(0.01)


async def test_shutdown_ends_watches(client: Client) -> None:
    """When the server ends, so do the watches: cleanly, not by a broken connection."""
    async with client.get(PATH, params={"watch": "1"}) as response:
        await next_event(response)
        closing = asyncio.create_task(client.server.close())
        assert await response.content.read() == b""
        assert response.content.exception() is None
    await closing
