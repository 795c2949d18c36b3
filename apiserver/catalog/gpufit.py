"""`gpuclasses/fit`: how many pods of one shape would be placed now, and which nodes would take them."""

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from apiserver.catalog.gpuclasscatalog import notes
from apiserver.catalog.gpuclasses import API_VERSION, int64
from apiserver.cluster.view import View
from apiserver.gpu.classes import GPUClass
from apiserver.gpu.fit import DEFAULT_COUNT, MAX_COUNT, MAX_DEVICES, Shape, most_on_each
from apiserver.gpu.quantity import MAX_VALUE, MalformedQuantityError, parse_milli, whole
from apiserver.serving.resources import Parameters
from apiserver.serving.status import BadRequest
from apiserver.serving.tables import Column, Layout, Object

KIND: Final = "GPUFit"
AT_ONCE: Final = 2
"""How many are worked out at once."""

_NODES_AT_ONCE: Final = 250
"""Nodes in one slice, 1 to 2 ms: between slices the event loop does other things."""

_NAMED_PODS: Final = 3
_DIGITS: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        shape: of one pod, the overhead of its launcher included.
        count: how many are wanted.
        said: the question as the answer repeats it.
    """

    shape: Shape
    count: int
    said: Mapping[str, Any]


async def fit_object(view: View, name: str, parameters: Parameters, memory_overhead: int) -> dict[str, Any] | None:
    """The answer for one class, or None when there is no such class.

    It is of one moment, though it is worked out in slices.

    Args:
        view: the live view.
        name: of the class.
        parameters: what was asked.
        memory_overhead: bytes that every pod takes beyond what was asked.

    Raises:
        BadRequest: a parameter is missing, unknown or wrong.
    """
    report = view.report(name)
    if report is None:
        return None
    question = read_question(parameters, report.gpu_class, memory_overhead)
    page: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": dict(report.gpu_class.metadata),
        "request": question.said,
        "offered": report.offer.offered,
        "reason": str(report.offer.reason),
        "message": report.offer.message,
        "notes": [*notes(view, report.gpu_class), *_unreadable(view)],
    }
    rooms, nodes = view.rooms(name), list[tuple[str, int]]()
    while part := list(islice(rooms, _NODES_AT_ONCE)):
        nodes += most_on_each(part, question.shape)
        await asyncio.sleep(0)
    total = sum(most for _, most in nodes)
    page["fits"] = min(total, question.count)
    page["countReached"] = total >= question.count
    page["nodes"] = [{"name": node, "count": int64(most)} for node, most in nodes]
    return page


def read_question(parameters: Parameters, gpu_class: GPUClass, memory_overhead: int) -> Question:
    """Read and check the parameters.

    Raises:
        BadRequest: naming every one that is missing, unknown or wrong.
    """
    reader = _Reader(parameters)
    devices = reader.read("devices", lambda text: _devices(text, gpu_class))
    cpu_milli = reader.read("cpu", _cpu_milli)
    memory_bytes = reader.read("memory", _memory_bytes)
    count = reader.read("count", lambda text: _number(text, MAX_COUNT), DEFAULT_COUNT)
    reader.finish()
    quantities = {name: parameters[name][0].strip() for name in ("cpu", "memory")}
    said = {"devices": devices, **quantities, "count": count}
    if memory_overhead:
        said["memoryOverhead"] = str(memory_overhead)
    return Question(Shape(devices, cpu_milli, memory_bytes + memory_overhead), count, said)


class _Reader:
    """Reads parameters and collects what is wrong with them."""

    def __init__(self, parameters: Parameters) -> None:
        self._parameters = parameters
        self._known: list[str] = []
        self._causes: list[dict[str, str]] = []

    def read(self, name: str, parse: Callable[[str], int], default: int | None = None) -> int:
        """The one value; what stands for a wrong one does not matter, for finish raises."""
        self._known.append(name)
        values = self._parameters.get(name, ())
        if not values and default is not None:
            return default
        if len(values) != 1:
            self._wrong(name, "must be given once" if values else "is required")
            return 1
        try:
            return parse(values[0].strip())
        except ValueError as error:
            self._wrong(name, str(error))
            return 1

    def finish(self) -> None:
        """Refuse what is wrong, and what nobody has read.

        Raises:
            BadRequest: with all of it.
        """
        for name in sorted(self._parameters.keys() - set(self._known)):
            self._wrong(name, f"cannot be asked for; there are {', '.join(self._known)}")
        if self._causes:
            message = "; ".join(f"{cause['field']}: {cause['message']}" for cause in self._causes)
            raise BadRequest(message, details={"causes": self._causes})

    def _wrong(self, name: str, rule: str) -> None:
        self._causes.append({"reason": "FieldValueInvalid", "message": rule, "field": name})


def _number(text: str, most: int) -> int:
    if not _DIGITS.fullmatch(text) or not 1 <= int(text) <= most:
        raise ValueError(f"must be a whole number between 1 and {most}")
    return int(text)


def _devices(text: str, gpu_class: GPUClass) -> int:
    devices = _number(text, MAX_DEVICES)
    if gpu_class.max_count is not None and devices > gpu_class.max_count:
        # An answer of 0 would read as "not now", but no waiting helps.
        raise ValueError(f"must be at most {gpu_class.max_count}, the spec.maxCount of the class")
    return devices


def _milli(text: str) -> int:
    try:
        milli = parse_milli(text)
    except MalformedQuantityError:
        raise ValueError("must be a quantity within int64, such as 8, 500m or 64Gi") from None
    if milli < 0:
        raise ValueError("must not be negative")
    return milli


def _cpu_milli(text: str) -> int:
    milli = _milli(text)
    if milli > MAX_VALUE:
        raise ValueError("must be within int64 when it is counted in thousandths")
    return milli


def _memory_bytes(text: str) -> int:
    return whole(_milli(text))


def _unreadable(view: View) -> list[str]:
    """Pods that take less here than they do in truth."""
    pods = list(view.loads.unreadable)
    if not pods:
        return []
    named = ", ".join(pods[:_NAMED_PODS])
    return [f"Of {len(pods)} pods cpu or memory cannot be read and counts as 0: {named}."]


def _rows(page: Object) -> list[Object]:
    return list(page["nodes"])


LAYOUT: Final = Layout(
    columns=(
        Column("Node", lambda node, _: node["name"], "Name of the node.", format="name"),
        Column("Count", lambda node, _: node["count"], "The most such pods it would take.", type="integer"),
    ),
    rows=_rows,
)
