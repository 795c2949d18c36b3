"""The shapes of Pods: where in a Pod devices can be asked for, or be said to be held."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tests.cluster.client import Json
from tests.cluster.oracle.dice import Dice
from tests.cluster.oracle.quantities import Written, beyond, cpu_and_memory, fraction, spelled
from tests.cluster.workload import IMAGE

GROUP = "pod shape"
MAIN, SIDECAR = "main", "sidecar"
FRACTIONS = "fractions in several containers"
UNLIKE_LIMIT = "a request unlike its limit"
NOTHING_ASKED = "no resources at all"
NOT_WHOLE = (FRACTIONS, UNLIKE_LIMIT)

Part = tuple[Json, Json]
"""The fields of a Pod's spec and of its status."""


@dataclass(frozen=True, slots=True)
class Resource:
    """The name of a cluster's devices.

    Attributes:
        name: what the class sells.
        decoy: another name, alike but for the case.
        whole: whether kube-apiserver insists on whole numbers of it, and on limits like the requests.
        beside: whether Pods ask for cpu and memory beside it, each as it comes.
    """

    name: str
    decoy: str
    whole: bool
    beside: bool = False


def shape_names(resource: Resource) -> list[str]:
    """The shapes that kube-apiserver lets a Pod have with such devices."""
    names = [*SHAPES, *(BESIDE if resource.beside else ())]
    return [name for name in names if not (resource.whole and name in NOT_WHOLE)]


def pod_parts(dice: Dice, resource: Resource, shape: str = "") -> Part:
    """The spec and the status of a Pod of some shape, or of the one given."""
    name = dice.name(GROUP, [shape] if shape else shape_names(resource))
    return (SHAPES.get(name) or BESIDE[name])(_Pod(dice, resource))


class _Pod:
    """What a shape is made with."""

    def __init__(self, dice: Dice, resource: Resource) -> None:
        self.dice = dice
        self.resource = resource

    def some(self, low: int = 1, high: int = 3) -> Written:
        """From low to high devices, in some spelling."""
        return spelled(self.dice, self.dice.number(low, high))

    def of(self, quantity: Written) -> dict[str, Written]:
        """So many devices, as a map of resources."""
        return {self.resource.name: quantity, **self.beside()}

    def beside(self) -> dict[str, Written]:
        """Some cpu and some memory, or not, where Pods ask for it."""
        return cpu_and_memory(self.dice) if self.resource.beside else {}

    def asking(self, name: str, quantity: Written, **more: object) -> Json:
        """A container that asks for so many devices."""
        devices = self.of(quantity)
        return {"name": name, "image": IMAGE, "resources": {"requests": devices, "limits": devices}, **more}

    def idle(self, name: str = MAIN) -> Json:
        """A container that asks for no device."""
        requests = {"cpu": "10m", "memory": "1Mi", **self.beside()}
        return {"name": name, "image": IMAGE, "resources": {"requests": requests}}

    def sidecar(self, quantity: Written, name: str = SIDECAR) -> Json:
        """An init container that goes on running."""
        return self.asking(name, quantity, restartPolicy="Always")

    def status(self, name: str, allocated: Mapping[str, Written] | None, held: Mapping[str, Written] | None) -> Json:
        """What a kubelet says a container has; None leaves the map out."""
        said: Json = {"name": name, "image": "", "imageID": "", "ready": True, "restartCount": 0}
        if allocated is not None:
            said["allocatedResources"] = allocated
        if held is not None:
            said["resources"] = {"requests": held}
        return said


def _resize(*reasons: str) -> list[Json]:
    return [{"type": "PodResizePending", "status": "True", "reason": reason} for reason in reasons]


def _containers(*containers: Json, init: Iterable[Json] = (), **more: object) -> Part:
    spec: Json = {"containers": list(containers), **more}
    init = list(init)
    return ({**spec, "initContainers": init} if init else spec), {}


def _one(pod: _Pod) -> Part:
    return _containers(pod.asking(MAIN, pod.some()))


def _several(pod: _Pod) -> Part:
    return _containers(*(pod.asking(f"c{number}", pod.some(1, 2)) for number in range(pod.dice.number(2, 3))))


def _init(pod: _Pod) -> Part:
    return _containers(pod.asking(MAIN, pod.some(1, 2)), init=[pod.asking("init", pod.some(2, 4))])


def _several_init(pod: _Pod) -> Part:
    init = [pod.asking(f"i{number}", pod.some(1, 3)) for number in range(pod.dice.number(2, 3))]
    return _containers(pod.asking(MAIN, pod.some(1, 3)), init=init)


def _init_alone(pod: _Pod) -> Part:
    return _containers(pod.idle(), init=[pod.asking("init", pod.some())])


def _sidecar(pod: _Pod) -> Part:
    return _containers(pod.asking(MAIN, pod.some(1, 2)), init=[pod.sidecar(pod.some(1, 2))])


def _sidecar_alone(pod: _Pod) -> Part:
    return _containers(pod.idle(), init=[pod.sidecar(pod.some())])


def _sidecar_before_init(pod: _Pod) -> Part:
    return _containers(
        pod.asking(MAIN, pod.some(1, 1)), init=[pod.sidecar(pod.some()), pod.asking("init", pod.some(2, 3))]
    )


def _sidecar_after_init(pod: _Pod) -> Part:
    return _containers(
        pod.asking(MAIN, pod.some(1, 1)), init=[pod.asking("init", pod.some(3, 5)), pod.sidecar(pod.some(1, 2))]
    )


def _sidecars_around_init(pod: _Pod) -> Part:
    init = [pod.sidecar(pod.some(), "s0"), pod.asking("init", pod.some(1, 4)), pod.sidecar(pod.some(), "s1")]
    return _containers(pod.asking(MAIN, pod.some(1, 1)), init=init)


def _overhead(pod: _Pod) -> Part:
    return _containers(pod.asking(MAIN, pod.some(1, 2)), overhead=pod.of(pod.some(1, 2)))


def _overhead_alone(pod: _Pod) -> Part:
    return _containers(pod.idle(), overhead={**pod.of(pod.some()), "cpu": "10m"})


def _overhead_and_init(pod: _Pod) -> Part:
    return _containers(
        pod.asking(MAIN, pod.some(1, 1)), init=[pod.asking("init", pod.some(2, 3))], overhead=pod.of(pod.some(1, 2))
    )


def _limits_alone(pod: _Pod) -> Part:
    limited = [{**pod.idle(f"c{number}"), "resources": {"limits": pod.of(pod.some(1, 2))}} for number in range(2)]
    return _containers(limited[0], init=[limited[1]])


def _zero(pod: _Pod) -> Part:
    return _containers(pod.asking(MAIN, pod.some(0, 0)))


def _other_resources(pod: _Pod) -> Part:
    container = pod.asking(MAIN, pod.some())
    others = {"cpu": "100m", "memory": "64Mi", "ephemeral-storage": "1Gi", "other.example/fpga": "2"}
    container["resources"] = {kind: {**others, **devices} for kind, devices in container["resources"].items()}
    return _containers(container)


def _decoy(pod: _Pod) -> Part:
    decoy = {pod.resource.decoy: "3"}
    return _containers({**pod.idle(), "resources": {"requests": decoy, "limits": decoy}})


def _pod_level(pod: _Pod) -> Part:
    level = {"cpu": "1", "memory": "1Gi"}
    return _containers(pod.asking(MAIN, pod.some()), resources={"requests": level, "limits": level})


def _host_network(pod: _Pod) -> Part:
    return _containers(pod.asking(MAIN, pod.some()), hostNetwork=True)


def _beyond(pod: _Pod) -> Part:
    return _containers(pod.asking(MAIN, beyond(pod.dice)))


def _growing(pod: _Pod) -> Part:
    """The spec already asks for more than the status has."""
    spec, _ = _containers(pod.asking(MAIN, pod.some(3, 4)))
    less = pod.of(pod.some(1, 2))
    return spec, {"containerStatuses": [pod.status(MAIN, less, less)]}


def _allocated_more(pod: _Pod) -> Part:
    spec, _ = _containers(pod.asking(MAIN, pod.some(1, 1)))
    return spec, {"containerStatuses": [pod.status(MAIN, pod.of(pod.some(2, 4)), pod.of(pod.some(1, 1)))]}


def _holding_more(pod: _Pod) -> Part:
    spec, _ = _containers(pod.asking(MAIN, pod.some(1, 1)), pod.asking("second", pod.some(1, 1)))
    said = [pod.status(MAIN, pod.of(pod.some(1, 1)), pod.of(pod.some(2, 4))), pod.status("second", None, None)]
    return spec, {"containerStatuses": said}


def _init_allocated_more(pod: _Pod) -> Part:
    spec, _ = _containers(pod.asking(MAIN, pod.some(1, 1)), init=[pod.sidecar(pod.some(1, 1))])
    said = [pod.status(SIDECAR, pod.of(pod.some(2, 3)), None)]
    return spec, {"initContainerStatuses": said, "containerStatuses": [pod.status(MAIN, None, None)]}


def _said_nothing(pod: _Pod) -> Part:
    spec, _ = _containers(pod.asking(MAIN, pod.some()))
    return spec, {"containerStatuses": [pod.status(MAIN, {"cpu": "1"}, {"cpu": "1"})]}


def _stranger(pod: _Pod) -> Part:
    spec, _ = _containers(pod.asking(MAIN, pod.some(1, 2)))
    held = pod.of(pod.some(3, 4))
    return spec, {"containerStatuses": [pod.status("stranger", held, held)]}


def _infeasible(pod: _Pod) -> Part:
    spec, status = _growing(pod)
    return spec, {**status, "conditions": _resize("Infeasible")}


def _infeasible_unsaid(pod: _Pod) -> Part:
    spec, _ = _containers(pod.asking(MAIN, pod.some(2, 3)), pod.asking("second", pod.some()))
    held = pod.of(pod.some(1, 1))
    said = [pod.status("second", held, held)] if pod.dice.chance(0.5) else []
    return spec, {"containerStatuses": said, "conditions": _resize("Infeasible")}


def _deferred(pod: _Pod) -> Part:
    spec, status = _growing(pod)
    reasons = pod.dice.one([("Deferred",), ("Deferred", "Infeasible"), ("Infeasible", "Deferred")])
    return spec, {**status, "conditions": _resize(*reasons)}


def _level_status(pod: _Pod) -> Part:
    spec, _ = _containers(pod.asking(MAIN, pod.some(1, 1)), overhead=pod.of(pod.some(0, 1)))
    said = {"allocatedResources": pod.of(pod.some(2, 4)), "resources": {"requests": pod.of(pod.some(1, 4))}}
    return spec, {**said, "containerStatuses": [pod.status(MAIN, pod.of(pod.some(1, 1)), None)]}


def _half_level_status(pod: _Pod) -> Part:
    spec, status = _level_status(pod)
    kept = pod.dice.one(["allocatedResources", "resources"])
    return spec, {key: value for key, value in status.items() if key in (kept, "containerStatuses")}


def _fractions(pod: _Pod) -> Part:
    parts = [pod.asking(f"c{number}", fraction(pod.dice)) for number in range(pod.dice.number(1, 4))]
    init = [pod.sidecar(fraction(pod.dice))] if pod.dice.chance(0.3) else []
    return _containers(*parts, init=init)


def _unlike_limit(pod: _Pod) -> Part:
    container = pod.asking(MAIN, pod.some(1, 2))
    container["resources"]["limits"] = {**container["resources"]["requests"], pod.resource.name: pod.some(3, 5)}
    return _containers(container)


SHAPES: Mapping[str, Callable[[_Pod], Part]] = {
    "one container": _one,
    "several containers": _several,
    "an init container": _init,
    "several init containers": _several_init,
    "an init container alone": _init_alone,
    "a sidecar": _sidecar,
    "a sidecar alone": _sidecar_alone,
    "a sidecar before an init container": _sidecar_before_init,
    "a sidecar after an init container": _sidecar_after_init,
    "sidecars around an init container": _sidecars_around_init,
    "overhead": _overhead,
    "overhead alone": _overhead_alone,
    "overhead and an init container": _overhead_and_init,
    "limits alone": _limits_alone,
    "a request of zero": _zero,
    "other resources too": _other_resources,
    "a name alike but for the case": _decoy,
    "pod-level cpu and memory": _pod_level,
    "host network": _host_network,
    "a request beyond int64": _beyond,
    "a resize up under way": _growing,
    "more allocated than asked for": _allocated_more,
    "more held than allocated": _holding_more,
    "more allocated to a sidecar": _init_allocated_more,
    "a status without the device": _said_nothing,
    "a status of an unknown container": _stranger,
    "an infeasible resize": _infeasible,
    "an infeasible resize without a status": _infeasible_unsaid,
    "a deferred resize": _deferred,
    "a pod-level status": _level_status,
    "half a pod-level status": _half_level_status,
    FRACTIONS: _fractions,
    UNLIKE_LIMIT: _unlike_limit,
}


def _without_devices(pod: _Pod) -> Part:
    return _containers(pod.idle(), pod.idle("second"))


def _without_anything(_: _Pod) -> Part:
    return _containers({"name": MAIN, "image": IMAGE})


def _peak(pod: _Pod) -> Part:
    init = {"name": "init", "image": IMAGE, "resources": {"requests": {"cpu": "1500m", "memory": "1500Mi"}}}
    return _containers(pod.idle(), init=[init])


def _heavy_overhead(pod: _Pod) -> Part:
    return _containers(pod.idle(), overhead={"cpu": "1", "memory": "1Gi"})


def _level_over_containers(pod: _Pod) -> Part:
    level = {"cpu": "2", "memory": "2Gi"}
    only = pod.dice.one([level, {"cpu": "2"}, {"memory": "2Gi"}])
    overhead = pod.beside() if pod.dice.chance(0.3) else {}
    return _containers(pod.idle(), pod.idle("second"), resources={"requests": only}, overhead=overhead)


def _level_resized(pod: _Pod) -> Part:
    spec, _ = _level_over_containers(pod)
    said = {"allocatedResources": {"cpu": "2500m", "memory": "1Gi"}, "resources": {"requests": {"memory": "3Gi"}}}
    return spec, said


def _level_infeasible(pod: _Pod) -> Part:
    spec, _ = _level_over_containers(pod)
    allocated, held = pod.beside(), pod.beside()
    said = {"allocatedResources": allocated, "resources": {"requests": held}, "conditions": _resize("Infeasible")}
    return spec, {key: value for key, value in said.items() if key != pod.dice.one(["", "allocatedResources"])}


def _compute_resized(pod: _Pod) -> Part:
    spec, _ = _containers(pod.idle(), pod.idle("second"))
    more = {"cpu": "1200m", "memory": "1200Mi"}
    return spec, {"containerStatuses": [pod.status(MAIN, more, pod.beside()), pod.status("second", None, more)]}


def _level_status_alone(pod: _Pod) -> Part:
    spec, _ = _containers(pod.idle())
    more = {"cpu": "1700m", "memory": "1700Mi"}
    allocated, held = (more, pod.beside()) if pod.dice.chance(0.5) else (pod.beside(), more)
    return spec, {"allocatedResources": allocated, "resources": {"requests": held}}


BESIDE: Mapping[str, Callable[[_Pod], Part]] = {
    "no devices": _without_devices,
    NOTHING_ASKED: _without_anything,
    "a large init container": _peak,
    "a large overhead": _heavy_overhead,
    "pod-level requests": _level_over_containers,
    "pod-level requests resized": _level_resized,
    "pod-level requests resized in vain": _level_infeasible,
    "cpu and memory resized": _compute_resized,
    "cpu and memory resized, said of the pod": _level_status_alone,
}
"""Shapes in which cpu and memory matter more than devices."""
