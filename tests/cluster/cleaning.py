"""Leaving a shared cluster as it was found."""

import contextlib
from collections.abc import Iterator

from tests.cluster.client import Client, Json, NotFoundError

# In the order of deletion: what is in a Namespace before the Namespace.
WATCHED_LISTS = (
    "/api/v1/pods",
    "/api/v1/resourcequotas",
    "/api/v1/secrets",
    "/apis/cozystack.io/v1alpha1/gpuclasses",
    "/api/v1/nodes",
    "/api/v1/namespaces",
)
NAMESPACES = WATCHED_LISTS[-1]


@contextlib.contextmanager
def left_as_found(client: Client) -> Iterator[None]:
    """Delete at the end of the block the objects that were not there at its beginning."""
    before = {path: _identities(client, path) for path in WATCHED_LISTS}
    try:
        yield
    finally:
        for path in WATCHED_LISTS:
            for item in _items(client, path):
                if item["metadata"]["uid"] not in before[path]:
                    _delete(client, path, item["metadata"])


def _delete(client: Client, path: str, metadata: Json) -> None:
    """Delete one object for good, whatever it waits for."""
    collection, _, plural = path.rpartition("/")
    namespaced = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
    where = f"{collection}/{namespaced}{plural}/{metadata['name']}"
    with contextlib.suppress(NotFoundError):
        if metadata.get("finalizers"):
            client.patch(where, {"metadata": {"finalizers": None}})
        client.delete(where)
        if path == NAMESPACES:
            # No controller empties it; the finalizer would keep it for ever.
            namespace = client.get(where)
            client.put(f"{where}/finalize", {**namespace, "spec": {"finalizers": []}})


def _identities(client: Client, path: str) -> set[str]:
    return {item["metadata"]["uid"] for item in _items(client, path)}


def _items(client: Client, path: str) -> list[Json]:
    """The list, empty if nobody serves it (yet)."""
    with contextlib.suppress(NotFoundError):
        return client.items(path)
    return []
