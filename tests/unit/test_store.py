"""The store of served objects."""

import orjson

from apiserver.serving.store import ResourceStore
from apiserver.serving.versions import VersionSource


def named(name: str, namespace: str = "", **fields: object) -> dict[str, object]:
    """An object to store."""
    return {"metadata": {"name": name, "namespace": namespace}, **fields}


def make_store() -> ResourceStore:
    """An empty store whose refresh does nothing."""
    return ResourceStore(VersionSource(lambda: 1.8e9, tag=1), lambda _: None)


def test_versions_follow_visible_changes() -> None:
    """Only a change that can be seen makes a new version, of the object and of the list."""
    store = make_store()
    store.put(("", "a"), named("a", free=1))
    first = store.list()
    store.put(("", "a"), named("a", free=1))
    assert store.list() == first
    store.put(("", "a"), named("a", free=2))
    second = store.list()
    assert int(second.version) > int(first.version)
    assert second.items[0].object["metadata"]["resourceVersion"] == second.version
    store.delete(("", "a"))
    assert int(store.list().version) > int(second.version)
    store.delete(("", "a"))
    assert store.list().items == []


def test_empty_list_has_a_version() -> None:
    """The empty collection has a version that is neither empty nor 0, and keeps it."""
    store = make_store()
    assert int(store.list().version) > 0
    assert store.list().version == store.list().version


def test_order() -> None:
    """A list is in the order of namespace and name."""
    store = make_store()
    for namespace, name in (("b", "x"), ("a", "z"), ("a", "y")):
        store.put((namespace, name), named(name, namespace))
    assert [each.object["metadata"]["name"] for each in store.list().items] == ["y", "z", "x"]


def test_body_is_the_object() -> None:
    """The bytes say what the object says."""
    store = make_store()
    store.put(("", "a"), named("a", free=1))
    found = store.get(("", "a"))
    assert found is not None
    assert orjson.loads(found.body) == found.object
    assert store.get(("", "b")) is None


def test_refresh_comes_before_every_read() -> None:
    """A read sees what refresh has just put."""
    store = ResourceStore(VersionSource(lambda: 1.8e9), lambda store: store.put(("", "a"), named("a")))
    assert store.get(("", "a")) is not None
    assert len(store.list().items) == 1
