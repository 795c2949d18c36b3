"""The store of served objects."""

import asyncio

import orjson
import pytest

from apiserver.serving.status import TooLargeVersion
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


@pytest.mark.parametrize(
    ("ahead_seconds", "is_taken"),
    [
        pytest.param(-600, True, id="long ago"),
        pytest.param(0, True, id="now"),
        pytest.param(1, True, id="of a clock that is a little ahead"),
        pytest.param(4, True, id="soon"),
        pytest.param(10, False, id="of a clock that is 10 s ahead"),
        pytest.param(60, False, id="of before a restart by which the clock fell back a minute"),
    ],
)
async def test_not_older_than(ahead_seconds: float, is_taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version up to now is answered with one that is not less, one of a moment later waited for, else it is 504."""
    now = 1000.0
    begun = now

    async def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(asyncio, "sleep", sleep)
    store = ResourceStore(VersionSource(lambda: 1.8e9 + now, tag=1), lambda _: None, lambda: now)
    foreign = VersionSource(lambda: 1.8e9 + now + ahead_seconds, tag=2).next()
    if is_taken:
        store.list()
        await store.wait_until_fresh(foreign)
        listed = int(store.list().version)
        assert listed > foreign
        await store.wait_until_fresh(foreign)
        assert int(store.list().version) == listed
        store.put(("", "a"), named("a"))
        assert int(store.list().version) > listed
    else:
        with pytest.raises(TooLargeVersion):
            await store.wait_until_fresh(foreign)
        assert 3 <= now - begun < 3.2
