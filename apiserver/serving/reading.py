"""Answering requests for the declared resources: one object, a list, a watch, or a subresource.

Source: apiserver pkg/endpoints/handlers/get.go of Kubernetes 1.37; its order of refusals: representation (406), options
that cannot be read (400), options that do not go together (422), selectors (400).
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial as bind
from typing import Any, Final

import orjson

from apiserver.serving.eager import Begun, in_task
from apiserver.serving.negotiation import (
    JSON,
    META_GROUP,
    PARTIAL,
    PARTIAL_LIST,
    TABLE,
    Representation,
    negotiate,
    wants_pretty,
)
from apiserver.serving.options import GET_OPTIONS, read_options
from apiserver.serving.pages import Page, read_page
from apiserver.serving.remembered import Remembered
from apiserver.serving.repeats import Make
from apiserver.serving.request_info import RequestInfo, is_true_like
from apiserver.serving.requests import Request, Response
from apiserver.serving.resources import GroupVersion, Resource, Subresource
from apiserver.serving.responses import respond
from apiserver.serving.selectors import EVERYTHING, METADATA_FIELDS, Selection, make_selection
from apiserver.serving.status import BadRequest, MethodNotAllowed, NotAcceptable, NotFound, TooManyRequests
from apiserver.serving.store import Listing, ResourceStore, join_list
from apiserver.serving.streams import Encoder, write_stream
from apiserver.serving.tables import Layout, Object, make_table, partial, read_include
from apiserver.serving.traffic import Traffic
from apiserver.serving.watching import Watch

_MAX_PARTS: Final = 3
_MIN_WATCH_SECONDS: Final = 1800
_BUSY_SECONDS: Final = 1
_NO_TURN: Final = nullcontext()
_REMEMBERED_SELECTIONS: Final = 256
_REMEMBERED_LENGTH: Final = 1024
_REMADE_OPTIONS: Final = frozenset({"fieldSelector", "labelSelector", "limit"})
_ROWS_IN_PASSING: Final = 200
"""An object of more rows is made into a Table or YAML beside the event loop: of thousands that takes up to a second,
while plain JSON takes 3 ms."""


class Reading:
    """Answers for the resources of one group and version.

    Args:
        served: what is declared.
        traffic: counts the watches.
    """

    def __init__(self, served: GroupVersion, traffic: Traffic) -> None:
        self._served = served
        self._traffic = traffic
        self._closing = asyncio.Event()
        self._running: Counter[str] = Counter()
        self._lists: dict[str, _WholeList] = {}
        self._selections: Remembered[tuple[str, str, str], Selection] = Remembered(_REMEMBERED_SELECTIONS)
        # One thread, whatever is asked for: the loop then never waits for more than one other to give way.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")

    def answer(self, request: Request, info: RequestInfo) -> Coroutine[Any, Any, Response]:
        """Answer one authorized request.

        Raises:
            StatusError: it cannot be answered; the caller renders it.
        """
        resource = self._served.resource(info.resource)
        subresource = resource.subresource(info.subresource) if resource and info.subresource else None
        if (
            resource is None
            or _is_misplaced(info, resource)
            or len(info.parts) > _MAX_PARTS
            or (info.subresource and not subresource)
            or info.is_deprecated_watch
        ):
            raise NotFound.resource()
        if request.method != "GET" or info.verb not in resource.verbs:
            raise MethodNotAllowed
        if subresource is not None:
            return self._get_subresource(request, info, resource, subresource)
        if info.name:
            return self._get(request, info, resource)
        if info.verb == "watch":
            return self._watch(request, info, resource)
        return self._list(request, info, resource)

    def make_again(self, request: Request, info: RequestInfo) -> Make | None:
        """What makes the body of the answer again that was just given; None where it takes more than that.

        It takes more for another form than compact JSON, and where a version is asked for or there may be a refusal.
        """
        resource = self._served.resource(info.resource)
        if resource is None or not info.query.keys() <= _REMADE_OPTIONS or not _is_plain(request):
            return None
        if info.name:
            subresource = resource.subresource(info.subresource)
            if info.query or (subresource is not None and subresource.at_once is not None):
                return None
            return bind(_at_once, bind(_body_of_one, resource, subresource, info))
        if not info.query and isinstance(resource.store, ResourceStore):
            return self._lists.setdefault(resource.plural, _WholeList(self._served, resource, resource.store))
        return bind(_at_once, bind(self._body_of_list, resource, info))

    async def _body_of_list(self, resource: Resource, info: RequestInfo) -> bytes:
        options, selection = read_options(info.query, watch=False), self._selection(info.query, resource)
        async with resource.store.open(info.namespace) as store:
            return list_body(self._served, resource, await read_page(store, info.namespace, selection, options))

    def close(self) -> None:
        """End all watches, cleanly and soon."""
        self._closing.set()
        for resource in self._served.resources:
            resource.store.wake()

    async def _get(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        representation = negotiate(request.headers.get("Accept", ""))
        async with resource.store.open(info.namespace) as store:
            await self._wait_for_version(request, store)
            found = store.get((info.namespace, info.name))
        if found is None:
            raise NotFound.object(info.group, info.resource, info.name)
        if representation.convert_to:
            return self._converted(request, found.object, resource.layout, representation)
        return respond(request, found.body + b"\n", representation)

    async def _get_subresource(
        self, request: Request, info: RequestInfo, resource: Resource, subresource: Subresource
    ) -> Response:
        representation = negotiate(request.headers.get("Accept", ""))
        async with resource.store.open(info.namespace) as store:
            await self._wait_for_version(request, store)
        asked = info.query.keys() - GET_OPTIONS if info.query else ()
        parameters = {name: request.query.getall(name) for name in asked}
        with self._turn(resource, subresource):
            found = await subresource.read(info.namespace, info.name, parameters)
            if found is None:
                raise NotFound.object(info.group, info.resource, info.name)
            if representation.media_type == JSON and not representation.convert_to:
                return respond(request, found.body, representation)
            write = bind(self._represent, request, found.object, subresource.layout, representation)
            if len(subresource.layout.rows(found.object)) <= _ROWS_IN_PASSING:
                return write()
            return await asyncio.get_running_loop().run_in_executor(self._writer, write)

    def _turn(self, resource: Resource, subresource: Subresource) -> AbstractContextManager[None]:
        """While the context is open, the request is one of those that are made at once."""
        if subresource.at_once is None:
            return _NO_TURN
        return self._counted(f"{resource.plural}/{subresource.name}", subresource.at_once)

    @contextmanager
    def _counted(self, name: str, at_once: int) -> Iterator[None]:
        if self._running[name] >= at_once:
            message = f"{at_once} requests for {name} are being answered already, please try again later"
            raise TooManyRequests(message, retry_after_seconds=_BUSY_SECONDS)
        self._running[name] += 1
        try:
            yield
        finally:
            self._running[name] -= 1

    def _represent(self, request: Request, found: Object, layout: Layout, representation: Representation) -> Response:
        if representation.convert_to:
            return self._converted(request, found, layout, representation)
        return respond(request, found, representation)

    async def _wait_for_version(self, request: Request, store: ResourceStore) -> None:
        """A version asked of one object is the oldest that will do."""
        query = request.info.query
        if not query:
            return
        if is_true_like(query.get("export", "false")):
            raise BadRequest("the export parameter, deprecated since v1.14, is no longer supported")
        version = query.get("resourceVersion", "")
        options = read_options({"resourceVersion": version}, watch=False)
        await store.wait_until_fresh(options.resource_version)

    async def _list(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        representation = negotiate(request.headers.get("Accept", ""))
        options = read_options(info.query, watch=False)
        selection = self._selection(info.query, resource)
        async with resource.store.open(info.namespace) as store:
            page = await read_page(store, info.namespace, selection, options)
        if not representation.convert_to:
            return respond(request, list_body(self._served, resource, page), representation)
        objects = [item.object for item in page.items]
        if representation.convert_to == TABLE:
            return self._table(request, objects, resource.layout, page.metadata, representation)
        if representation.convert_to == PARTIAL_LIST:
            version = representation.convert_version
            items = [partial(item, version) for item in objects]
            api_version = f"{META_GROUP}/{version}"
            body = {"kind": PARTIAL_LIST, "apiVersion": api_version, "metadata": page.metadata, "items": items}
            return respond(request, body, representation)
        kind = f"{self._served.api_version}, Kind={resource.kind}List"
        raise NotAcceptable(f"you requested PartialObjectMetadata, but the requested object is a list ({kind})")

    async def _watch(self, request: Request, info: RequestInfo, resource: Resource) -> Response:
        representation = negotiate(request.headers.get("Accept", ""), stream=True)
        options = read_options(info.query, watch=True)
        selection = self._selection(info.query, resource)
        include = read_include(info.query if representation.convert_to == TABLE else {})
        encoder = Encoder(representation, resource.layout, include)
        await in_task()
        async with resource.store.open(info.namespace) as store:
            watch = Watch(
                store=store,
                namespace=info.namespace,
                selection=selection,
                options=options,
                # Spread, so that those who came together do not come again together.
                lasts=options.timeout_seconds or _MIN_WATCH_SECONDS * (1 + random.random()),  # noqa: S311 # no secret
                closing=self._closing,
                type_meta={"kind": resource.kind, "apiVersion": self._served.api_version},
            )
            count = self._traffic.watch(request, info)
            return await write_stream(request, watch, encoder, count)

    def _selection(self, query: Mapping[str, str], resource: Resource) -> Selection:
        labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
        if not labels and not fields:
            return EVERYTHING
        known = self._selections.get((resource.plural, labels, fields))
        if known is None:
            known = make_selection(labels, fields, {**METADATA_FIELDS, **resource.fields})
            if len(labels) + len(fields) <= _REMEMBERED_LENGTH:
                self._selections[resource.plural, labels, fields] = known
        return known

    def _converted(self, request: Request, found: Object, layout: Layout, representation: Representation) -> Response:
        if representation.convert_to == PARTIAL_LIST:
            kind = f"{self._served.api_version}, Kind={found['kind']}"
            raise NotAcceptable(
                f"you requested PartialObjectMetadataList, but the requested object is not a list ({kind})"
            )
        if representation.convert_to == PARTIAL:
            return respond(request, partial(found, representation.convert_version), representation)
        metadata = {key: found["metadata"][key] for key in ("resourceVersion",) if key in found["metadata"]}
        return self._table(request, [found], layout, metadata, representation)

    def _table(
        self,
        request: Request,
        items: list[Object],
        layout: Layout,
        metadata: Object,
        representation: Representation,
    ) -> Response:
        table = make_table(
            layout,
            items,
            metadata=metadata,
            include=read_include(request.info.query),
            version=representation.convert_version,
            now=datetime.now(UTC),
        )
        return respond(request, table, representation)


def _is_plain(request: Request) -> bool:
    """Whether the answer is the compact JSON that is there already."""
    representation = negotiate(request.headers.get("Accept", ""))
    agent = request.headers.get("User-Agent", "")
    is_json = representation.media_type == JSON and not representation.convert_to
    return is_json and not wants_pretty(representation, {}, agent)


async def _body_of_one(resource: Resource, subresource: Subresource | None, info: RequestInfo) -> bytes | None:
    if subresource is not None:
        document = await subresource.read(info.namespace, info.name, {})
        return None if document is None else document.body
    async with resource.store.open(info.namespace) as store:
        found = store.get((info.namespace, info.name))
    return None if found is None else found.body + b"\n"


def _at_once(make: Callable[[], Coroutine[Any, Any, bytes | None]]) -> bytes | None:
    """What is made, or None if that has to wait for something."""
    begun = Begun(make())
    if not begun.done:
        begun.close()
        return None
    return begun.result


class _WholeList:
    """Makes the body of a whole list, once for each version and all who read it."""

    __slots__ = ("_body", "_listing", "_resource", "_served", "_store")

    def __init__(self, served: GroupVersion, resource: Resource, store: ResourceStore) -> None:
        self._served, self._resource, self._store = served, resource, store
        self._listing: Listing | None = None
        self._body = b""

    def __call__(self) -> bytes:
        listing = self._store.list()
        if listing is not self._listing:
            page = Page({"resourceVersion": listing.version}, listing.items, listing)
            self._listing, self._body = listing, list_body(self._served, self._resource, page)
        return self._body


def _is_misplaced(info: RequestInfo, resource: Resource) -> bool:
    """Whether the path is for a resource of the other scope. Without a namespace only lists go across all of them."""
    if not resource.namespaced:
        return bool(info.namespace)
    return bool(info.name) and not info.namespace


def list_body(served: GroupVersion, resource: Resource, page: Page) -> bytes:
    """A list as compact JSON, joined from the bytes of its items."""
    head = orjson.dumps(
        {"kind": f"{resource.kind}List", "apiVersion": served.api_version, "metadata": page.metadata},
    )
    return join_list(head, page.items) if page.whole is None else page.whole.body(head)
