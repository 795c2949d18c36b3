"""How many pods of a shape fit: on one node, on all, and what the question must look like."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.catalog.gpufit import read_question
from apiserver.cluster.view import View
from apiserver.gpu.capacity import MAX_PLACEMENT
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.fit import Room, Shape, most_on, most_on_each
from apiserver.gpu.nodes import NO_COMPUTE, Compute, Node
from apiserver.gpu.pods import Pod
from apiserver.gpu.tolerations import NO_SCHEDULE, Taint
from apiserver.serving.status import BadRequest

R = "nvidia.com/gpu"
CLASS = GPUClass("gpu", resource_name=R)
SHAPE = Shape(2, 500, 100)
ROOMY = Room("n", 8, Compute(10_000, 10_000, 110), NO_COMPUTE)


@pytest.mark.parametrize(
    ("room", "shape", "most"),
    [
        pytest.param(ROOMY, SHAPE, 4, id="devices decide"),
        pytest.param(ROOMY._replace(devices=9), SHAPE, 4, id="a device is left over"),
        pytest.param(ROOMY._replace(allocatable=Compute(1999, 10_000, 110)), SHAPE, 3, id="cpu decides"),
        pytest.param(ROOMY._replace(allocatable=Compute(10_000, 299, 110)), SHAPE, 2, id="memory decides"),
        pytest.param(ROOMY._replace(allocatable=Compute(10_000, 10_000, 1)), SHAPE, 1, id="slots decide"),
        pytest.param(ROOMY._replace(requested=Compute(9_000, 0, 1)), SHAPE, 2, id="other pods take cpu"),
        pytest.param(ROOMY._replace(requested=Compute(0, 9_950, 1)), SHAPE, 0, id="too little memory is left"),
        pytest.param(ROOMY._replace(requested=Compute(0, 0, 110)), SHAPE, 0, id="no slot is left"),
        pytest.param(ROOMY._replace(requested=Compute(11_000, 0, 1)), SHAPE, 0, id="over-committed is not negative"),
        pytest.param(
            ROOMY._replace(requested=Compute(11_000, 11_000, 1)),
            Shape(2),
            4,
            id="nobody looks at what is not asked for",
        ),
        pytest.param(ROOMY._replace(allocatable=NO_COMPUTE), Shape(2), 0, id="no slots at all"),
        pytest.param(ROOMY._replace(devices=1), SHAPE, 0, id="too few devices"),
        pytest.param(ROOMY, Shape(2, 2500, 10_000), 1, id="exactly all of it"),
    ],
)
def test_most_on(room: Room, shape: Shape, most: int) -> None:
    """The scarcest of what is asked for decides, in whole pods."""
    assert most_on(room, shape) == most


AMOUNTS = st.builds(Compute, st.integers(0, 20), st.integers(0, 20), st.integers(0, 8))
ROOMS = st.lists(st.builds(Room, st.just("n"), st.integers(0, 16), AMOUNTS, AMOUNTS), max_size=4)
SHAPES = st.builds(Shape, st.integers(1, 4), st.integers(0, 4), st.integers(0, 4))


def fits(room: Room, shape: Shape) -> bool:
    """Whether one pod passes fitsRequest, said as upstream says it."""
    allocatable, requested = room.allocatable, room.requested
    return (
        requested.pods + 1 <= allocatable.pods
        and not (shape.cpu_milli > 0 and shape.cpu_milli > allocatable.cpu_milli - requested.cpu_milli)
        and not (shape.memory_bytes > 0 and shape.memory_bytes > allocatable.memory_bytes - requested.memory_bytes)
        and shape.devices <= room.devices
    )


def place(room: Room, shape: Shape) -> Room:
    """The node with one more pod."""
    cpu_milli, memory_bytes, pods = room.requested
    requested = Compute(cpu_milli + shape.cpu_milli, memory_bytes + shape.memory_bytes, pods + 1)
    return room._replace(devices=room.devices - shape.devices, requested=requested)


@given(ROOMS, SHAPES, st.randoms())
def test_one_after_another(rooms: list[Room], shape: Shape, random: Any) -> None:  # noqa: ANN401 # hypothesis' Random
    """Placed one by one, in any order, on nodes that take them, as many are placed on each as is said."""
    left, placed = list(rooms), [0] * len(rooms)
    while open_ := [index for index, room in enumerate(left) if fits(room, shape)]:
        index = random.choice(open_)
        left[index] = place(left[index], shape)
        placed[index] += 1
    assert placed == [most_on(room, shape) for room in rooms]
    assert sum(placed) == sum(most for _, most in most_on_each(rooms, shape))


PODS = st.tuples(st.sampled_from("abcd"), st.integers(0, 900), st.integers(0, 9), st.integers(0, 3))


def view_of(pods: list[tuple[str, int, int, int]]) -> View:
    """Three nodes of 4 devices, one of them left out, and pods of so much cpu, memory and devices."""
    view = View()
    view.apply_class(CLASS)
    for name, taints in (("a", ()), ("b", ()), ("c", (Taint("t", "", NO_SCHEDULE),))):
        view.apply_node(Node(name, taints=taints, capacity={R: 4}, allocatable={R: 4}, compute=Compute(4_000, 40, 6)))
    for number, (node, cpu_milli, memory_bytes, devices) in enumerate(pods):
        key, load = ("ns", f"p{number}"), (node, cpu_milli, memory_bytes, False)
        view.loads.apply(key, load)
        if devices:
            view.apply_pod(Pod(*key, node, {R: devices}))
    return view


def total(view: View, shape: Shape) -> int:
    """How many fit."""
    return sum(most for _, most in most_on_each(view.rooms("gpu"), shape))


@given(st.lists(PODS, max_size=6), PODS, SHAPES)
def test_another_pod_never_raises_it(pods: list[Any], another: Any, shape: Shape) -> None:  # noqa: ANN401 # a pod
    """Whatever a pod asks for, with it there no more fit than without."""
    assert total(view_of([*pods, another]), shape) <= total(view_of(pods), shape)


@given(st.lists(PODS, max_size=6), st.integers(1, MAX_PLACEMENT))
def test_devices_alone_are_the_placement(pods: list[Any], devices: int) -> None:
    """Where nothing but devices is scarce, the fit is what the page of the class calls placement."""
    view = view_of(pods)
    for name in "abc":
        (node,) = (each for each in view_nodes(view) if each.name == name)
        view.apply_node(replace(node, compute=Compute(0, 0, 1000)))
    report = view.report("gpu")
    assert report is not None
    assert total(view, Shape(devices)) == dict(report.tally.placement(devices))[devices]


def view_nodes(view: View) -> list[Node]:
    """The nodes of a view."""
    return list(view._nodes.values())  # noqa: SLF001 # nobody else needs them


def test_rooms_are_a_picture_of_now() -> None:
    """What is told while the answer is worked out does not change it."""
    view = view_of([("a", 1000, 10, 1)])
    rooms = view.rooms("gpu")
    view.loads.apply(("ns", "late"), ("b", 4_000, 40, False))
    view.apply_pod(Pod("ns", "late", "b", {R: 4}))
    view.delete_node("a")
    free = Compute(4_000, 40, 6)
    assert list(rooms) == [Room("a", 3, free, Compute(1000, 10, 1)), Room("b", 4, free, NO_COMPUTE)]


def ask(**parameters: str | list[str]) -> dict[str, list[str]]:
    """Parameters, of which a list stands for one that is given several times."""
    whole = {"devices": "2", "cpu": "8", "memory": "64Gi", **parameters}
    return {name: value if isinstance(value, list) else [value] for name, value in whole.items()}


@pytest.mark.parametrize(
    ("parameters", "shape", "count"),
    [
        pytest.param(ask(), Shape(2, 8000, 64 * 2**30), 100, id="the default count"),
        pytest.param(ask(devices="64", count="100000"), Shape(64, 8000, 64 * 2**30), 100_000, id="the most"),
        pytest.param(ask(cpu="0", memory="0", count="1"), Shape(2), 1, id="nothing but devices"),
        pytest.param(ask(cpu="1u", memory="1m"), Shape(2, 1, 1), 100, id="rounded up"),
        pytest.param(ask(cpu=" 8"), Shape(2, 8000, 64 * 2**30), 100, id="a plus sign that was not escaped"),
    ],
)
def test_question(parameters: Any, shape: Shape, count: int) -> None:  # noqa: ANN401 # parameters
    """A question in range is understood."""
    question = read_question(parameters, CLASS, 0)
    assert (question.shape, question.count) == (shape, count)
    assert "memoryOverhead" not in question.said


def test_memory_overhead() -> None:
    """What a launcher takes is added to each pod, and the answer says so."""
    question = read_question(ask(memory="1Gi"), CLASS, 300 * 2**20)
    assert question.shape.memory_bytes == 2**30 + 300 * 2**20
    assert question.said == {
        "devices": 2,
        "cpu": "8",
        "memory": "1Gi",
        "count": 100,
        "memoryOverhead": str(300 * 2**20),
    }


@pytest.mark.parametrize(
    ("parameters", "fields"),
    [
        pytest.param({}, ["devices", "cpu", "memory"], id="nothing"),
        *(
            pytest.param(ask(devices=value), ["devices"], id=f"devices={value}")
            for value in ("0", "65", "-1", "1.0", "")
        ),
        pytest.param(ask(devices="\u0663"), ["devices"], id="digits that are not ASCII"),
        pytest.param(ask(devices="9" * 5000), ["devices"], id="very many digits"),
        *(
            pytest.param(ask(cpu=value), ["cpu"], id=f"cpu={value}")
            for value in ("-1", "eight", "", "1e99", "10P", "NaN")
        ),
        *(pytest.param(ask(memory=value), ["memory"], id=f"memory={value}") for value in ("-1Gi", "64GB", "", "9Ei9")),
        *(pytest.param(ask(count=value), ["count"], id=f"count={value}") for value in ("0", "100001", "-5", "", "x")),
        pytest.param(ask(devices=["1", "1"], count=["1", "2"]), ["devices", "count"], id="given twice"),
        pytest.param(ask(gpus="1", Devices="1"), ["Devices", "gpus"], id="unknown"),
        pytest.param(ask(cpu="?", memory="?", other="?"), ["cpu", "memory", "other"], id="all of it at once"),
    ],
)
def test_bad_question(parameters: Any, fields: list[str]) -> None:  # noqa: ANN401 # parameters
    """Every parameter that is missing, wrong, given twice or unknown is named."""
    with pytest.raises(BadRequest) as caught:
        read_question(parameters, CLASS, 0)
    assert [cause["field"] for cause in caught.value.details["causes"]] == fields
    assert all(f"{field}: " in caught.value.message for field in fields)
    assert len(caught.value.message) < 1000


def test_more_than_the_class_allows() -> None:
    """A shape that no instance of the class may have is refused: no waiting would make it fit."""
    limited = replace(CLASS, max_count=2)
    assert read_question(ask(devices="2"), limited, 0).shape.devices == 2
    with pytest.raises(BadRequest, match="maxCount"):
        read_question(ask(devices="3"), limited, 0)


@given(
    st.dictionaries(
        st.sampled_from(["devices", "cpu", "memory", "count", "x"]), st.lists(st.text(max_size=8), max_size=2)
    )
)
def test_any_question(parameters: dict[str, list[str]]) -> None:
    """Any parameters are understood within the bounds or refused, and nothing else."""
    try:
        question = read_question(parameters, CLASS, 0)
    except BadRequest:
        return
    assert 1 <= question.shape.devices <= MAX_PLACEMENT
    assert 1 <= question.count <= 100_000
    assert min(question.shape.cpu_milli, question.shape.memory_bytes) >= 0
    assert math.isfinite(question.shape.cpu_milli)
