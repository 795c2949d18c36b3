"""Which tolerations endure, by the taint eviction controller: the second judge of the model.

Each case has a Node and a Pod of its own; all are tainted at once, and after one wait it is seen who was told to go.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest

from apiserver.gpu.classes import parse_class
from apiserver.gpu.tolerations import Taint, temporarily_tolerated, untolerated
from tests.cluster.admission import tolerating
from tests.cluster.binaries import Binaries
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.workload import NODES, create_node, create_pod, node, pod

# Alone the eviction controller finds no index of the Pods.
CONTROLLERS = ("taint-eviction-controller", "node-lifecycle-controller")
SOON = 2
"""Seconds of a toleration that ends."""

GRACE_SECONDS = 3
"""How long the controller may be late."""

GPU = {"key": "gpu", "value": "only", "effect": "NoExecute"}
SICK = {"key": "example.com/sick", "effect": "NoExecute"}


@dataclass(frozen=True, slots=True)
class Case:
    """Tolerations of a Pod, whether it stays, and the taints that its Node gets."""

    tolerations: Sequence[Json]
    stays: bool
    taints: Sequence[Json] = (GPU,)


def exists(key: str = "gpu", seconds: int | None = None) -> Json:
    """A toleration of any value of a NoExecute taint, for ever or for some seconds."""
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"key": key, "operator": "Exists", "effect": "NoExecute", **limit}


def equal(value: str, seconds: int | None = None) -> Json:
    """A toleration of one value of the NoExecute taint, for ever or for some seconds."""
    return {**exists(seconds=seconds), "operator": "Equal", "value": value}


CASES = {
    "none": Case([], stays=False),
    "one without end": Case([exists()], stays=True),
    "one that ends": Case([exists(seconds=SOON)], stays=False),
    "one of no seconds": Case([exists(seconds=0)], stays=False),
    "one of negative seconds": Case([exists(seconds=-5)], stays=False),
    "first one that ends, then one without": Case([exists(seconds=SOON), exists()], stays=False),
    "first one without end, then one that ends": Case([exists(), exists(seconds=SOON)], stays=True),
    "first one of no seconds, then one without end": Case([exists(seconds=0), exists()], stays=False),
    "first one without end, then one of negative seconds": Case([exists(), exists(seconds=-5)], stays=True),
    "two that end": Case([exists(seconds=SOON), exists(seconds=1)], stays=False),
    "everything without end": Case([{"operator": "Exists"}], stays=True),
    "everything of the effect for a while, then the key without end": Case(
        [exists("", seconds=SOON), exists()], stays=False
    ),
    "the key without end, then everything of the effect for a while": Case(
        [exists(), exists("", seconds=SOON)], stays=True
    ),
    "every effect of the key": Case([{"key": "gpu", "operator": "Exists"}], stays=True),
    "every effect of the key, after one that ends": Case(
        [exists(seconds=SOON), {"key": "gpu", "operator": "Exists"}], stays=False
    ),
    "another effect of the key": Case([{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}], stays=False),
    "another effect first, then one without end": Case(
        [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, exists()], stays=True
    ),
    "the value": Case([equal("only")], stays=True),
    "the value without an operator": Case([{"key": "gpu", "value": "only"}], stays=True),
    "another value": Case([equal("other")], stays=False),
    "another value for a while, then the value without end": Case(
        [equal("other", seconds=SOON), equal("only")], stays=True
    ),
    "another value without end, then the value for a while": Case(
        [equal("other"), equal("only", seconds=SOON)], stays=False
    ),
    "no value where the taint has one": Case([{"key": "gpu"}], stays=False),
    "no value where the taint has none": Case([{"key": SICK["key"]}], stays=True, taints=[SICK]),
    "another key": Case([exists("gpus")], stays=False),
    "one of two taints": Case([exists()], stays=False, taints=[GPU, SICK]),
    "two taints without end": Case([exists(), exists(SICK["key"])], stays=True, taints=[GPU, SICK]),
    "two taints, the second for a while": Case(
        [exists(), exists(SICK["key"], seconds=SOON)], stays=False, taints=[GPU, SICK]
    ),
    "two taints, each first without end": Case(
        [exists(), exists(SICK["key"]), exists("", seconds=SOON)], stays=True, taints=[GPU, SICK]
    ),
    "two taints, one first for a while by the empty key": Case(
        [exists(), exists("", seconds=SOON), exists(SICK["key"])], stays=False, taints=[GPU, SICK]
    ),
}
NUMBERED = [pytest.param(number, case, id=sentence) for number, (sentence, case) in enumerate(CASES.items())]


@pytest.fixture(scope="module")
def staying(binaries: Binaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[str]]:
    """The names of the Pods that the controller leaves alone."""
    directory = tmp_path_factory.mktemp("eviction")
    with ControlPlane(binaries, directory, controllers=CONTROLLERS, scheduler=False) as control_plane:
        yield judge(control_plane.client)


def judge(client: Client) -> set[str]:
    """Bind a Pod of each case to its Node, taint the Nodes, wait, and return the names of those that may stay."""
    pods = [bind_case(client, f"case-{number}", case) for number, case in enumerate(CASES.values())]
    last = bind_case(client, "last", Case([exists(seconds=SOON)], stays=False))
    before = remaining(client)
    assert before == {each["metadata"]["name"] for each in [*pods, last]}
    for number, case in enumerate(CASES.values()):
        taint(client, f"case-{number}", case)
    taint(client, "last", Case([], stays=False))
    wait_for(lambda: "last" not in remaining(client), "the last Pod to be told to go")
    time.sleep(GRACE_SECONDS)
    return remaining(client)


def bind_case(client: Client, name: str, case: Case) -> Json:
    """Make a Node, and a Pod of the case bound to it."""
    create_node(client, node(name))
    return create_pod(client, pod(name, node=name, spec={"tolerations": case.tolerations}))


def taint(client: Client, name: str, case: Case) -> None:
    """Give a Node the case's taints, all at once."""
    client.patch(f"{NODES}/{name}", {"spec": {"taints": case.taints}})


def remaining(client: Client) -> set[str]:
    """The names of the Pods that were not told to go; without a kubelet none really goes."""
    pods = client.items("/api/v1/pods")
    return {each["metadata"]["name"] for each in pods if "deletionTimestamp" not in each["metadata"]}


@pytest.mark.parametrize(("number", "case"), NUMBERED)
def test_eviction_is_as_the_table_says(staying: set[str], number: int, case: Case) -> None:
    """The first toleration that matches a NoExecute taint decides, for each taint."""
    assert (f"case-{number}" in staying) is case.stays


@pytest.mark.parametrize(("number", "case"), NUMBERED)
def test_model_calls_enduring_what_stays(staying: set[str], number: int, case: Case) -> None:
    """The model finds nothing untolerated and nothing temporary exactly where the controller leaves the Pod alone."""
    tolerations = parse_class(tolerating(*case.tolerations)).tolerations
    taints = [Taint(each["key"], each.get("value", ""), each["effect"]) for each in case.taints]
    is_enduring = not untolerated(taints, tolerations) and not temporarily_tolerated(taints, tolerations)
    assert is_enduring is (f"case-{number}" in staying)
