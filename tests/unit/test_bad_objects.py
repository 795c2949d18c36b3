"""Objects that no kube-apiserver would send: they cost themselves, never the others, and never much time."""

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apiserver.catalog.gpuclasscatalog import catalog_object
from apiserver.catalog.gpuclasses import figures
from apiserver.cluster.collection import Collection
from apiserver.cluster.dra import DEVICE_CLASSES
from apiserver.cluster.kubevirt import KUBEVIRTS
from apiserver.cluster.live import CLASSES, NODES, PODS, _Classes, _Nodes, _Pods
from apiserver.cluster.namespaces import NAMESPACES, QUOTAS
from apiserver.cluster.objects import PodReading
from apiserver.cluster.reflector import Decoder, Listing
from apiserver.cluster.snapshot import SnapshotError, parse_snapshot
from apiserver.cluster.view import View
from apiserver.gpu.nodes import Compute
from apiserver.gpu.quantity import MalformedQuantityError, _parse_bounded, parse_milli

DEVICE = "example.com/gpu"
SPEC = {
    "vendor": "v",
    "model": "m",
    "mode": "passthrough",
    "memory": "1Gi",
    "source": {"devicePlugin": {"resourceName": DEVICE}},
}
GOOD_CLASS = {"metadata": {"name": "good"}, "spec": SPEC}
READY = [{"type": "Ready", "status": "True"}]
GOOD_NODE = {"metadata": {"name": "good"}, "status": {"allocatable": {DEVICE: "4"}, "conditions": READY}}
GOOD_POD = {
    "metadata": {"name": "good", "namespace": "ns"},
    "spec": {"nodeName": "good", "containers": [{"name": "c", "resources": {"requests": {DEVICE: "1"}}}]},
}
HANDLERS: dict[str, tuple[Any, Any]] = {"classes": (CLASSES, _Classes), "nodes": (NODES, _Nodes), "pods": (PODS, _Pods)}
GOOD = {"classes": GOOD_CLASS, "nodes": GOOD_NODE, "pods": GOOD_POD}
SECONDS = 5
"""For one object; generous, for the machine may be busy. What went wrong here would take minutes."""


def told(**bad: list[bytes]) -> View:
    """A view that was told lists with a good object first and last, and the bad ones between; then them as events."""
    view = View()
    for kind, (collection, handler_type) in HANDLERS.items():
        decoder: Decoder[Any] = Decoder(collection.item_type, collection.read)
        handler: Any = handler_type(view)
        good = json.dumps(GOOD[kind]).encode()
        items = b",".join([good, *bad.get(kind, []), good])
        listing: Listing[Any] = Listing()
        assert decoder.add_page(listing, b'{"metadata":{"resourceVersion":"7"},"items":[' + items + b"]}") == ""
        assert listing.version == "7"
        handler.replace(listing.objects)
        for name, reason in listing.rejected:
            handler.reject(name, reason)
        for raw in bad.get(kind, []):
            try:
                handler.apply("MODIFIED", decoder.change(b'{"type":"MODIFIED","object":' + raw + b"}"))
            except (msgspec.DecodeError, RecursionError) as error:
                handler.reject("", str(error))
    return view


def free(view: View) -> int:
    """Free devices of the good class, every page of every class having been made."""
    for name in view.names():
        report = view.report(name)
        assert report is not None
        assert all(0 <= value < 2**63 for value in figures(report).values())
        list(view.nodes(name))
    good = view.report("good")
    assert good is not None
    return good.tally.free


DEEP = b"[" * 50_000 + b"]" * 50_000
UNREADABLE = {
    "nested without end": b'{"metadata":{"name":"bad"},"spec":{"x":' + DEEP + b"}}",
    "a lone surrogate in the name": rb'{"metadata":{"name":"\ud800"}}',
    "a lone surrogate in a label": rb'{"metadata":{"name":"bad","labels":{"a":"\udfff x"}}}',
    "half a surrogate pair": rb'{"metadata":{"name":"bad","labels":{"a":"\ud83dx"}}}',
    "not UTF-8": b'{"metadata":{"name":"bad\xff"}}',
    "a control character": b'{"metadata":{"name":"bad\x01"}}',
    "a number beyond every float": (
        b'{"metadata":{"name":"bad"},"spec":{"x":1e400},"status":{"allocatable":{"a.b/c":1e400}}}'
    ),
    "a number of 100,000 digits": b'{"metadata":{"name":"bad"},"spec":{"x":' + b"1" * 100_000 + b"}}",
    "null": b"null",
    "a string": b'"bad"',
    "an array": b"[]",
    "nothing": b"{}",
    "a name that is none": b'{"metadata":{"name":5}}',
    "no name": b'{"metadata":{}}',
    "an empty name": b'{"metadata":{"name":""}}',
    "metadata twice, then null": b'{"metadata":{"name":"bad"},"metadata":null}',
    "a comma too many": b'{"metadata":{"name":"bad",}}',
}


@pytest.mark.parametrize("kind", HANDLERS)
@pytest.mark.parametrize("raw", UNREADABLE.values(), ids=UNREADABLE)
def test_others_stay(kind: str, raw: bytes) -> None:
    """An object that cannot be read, in a list or an event, leaves those beside it as they are."""
    began = time.monotonic()
    view = told(**{kind: [raw]})
    assert free(view) == 3
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize(
    "collection", [NODES, PODS, NAMESPACES, QUOTAS, KUBEVIRTS, DEVICE_CLASSES], ids=lambda it: it.name
)
@pytest.mark.parametrize("raw", [*UNREADABLE.values(), *(json.dumps(each).encode() for each in GOOD.values())])
def test_one_parse_is_as_good_as_two(collection: Collection[Any], raw: bytes) -> None:
    """An event that is read at once is read as it would be by a closer look, and tells the same version."""
    decoder: Decoder[Any] = Decoder(collection.item_type, collection.read)
    line = b'{"type":"MODIFIED","object":' + raw.replace(b'"name"', b'"resourceVersion":"7","name"', 1) + b"}"
    event = decoder.event(line)
    if event is None:
        return
    assert (event.type, event.object.metadata.resource_version) == ("MODIFIED", "7")
    assert decoder.head(line).object.metadata.resource_version == "7"
    assert decoder.read(event.object) == decoder.change(line)


def test_nearly_all_are_parsed_once() -> None:
    """What fits is read at once, but for a plain mapping, which does not tell its version."""
    for kind, (collection, _) in HANDLERS.items():
        line = b'{"type":"ADDED","object":' + json.dumps(GOOD[kind]).encode() + b"}"
        assert (Decoder(collection.item_type, collection.read).event(line) is None) == (kind == "classes")


@pytest.mark.parametrize(
    "raw", [UNREADABLE["a number beyond every float"], b'{"metadata":{"name":"bad"},"spec":{"vendor":"\xff"}}']
)
def test_unreadable_class_is_invalid(raw: bytes) -> None:
    """A class of which only the name can be read is shown as invalid, with the reason."""
    report = told(classes=[raw]).report("bad")
    assert report is not None
    assert (str(report.offer.reason), report.offer.offered) == ("Invalid", False)
    assert "cannot be read" in report.offer.message


UNREADABLE_POD = b'{"metadata":{"name":"good","namespace":"ns"},"spec":{"containers":7}}'


def test_unreadable_pod_counts_as_last_known() -> None:
    """A pod that becomes unreadable, in an event and in a list, holds what it held, and the catalog says so."""
    view = told()
    decoder: Decoder[Any] = Decoder(PODS.item_type, PODS.read)
    pods: Any = _Pods(view)
    with pytest.raises(msgspec.DecodeError):
        decoder.change(b'{"type":"MODIFIED","object":' + UNREADABLE_POD + b"}")
    pods.reject("ns/good", "no containers")
    assert (free(view), notes(view)) == (3, ["Pods that cannot be read: 1 (ns/good)"])
    listing: Listing[Any] = Listing()
    decoder.add_page(listing, b'{"metadata":{"resourceVersion":"8"},"items":[' + UNREADABLE_POD + b"]}")
    for _ in range(2):
        pods.replace(listing.objects)
        for name, reason in listing.rejected:
            pods.reject(name, reason)
        assert (free(view), notes(view)) == (3, ["Pods that cannot be read: 1 (ns/good)"])
    pods.apply("MODIFIED", decoder.change(b'{"type":"MODIFIED","object":' + json.dumps(GOOD_POD).encode() + b"}"))
    assert (free(view), notes(view)) == (3, [])
    pods.replace([])
    assert (free(view), notes(view)) == (4, [])


def deleted_pod(name: str) -> PodReading:
    """The end of a pod of which nothing but the name is known."""
    line = {"type": "DELETED", "object": {"metadata": {"namespace": "ns", "name": name}}}
    return Decoder(PODS.item_type, PODS.read).change(json.dumps(line).encode())


def test_pod_that_never_could_be_read() -> None:
    """Nothing is made up for it: it counts nothing, and every page says so, until it is gone."""
    view = told()
    pods: Any = _Pods(view)
    for number in range(5):
        pods.reject(f"ns/bad-{number}", "no containers")
    assert (free(view), notes(view)) == (3, ["Pods that cannot be read: 5 (ns/bad-0, ns/bad-1, ns/bad-2)"])
    for number in range(5):
        pods.apply("DELETED", deleted_pod(f"bad-{number}"))
    assert notes(view) == []


def test_pod_of_an_earlier_name() -> None:
    """What a list did not hold any more is not brought back for another pod of its name."""
    view = told()
    pods: Any = _Pods(view)
    pods.replace([])
    pods.apply("DELETED", deleted_pod("x"))
    pods.reject("ns/good", "no containers")
    assert free(view) == 4


def notes(view: View) -> list[str]:
    """What the page of the good class says besides its figures, its first sentences."""
    page = catalog_object(view, "good")
    assert page is not None
    return [note.partition(".")[0] for note in page["notes"]]


def nested(depth: int) -> Any:  # noqa: ANN401 # JSON
    """Objects in objects."""
    value: Any = "bottom"
    for _ in range(depth):
        value = {"a": value}
    return value


MIB = "x" * 2**20
BAD_SPECS: dict[str, Any] = {
    "null": None,
    "a string": "spec",
    "an array": [1],
    "a number": 5,
    "no field": {},
    "every field null": dict.fromkeys([*SPEC, "profile", "license", "maxCount", "tolerations"]),
    "an unknown mode": SPEC | {"mode": "time-sliced"},
    "a mode that is an object": SPEC | {"mode": {"a": []}},
    "a bad memory": SPEC | {"memory": "much"},
    "a memory of 1e30": SPEC | {"memory": 1e30},
    "a memory of 4,000 digits": SPEC | {"memory": int("9" * 4000)},
    "a maximum of 1e30": SPEC | {"maxCount": 1e30},
    "a maximum of 4,000 digits": SPEC | {"maxCount": int("9" * 4000)},
    "a name of a mebibyte": SPEC | {"vendor": MIB},
    "a resource name of a mebibyte": SPEC | {"source": {"devicePlugin": {"resourceName": "a.b/" + MIB}}},
    "sources of other types": SPEC | {"source": {"devicePlugin": [], "dra": 5}},
    "a licence that is a list": SPEC | {"license": [1]},
    "10,000 tolerations": SPEC | {"tolerations": [{"key": "a", "operator": "Exists"}] * 10_000},
    "tolerations that are none": SPEC | {"tolerations": [None, 5, [], {"key": [], "tolerationSeconds": 1e30}]},
    "nesting": SPEC | {"vendor": nested(300)},
}


@pytest.mark.parametrize("spec", BAD_SPECS.values(), ids=BAD_SPECS)
def test_bad_class_is_invalid(spec: object) -> None:
    """A class that breaks a rule is told as invalid, and only it is."""
    began = time.monotonic()
    view = told(classes=[json.dumps({"metadata": {"name": "bad"}, "spec": spec}).encode()])
    assert free(view) == 3
    report = view.report("bad")
    assert report is not None
    assert str(report.offer.reason) == "Invalid"
    assert time.monotonic() - began < SECONDS


BAD_QUANTITIES = {
    "text": "four",
    "an object": {"a": 1},
    "an array": [[[]]],
    "a boolean": True,
    "1e30": 1e30,
    "100 digits": 10**100,
    "4,000 digits": int("9" * 4000),
    "a text of a mebibyte": "9" * 2**20,
    "an exponent without end": "1e999999999",
    "hex": "0x10",
    "a fraction without end": "0." + "1" * 2**20,
    "empty": "",
    "beyond int64": "9223372036854775808",
}


@pytest.mark.parametrize("quantity", BAD_QUANTITIES.values(), ids=BAD_QUANTITIES)
def test_bad_quantity_is_named(quantity: object) -> None:
    """A quantity that cannot be read counts as 0 on its node, which says so in few words."""
    began = time.monotonic()
    node = {"metadata": {"name": "bad"}, "status": {"allocatable": {DEVICE: quantity}, "conditions": READY}}
    pod = {
        "metadata": {"name": "bad", "namespace": "ns"},
        "spec": {"nodeName": "good", "containers": [{"name": "c", "resources": {"requests": {DEVICE: quantity}}}]},
    }
    view = told(nodes=[json.dumps(node).encode()], pods=[json.dumps(pod).encode()])
    assert free(view) == 3
    reports = {each.name: each for each in view.nodes("good")}
    assert reports["bad"].share.free == 0
    for report in reports.values():
        (reason,) = (each for each in report.reasons if each.reason == "MalformedQuantity")
        assert len(reason.message) < 500
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize("digits", [20, 5_000, 100_000])
def test_integers_of_any_length(digits: int) -> None:
    """An integer too long for Python to write out is a malformed quantity like any other."""
    with pytest.raises(MalformedQuantityError):
        parse_milli(10**digits)


def test_null_is_absence() -> None:
    """A null is what is not there, as in Go: the object counts."""
    node = GOOD_NODE | {"metadata": {"name": "other", "labels": {"a": None}}, "spec": None}
    pod = {
        "metadata": {"name": "other", "namespace": "ns", "labels": None},
        "spec": {
            "nodeName": "other",
            "initContainers": None,
            "containers": [{"name": None, "resources": {"requests": {DEVICE: "2"}, "limits": None}}],
            "overhead": None,
        },
        "status": None,
    }
    view = told(nodes=[json.dumps(node).encode()], pods=[json.dumps(pod).encode()])
    assert free(view) == 5
    assert view.loads.on("other") == Compute(0, 0, 1)


ONE_CPU = {"name": "c", "resources": {"requests": {"cpu": "1", "memory": "64"}}}
NULL_LOADS: dict[str, tuple[Any, Any]] = {
    "init containers, overhead and what is for the pod": (
        {"containers": [ONE_CPU], "initContainers": None, "overhead": None, "resources": None},
        None,
    ),
    "what is requested for the pod": ({"containers": [ONE_CPU], "resources": {"requests": None}}, {}),
    "quantities for the pod": ({"containers": [ONE_CPU], "overhead": {"cpu": None, "memory": None}}, {}),
    "resources and requests of a container": (
        {"containers": [ONE_CPU, {"name": "d", "resources": None}, {"name": "e", "resources": {"requests": None}}]},
        {"phase": None, "conditions": None, "containerStatuses": None, "initContainerStatuses": None},
    ),
    "a quantity": ({"containers": [ONE_CPU, {"name": "d", "resources": {"requests": {"cpu": None}}}]}, {}),
    "the name and kind of an init container": (
        {"containers": [ONE_CPU], "initContainers": [{"name": None, "restartPolicy": None, "resources": None}]},
        {},
    ),
    "what is reported": (
        {"containers": [ONE_CPU]},
        {
            "containerStatuses": [{"name": "c", "allocatedResources": None, "resources": {"requests": None}}],
            "initContainerStatuses": [{"name": None, "allocatedResources": None, "resources": None}],
            "allocatedResources": None,
            "resources": None,
        },
    ),
}


@pytest.mark.parametrize(("spec", "status"), NULL_LOADS.values(), ids=NULL_LOADS)
def test_null_takes_nothing(spec: Any, status: Any) -> None:  # noqa: ANN401 # JSON
    """A null among what a pod takes is what is not there: the pod takes what the rest says."""
    metadata = {"name": "other", "namespace": "ns", "labels": None}
    pod = {"metadata": metadata, "spec": {"nodeName": "good", **spec}, "status": status}
    raw = json.dumps(pod).encode()
    for listed in ([raw], [raw, b"null"]):  # the second list is read object by object
        view = told(pods=listed)
        assert view.loads.on("good") == Compute(1000, 64, 2)  # the good pod takes a slot
        assert list(view.loads.unreadable) == []


@pytest.mark.parametrize("quantity", BAD_QUANTITIES.values(), ids=BAD_QUANTITIES)
@pytest.mark.parametrize("name", ["cpu", "memory"])
def test_bad_load_is_named(name: str, quantity: object) -> None:
    """Cpu or memory that cannot be read counts as 0, and the pod is named; a node with it has no room."""
    began = time.monotonic()
    pod = {
        "metadata": {"name": "bad", "namespace": "ns"},
        "spec": {"nodeName": "good", "containers": [{"name": "c", "resources": {"requests": {name: quantity}}}]},
    }
    node = {"metadata": {"name": "bad"}, "status": {"allocatable": {DEVICE: "1", name: quantity}, "conditions": READY}}
    view = told(nodes=[json.dumps(node).encode()], pods=[json.dumps(pod).encode()])
    assert view.loads.on("good") == Compute(0, 0, 2)
    assert list(view.loads.unreadable) == ["ns/bad"]
    (room,) = (each for each in view.rooms("good") if each.node == "bad")
    assert (room.allocatable.cpu_milli, room.allocatable.memory_bytes) == (0, 0)
    assert time.monotonic() - began < SECONDS


def test_huge_texts_are_not_kept() -> None:
    """No text longer than a quantity can be is remembered as one."""
    _parse_bounded.cache_clear()
    for text in ("9" * 2**20, "0." + "1" * 2**20, " " * 2**20 + "4 " + "x" * 2**20):
        with pytest.raises(MalformedQuantityError):
            parse_milli(text)
    assert _parse_bounded.cache_info().currsize == 0
    assert parse_milli(" " * 2**20 + "4") == 4000
    assert _parse_bounded.cache_info().currsize == 1


def test_many_parts() -> None:
    """10,000 taints and 10,000 containers are read in a moment."""
    began = time.monotonic()
    taints = [{"key": f"t{number}", "effect": "NoSchedule"} for number in range(10_000)]
    node = GOOD_NODE | {"metadata": {"name": "tainted"}, "spec": {"taints": taints}}
    containers = [{"name": f"c{number}", "resources": {"requests": {DEVICE: "1m"}}} for number in range(10_000)]
    pod = {"metadata": {"name": "many", "namespace": "ns"}, "spec": {"nodeName": "good", "containers": containers}}
    view = told(nodes=[json.dumps(node).encode()], pods=[json.dumps(pod).encode()])
    assert free(view) == 0
    assert time.monotonic() - began < SECONDS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def spoiled(good: Any) -> st.SearchStrategy[Any]:  # noqa: ANN401 # JSON
    """The object with some parts, at any depth, replaced by any JSON."""
    if isinstance(good, dict):
        parts: st.SearchStrategy[Any] = st.fixed_dictionaries({key: spoiled(value) for key, value in good.items()})
    elif isinstance(good, list):
        parts = st.tuples(*(spoiled(value) for value in good)).map(list)
    else:
        parts = st.just(good)
    return st.integers(0, 9).flatmap(lambda dice: JSON if dice == 0 else parts)


@given(nodes=spoiled(GOOD_NODE), pods=spoiled(GOOD_POD), classes=spoiled(GOOD_CLASS))
@settings(max_examples=300, deadline=None)
def test_whatever_is_wrong(nodes: Any, pods: Any, classes: Any) -> None:  # noqa: ANN401 # JSON
    """Whatever part is replaced by whatever JSON, the good objects are all there, and every page can be made."""
    bad: dict[str, list[bytes]] = {}
    for kind, obj in {"nodes": nodes, "pods": pods, "classes": classes}.items():
        renamed = json.dumps(obj).replace('"good"', '"bad"')  # the pod stays on its own node
        bad[kind] = [renamed.encode()]
    view = told(**bad)
    assert free(view) >= 3
    assert "good" in set(view.names())


@given(body=st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes(body: bytes) -> None:
    """Any bytes between two good objects leave at least one readable or the whole list refused, and never crash."""
    decoder: Decoder[Any] = Decoder(NODES.item_type)
    good = json.dumps(GOOD_NODE).encode()
    listing: Listing[Any] = Listing()
    try:
        decoder.add_page(listing, b'{"metadata":{"resourceVersion":"7"},"items":[' + good + b"," + body + b"]}")
    except Exception as error:  # noqa: BLE001 # only the stated one
        assert type(error).__name__ == "UnreadableError"  # noqa: PT017 # a bracket or a quote too many
    else:
        assert listing.objects[0].metadata.name == "good"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"kind":"Node","a":' + "9" * 5000 + "}", id="JSON with a number of 5,000 digits"),
        pytest.param("kind: Node\na: " + "9" * 5000, id="YAML with a number of 5,000 digits"),
        pytest.param('{"kind":"Node","a":' + "[" * 50_000 + "]" * 50_000 + "}", id="JSON nested without end"),
        pytest.param("a: " + "[" * 5_000 + "]" * 5_000, id="YAML nested without end"),
        pytest.param("kind: Node\nwhen: !!timestamp x", id="a tag that does not fit"),
    ],
)
def test_bad_dump(text: str) -> None:
    """A dump that no parser can read is refused in one sentence, not with a traceback."""
    with pytest.raises(SnapshotError):
        parse_snapshot(text)


@pytest.mark.parametrize("kind", ["Node", "Pod"])
@pytest.mark.parametrize("key", ["name", "namespace"])
def test_names_of_a_dump_can_be_written(kind: str, key: str) -> None:
    """A dump's object with a name that no answer can carry is left out and told of, and costs no other."""
    bad = {"name": "bad", "namespace": "ns", key: "\ud800"}
    good = GOOD_NODE if kind == "Node" else GOOD_POD
    items = [{"kind": kind, "apiVersion": "v1", **good}, {"kind": kind, "apiVersion": "v1", **good, "metadata": bad}]
    snapshot = parse_snapshot("".join(map(json.dumps, items)))
    is_left_out = (kind, key) != ("Node", "namespace")  # which is not read
    assert len(snapshot.rejected) == is_left_out
    assert len(snapshot.nodes) + len(snapshot.loads) == 2 - is_left_out


def test_taints_of_a_dump_can_be_written() -> None:
    """The same of what else of a node is told: its taints."""
    node = {**GOOD_NODE, "kind": "Node", "apiVersion": "v1", "spec": {"taints": [{"key": "\ud800", "effect": "x"}]}}
    snapshot = parse_snapshot(json.dumps(node))
    assert (len(snapshot.rejected), snapshot.nodes) == (1, [])
