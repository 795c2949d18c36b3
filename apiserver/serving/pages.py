"""Pages of a list, and the tokens that lead from one to the next.

A token is the version of the first page and the last key seen. Any replica goes on after that key from its own current
state and repeats the version of the first page, so a watch from there misses nothing.
Source of the form: apiserver pkg/storage/continue.go of Kubernetes 1.37.
"""

import base64
import binascii
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from apiserver.serving.history import Key, Stored
from apiserver.serving.options import ListOptions
from apiserver.serving.selectors import Selection
from apiserver.serving.status import BadRequest
from apiserver.serving.store import Listing, ResourceStore

_FORM: Final = "meta.k8s.io/v1"


class _Token(msgspec.Struct):
    v: str
    rv: int
    start: str


class Page(NamedTuple):
    """A list, or one page of it. A plain tuple: each list makes one.

    Attributes:
        metadata: of the list: its version, and how it goes on.
        items: in the order of their keys.
        whole: the list of which these are all, if they are.
    """

    metadata: dict[str, Any]
    items: Sequence[Stored]
    whole: Listing | None = None


async def read_page(store: ResourceStore, namespace: str, selection: Selection, options: ListOptions) -> Page:
    """The page that the options ask for.

    Raises:
        BadRequest: the continue token is none.
        Expired: exactly a version was asked for that is not known.
        TooLargeVersion: a version was asked for that lies in the future.
    """
    after, version = None, None
    if options.continue_token:
        after, version = _read_token(options.continue_token)
    if options.resource_version is None or options.continue_token:
        listing = store.list()
    else:
        await store.wait_until_fresh(options.resource_version)
        listing = store.list_at(options.resource_version) if options.exactly else store.list()
    version = version or listing.version
    items = _selected(listing, namespace, selection)
    if after is not None:
        items = [item for item in items if item.key > after]
    metadata: dict[str, Any] = {"resourceVersion": version}
    if options.limit and len(items) > options.limit:
        rest = len(items) - options.limit
        items = items[: options.limit]
        metadata["continue"] = _make_token(version, items[-1].key)
        if selection.selects_all:
            metadata["remainingItemCount"] = rest
    whole = listing if items is listing.items and version == listing.version else None
    return Page(metadata, items, whole)


def _selected(listing: Listing, namespace: str, selection: Selection) -> Sequence[Stored]:
    if not namespace and selection.selects_all:
        return listing.items
    return [item for item in listing.items if is_selected(item, namespace, selection)]


def is_selected(item: Stored, namespace: str, selection: Selection) -> bool:
    """Whether an object is in the namespace ("" for any) and selected."""
    if namespace and item.key[0] != namespace:
        return False
    return selection.selects_all or selection.matches(item.object)


def _make_token(version: str, key: Key) -> str:
    token = msgspec.json.encode(_Token(_FORM, int(version), "/".join(key)))
    return base64.urlsafe_b64encode(token).decode().rstrip("=")


def _read_token(text: str) -> tuple[Key, str]:
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        token = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError) as error:
        raise BadRequest(f"invalid continue token: continue key is not valid: {error}") from error
    namespace, slash, name = token.start.partition("/")
    if token.v != _FORM or token.rv <= 0 or not slash or not name:
        raise BadRequest("invalid continue token: continue key is not valid: it was not made by this server")
    return (namespace, name), str(token.rv)
