"""Headlamp: its requests over WebSocket through kube-apiserver, from the browser and from its multiplexer."""

import asyncio
import json
import ssl
from collections.abc import Sequence
from typing import Final

from aiohttp import ClientSession, ClientWebSocketResponse, TCPConnector, WSMsgType

from tests import loops
from tests.cluster.client import Json
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS
from tests.cluster.workload import STORED
from tests.conformance.checks import Check, require, require_equal
from tests.conformance.stage import CLASSES, Stage

FROM_BROWSER: Final = ("base64.binary.k8s.io",)
FROM_MULTIPLEXER: Final = ()
DISCOVERY: Final = "application/json;v=v2;g=apidiscovery.k8s.io;as=APIGroupDiscoveryList"
RECEIVE_SECONDS: Final = 15
LABEL: Final = "seen-by"
MOST_EVENTS: Final = 1000


def _context(stage: Stage) -> ssl.SSLContext:
    pair = stage.control_plane.authority.client(ADMIN, ADMIN_GROUPS)
    context = ssl.create_default_context(cafile=stage.control_plane.authority.certificate)
    context.load_cert_chain(pair.certificate, pair.key)
    return context


async def _follow(stage: Stage, collection: str, protocols: Sequence[str]) -> tuple[str | None, list[Json]]:
    """List, watch over WebSocket from there, change a label and take it away; what was agreed on, and the events."""
    url = f"{stage.control_plane.url}{collection}"
    async with ClientSession(connector=TCPConnector(ssl=_context(stage))) as session:
        async with session.get(url) as response:
            listed = await response.json()
        version = listed["metadata"]["resourceVersion"]
        require(str(int(version)) == version and int(version) < 2**53, f"parseInt spoils the version {version}")
        address = f"{url}?watch=1&resourceVersion={version}"
        origin = stage.control_plane.url
        async with session.ws_connect(address, protocols=protocols, origin=origin) as socket:
            events = []
            # A value of its own: a change and its undoing that come close together are no change to who watches.
            for value in (f"headlamp-{len(protocols)}", None):
                change = {"metadata": {"labels": {LABEL: value}}}
                await asyncio.to_thread(stage.client.patch, f"{STORED}/l40s", change)
                events.append(await _next_event(socket, value, after=int(version)))
            return socket.protocol, events


async def _next_event(socket: ClientWebSocketResponse, label: str | None, *, after: int) -> Json:
    """The event that tells of a label, among those that Headlamp heeds: newer than its list, by parseInt."""
    for _ in range(MOST_EVENTS):
        message = await socket.receive(timeout=RECEIVE_SECONDS)
        require_equal(message.type, WSMsgType.TEXT, "what Headlamp parses")
        event: Json = json.loads(message.data)
        metadata = event["object"]["metadata"]
        told = metadata["name"] == "l40s" and metadata.get("labels", {}).get(LABEL) == label
        if told and int(metadata["resourceVersion"]) > after:
            return event
    raise AssertionError(f"none of {MOST_EVENTS} events tells of the label")


def _replay(stage: Stage, protocols: Sequence[str]) -> None:
    """Ours is told as kube-apiserver tells of the stored kind."""
    protocol, events = loops.run(_follow(stage, CLASSES, protocols))
    judge, judged = loops.run(_follow(stage, STORED, protocols))
    require_equal(protocol, judge, "the protocol agreed on")
    for event, theirs in zip(events, judged, strict=True):
        require_equal(set(event), set(theirs), "parts of an event")
        require_equal(theirs["type"], "MODIFIED", "type of kube-apiserver's event")
        require(event["type"] in ("ADDED", "MODIFIED"), f"type of our event: {event['type']}")
        require_equal(event["object"]["kind"], "GPUClass", "kind of the object")
        labels = theirs["object"]["metadata"].get("labels")
        require_equal(event["object"]["metadata"].get("labels"), labels, "labels of the object")
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    require_equal(versions, sorted(set(versions)), "rising versions")


def _discover(stage: Stage) -> None:
    """Aggregated discovery with the parameters in Headlamp's order has our group, Current, with both kinds."""
    answer = stage.client.request("GET", "/apis", headers={"Accept": DISCOVERY})
    groups = {group["metadata"]["name"]: group["versions"] for group in answer.json()["items"]}
    (version,) = groups["catalog.cozystack.io"]
    require_equal((version["version"], version["freshness"]), ("v1alpha1", "Current"), "our version")
    kinds = {each["resource"]: (each["responseKind"]["kind"], each["scope"]) for each in version["resources"]}
    require_equal(kinds, {"gpuclasses": ("GPUClass", "Cluster"), "gpuoffers": ("GPUOffer", "Namespaced")}, "our kinds")


CHECKS: Final = (
    Check("Headlamp's discovery", _discover),
    Check("Headlamp's WebSocket from the browser", lambda stage: _replay(stage, FROM_BROWSER), is_short=True),
    Check("Headlamp's WebSocket from its multiplexer", lambda stage: _replay(stage, FROM_MULTIPLEXER)),
)
