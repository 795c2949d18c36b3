"""What admission of GPUClasses must accept and refuse: tables from a sentence to a case, judged in `test_admission.py`.

A refused case names the field that kube-apiserver must put the blame on, and no other.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from tests.cluster.client import Json

UNSET = object()
"""In place of a field: leave it out."""

LONGEST_DOMAIN = ".".join(["d" * 60] * 3 + ["d" * 61])
"""244 characters of DNS subdomain: the most with which "requests." in front stays within 253."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A GPUClass, and the path of the field for which it is refused."""

    gpu_class: Json
    field: str


@dataclass(frozen=True, slots=True)
class Change:
    """A merge patch, and the paths of the fields for which it is refused; without any it is accepted."""

    patch: Json
    fields: frozenset[str] = frozenset()


def gpu_class(name: str = "example", **spec: object) -> Json:
    """A GPUClass for a vGPU that everything is right with, but for the fields of its spec given here."""
    fields: Json = {
        "vendor": "NVIDIA",
        "model": "L40S",
        "mode": "vgpu",
        "profile": "L40S-24C",
        "memory": "24Gi",
        "source": {"devicePlugin": {"resourceName": "nvidia.com/NVIDIA_L40S-24C"}},
        **spec,
    }
    given = {key: copy.deepcopy(value) for key, value in fields.items() if value is not UNSET}
    return {"apiVersion": "cozystack.io/v1alpha1", "kind": "GPUClass", "metadata": {"name": name}, "spec": given}


def passthrough(**spec: object) -> Json:
    """A GPUClass for whole cards."""
    whole = gpu_class(mode="passthrough", profile=UNSET)
    return {**whole, "spec": {**whole["spec"], **spec}}


def of_resource(name: str) -> Json:
    """A GPUClass whose devices have this resource name."""
    return gpu_class(source={"devicePlugin": {"resourceName": name}})


def tolerating(*tolerations: Json) -> Json:
    """A GPUClass with these tolerations."""
    return gpu_class(tolerations=list(tolerations))


def _with(key: str, value: object) -> Json:
    spec: dict[str, Any] = {key: value}
    return gpu_class(**spec)


TEXTS = ("vendor", "model", "profile")

MEMORY: Mapping[str, str | int] = {
    "with a binary suffix": "24Gi",
    "in smaller units": "24576Mi",
    "as a number of bytes": 25769803776,
    "with a fraction": "1.5Gi",
    "with nothing before the point": ".5Gi",
    "with nothing after the point": "24.Gi",
    "with an exponent": "24e9",
    "with an upper-case exponent": "1E10",
    "with an exponent of two digits": "1e18",
    "with a negative exponent": "1000e-2",
    "with an upper-case E for exa": "1E",
    "with a plus sign": "+24Gi",
    "with a decimal suffix": "1k",
    "in thousandths": "1500m",
    "with leading zeros": "0024Gi",
    "of 32 characters": "24Gi".rjust(32, "0"),
    "too little to be a thousandth": "1e-99",
    "beyond an int64": "16Ei",
    "far beyond an int64": "1e99",
}

NO_MEMORY: Mapping[str, str | int] = {
    "with a suffix that is none": "24GB",
    "with a suffix in lower case": "24gi",
    "with a space in front": " 24Gi",
    "with a space behind": "24Gi ",
    "with a space inside": "24 Gi",
    "with a newline behind": "24Gi\n",
    "of zero": "0",
    "of zero with a suffix": "0Gi",
    "of zero as a number": 0,
    "below zero": "-1Gi",
    "below zero as a number": -5,
    "that is empty": "",
    "with an exponent of ten digits": "1e1000000000",
    "with an exponent of three digits": "1e999",
    "with a long negative exponent": "1e-999",
    "with a fraction in the exponent": "1e1.5",
    "with an exponent and a suffix": "1e3Ki",
    "in hexadecimal": "0x10",
    "of a point": ".",
    "of a sign": "+",
    "of two numbers": "1.2.3",
    "in other digits": "\u0662\u0664Gi",
    "with a thousands separator": "24_000",
    "without end": "Infinity",
    "of 33 characters": "24Gi".rjust(33, "0"),
}

RESOURCE_NAMES: Mapping[str, str] = {
    "of a vendor": "nvidia.com/gpu",
    "with capitals, a dash and an underscore": "nvidia.com/NVIDIA_L40S-24C",
    "as short as can be": "a/b",
    "as long as can be": f"{LONGEST_DOMAIN}/{'b' * 63}",
    "of the platform's own domain": "cozystack.io/gpu",
    "below a domain that ends like that of budgets": "x.notgpuclass.cozystack.io/gpu",
    "below a domain that begins like that of budgets": "gpuclass.cozystack.io.example/gpu",
    "below a domain that begins like Kubernetes' own": "kubernetes.iox/gpu",
    "that begins nearly like a quota": "request.example.com/gpu",
    "of KubeVirt": "devices.kubevirt.io/kvm",
}

NO_RESOURCE_NAMES: Mapping[str, str] = {
    "that is empty": "",
    "of a native resource": "cpu",
    "without a domain": "gpu",
    "without a name after the domain": "nvidia.com/",
    "with an empty domain": "/gpu",
    "with two slashes": "nvidia.com/a/b",
    "with capitals in the domain": "NVIDIA.com/gpu",
    "with an underscore in the domain": "nvidia_x.com/gpu",
    "that begins with a dash after the domain": "nvidia.com/-a",
    "that ends with a dash": "nvidia.com/a-",
    "that ends with a point": "nvidia.com/a.",
    "with a space": "nvidia.com/a b",
    "with a newline behind": "nvidia.com/gpu\n",
    "with a letter that is not ASCII": "nvidia.com/gp\u00fc",
    "with a domain that begins with a dash": "-nvidia.com/a",
    "with an empty part in the domain": "nvidia..com/a",
    "of Kubernetes": "kubernetes.io/gpu",
    "below Kubernetes' domain": "a.kubernetes.io/gpu",
    "that ends like Kubernetes' domain": "mykubernetes.io/gpu",
    "that a quota would have": "requests.nvidia.com/gpu",
    "of the budget of all classes": "gpuclass.cozystack.io/devices",
    "of the budget of one class": "l40s.gpuclass.cozystack.io/devices",
    "deeper in the domain of budgets": "a.b.gpuclass.cozystack.io/x",
    "with 64 characters after the domain": f"nvidia.com/{'a' * 64}",
    "with a domain of 245 characters": f"{LONGEST_DOMAIN}d/x",
    "with a domain of 400 characters": f"{'a' * 400}/x",
}

TOLERATIONS: Mapping[str, list[Json]] = {
    "none in a list": [],
    "of everything": [{"operator": "Exists"}],
    "of everything with an empty key and value": [{"key": "", "operator": "Exists", "value": ""}],
    "of every taint of one effect": [{"operator": "Exists", "effect": "PreferNoSchedule"}],
    "of a key": [{"key": "gpu"}],
    "with an empty operator, value and effect": [{"key": "gpu", "operator": "", "value": "", "effect": ""}],
    "with every field": [
        {"key": "a.example/gpu", "operator": "Equal", "value": "v", "effect": "NoExecute", "tolerationSeconds": 30}
    ],
    "that evicts at once": [{"key": "gpu", "effect": "NoExecute", "tolerationSeconds": 0}],
    "with negative seconds": [{"key": "gpu", "effect": "NoExecute", "tolerationSeconds": -5}],
    "of everything for a while": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
    "with the most seconds": [{"key": "gpu", "effect": "NoExecute", "tolerationSeconds": 2**63 - 1}],
    "twice the same": [{"key": "gpu"}, {"key": "gpu"}],
    "with nulls": [{"key": "gpu", "operator": None, "tolerationSeconds": None}],
    "with the longest key and value": [{"key": f"{LONGEST_DOMAIN}.{'d' * 8}/{'k' * 63}", "value": "v" * 63}],
}

NO_TOLERATIONS: Mapping[str, tuple[Json, str]] = {
    "of nothing": ({}, "operator"),
    "without a key that compares a value": ({"operator": "Equal", "value": "v"}, "operator"),
    "with an empty key and no operator": ({"key": "", "effect": "NoSchedule"}, "operator"),
    "with a value that Exists ignores": ({"key": "gpu", "operator": "Exists", "value": "v"}, "value"),
    "with a space in the key": ({"key": "a b", "operator": "Exists"}, "key"),
    "with a newline behind the key": ({"key": "gpu\n", "operator": "Exists"}, "key"),
    "with capitals in the key's domain": ({"key": "A.com/x", "operator": "Exists"}, "key"),
    "with two slashes in the key": ({"key": "a.com/b/c", "operator": "Exists"}, "key"),
    "with nothing after the key's slash": ({"key": "a.com/", "operator": "Exists"}, "key"),
    "with nothing before the key's slash": ({"key": "/gpu", "operator": "Exists"}, "key"),
    "with a key of 64 characters": ({"key": "k" * 64, "operator": "Exists"}, "key"),
    "with a domain of 254 characters in the key": ({"key": f"{LONGEST_DOMAIN}.{'d' * 9}/k"}, "key"),
    "with a key beyond all lengths": ({"key": f"{'k' * 400}/k"}, "key"),
    "that is greater": ({"key": "gpu", "operator": "Gt", "value": "5"}, "operator"),
    "that is less": ({"key": "gpu", "operator": "Lt", "value": "5"}, "operator"),
    "with an operator in lower case": ({"key": "gpu", "operator": "exists"}, "operator"),
    "with a space in the value": ({"key": "gpu", "value": "b c"}, "value"),
    "with a newline behind the value": ({"key": "gpu", "value": "v\n"}, "value"),
    "with a value of 64 characters": ({"key": "gpu", "value": "v" * 64}, "value"),
    "with a value of a dash": ({"key": "gpu", "value": "-"}, "value"),
    "with an effect in lower case": ({"key": "gpu", "effect": "noExecute"}, "effect"),
    "with an effect that is none": ({"key": "gpu", "effect": "NoAdmit"}, "effect"),
    "with seconds but no effect": ({"key": "gpu", "tolerationSeconds": 5}, "effect"),
    "with seconds for NoSchedule": ({"key": "gpu", "effect": "NoSchedule", "tolerationSeconds": 5}, "effect"),
}

ACCEPTED: Mapping[str, Json] = {
    "a vGPU class with what is required": gpu_class(),
    "a passthrough class": passthrough(),
    "a name of 63 characters": gpu_class("a" * 63),
    "a name that begins with a digit": gpu_class("1a"),
    "nulls for what a vGPU class may leave out": gpu_class(license=None, maxCount=None, tolerations=None),
    "nulls for what a passthrough class may not have": passthrough(license=None, profile=None),
    "a null for the other kind of source": gpu_class(source={"devicePlugin": None, "dra": {"deviceClassName": None}}),
    "a vendor, model and profile of 63 characters": gpu_class(vendor="v" * 63, model="m" * 63, profile="p" * 63),
    "a licence": gpu_class(license={"secretName": "a.b-c"}),
    "a licence with a name of 253 characters": gpu_class(license={"secretName": "a" * 253}),
    "a licence of feature type 1": gpu_class(license={"secretName": "a", "featureType": 1}),
    "a licence of feature type 4": gpu_class(license={"secretName": "a", "featureType": 4}),
    "DRA": gpu_class(source={"dra": {}}),
    "DRA with a DeviceClass": gpu_class(source={"dra": {"deviceClassName": "gpu.example.com"}}),
    "at most one device": gpu_class(maxCount=1),
    "at most two devices, written as a float": gpu_class(maxCount=2.0),
    "at most as many devices as an int32": gpu_class(maxCount=2**31 - 1),
    "64 tolerations": tolerating(*({"key": f"k{number}"} for number in range(64))),
    **{f"memory {sentence}": gpu_class(memory=value) for sentence, value in MEMORY.items()},
    **{f"a resource name {sentence}": of_resource(name) for sentence, name in RESOURCE_NAMES.items()},
    **{f"tolerations: {sentence}": tolerating(*each) for sentence, each in TOLERATIONS.items()},
}

REFUSED: Mapping[str, Refused] = {
    "a name with a point": Refused(gpu_class("a.b"), "metadata.name"),
    "a name of 64 characters": Refused(gpu_class("a" * 64), "metadata.name"),
    **{f"no {key}": Refused(_with(key, UNSET), f"spec.{key}") for key in gpu_class()["spec"]},
    **{f"an empty {key}": Refused(_with(key, ""), f"spec.{key}") for key in TEXTS},
    **{f"a {key} of 64 characters": Refused(_with(key, "x" * 64), f"spec.{key}") for key in TEXTS},
    "a mode that is none": Refused(gpu_class(mode="mig"), "spec.mode"),
    "a mode in capitals": Refused(gpu_class(mode="vGPU"), "spec.mode"),
    "a profile on a passthrough class": Refused(passthrough(profile="L40S-24C"), "spec.profile"),
    "a licence on a passthrough class": Refused(passthrough(license={"secretName": "a"}), "spec.license"),
    "a licence without a Secret": Refused(gpu_class(license={}), "spec.license.secretName"),
    "a Secret's name with capitals": Refused(gpu_class(license={"secretName": "A_b"}), "spec.license.secretName"),
    "a Secret's name that is empty": Refused(gpu_class(license={"secretName": ""}), "spec.license.secretName"),
    "a Secret's name of 254 characters": Refused(
        gpu_class(license={"secretName": "a" * 254}), "spec.license.secretName"
    ),
    "a Secret's name with a newline behind": Refused(
        gpu_class(license={"secretName": "a\n"}), "spec.license.secretName"
    ),
    **{
        f"a feature type of {value!r}": Refused(
            gpu_class(license={"secretName": "a", "featureType": value}), "spec.license.featureType"
        )
        for value in (0, 2, 2**31)
    },
    **{f"a maximum of {value!r}": Refused(gpu_class(maxCount=value), "spec.maxCount") for value in (0, -1, 2**31)},
    "no kind of source": Refused(gpu_class(source={}), "spec.source"),
    "two kinds of source": Refused(
        gpu_class(source={"dra": {}, "devicePlugin": {"resourceName": "a.b/c"}}), "spec.source"
    ),
    "DRA with a name that is no DeviceClass's": Refused(
        gpu_class(source={"dra": {"deviceClassName": "A_"}}), "spec.source.dra.deviceClassName"
    ),
    "DRA with an empty name": Refused(
        gpu_class(source={"dra": {"deviceClassName": ""}}), "spec.source.dra.deviceClassName"
    ),
    "a device plugin without a resource name": Refused(
        gpu_class(source={"devicePlugin": {}}), "spec.source.devicePlugin.resourceName"
    ),
    "65 tolerations": Refused(tolerating(*({"key": f"k{number}"} for number in range(65))), "spec.tolerations"),
    **{f"memory {sentence}": Refused(gpu_class(memory=value), "spec.memory") for sentence, value in NO_MEMORY.items()},
    **{
        f"a resource name {sentence}": Refused(of_resource(name), "spec.source.devicePlugin.resourceName")
        for sentence, name in NO_RESOURCE_NAMES.items()
    },
    **{
        f"a toleration {sentence}": Refused(tolerating(each), f"spec.tolerations[0].{key}")
        for sentence, (each, key) in NO_TOLERATIONS.items()
    },
    "a toleration after good ones": Refused(
        tolerating({"key": "gpu"}, {"operator": "Exists"}, {}), "spec.tolerations[2].operator"
    ),
}

NOTHING: Mapping[str, Json] = {
    "no spec": {key: value for key, value in gpu_class().items() if key != "spec"},
    "an empty spec": {**gpu_class(), "spec": {}},
}

WRONG_TYPES: Mapping[str, Refused] = {
    "a number for a vendor": Refused(gpu_class(vendor=1), "spec.vendor"),
    "a list for a model": Refused(gpu_class(model=["L40S"]), "spec.model"),
    "a fraction for memory": Refused(gpu_class(memory=1.5), "spec.memory"),
    "a number beyond int64 for memory": Refused(gpu_class(memory=2**63), "spec.memory"),
    "a boolean for memory": Refused(gpu_class(memory=True), "spec.memory"),
    "text for a source": Refused(gpu_class(source="nvidia.com/gpu"), "spec.source"),
    "text for a feature type": Refused(
        gpu_class(license={"secretName": "a", "featureType": "1"}), "spec.license.featureType"
    ),
    "a fraction for a maximum": Refused(gpu_class(maxCount=1.5), "spec.maxCount"),
    "text for a maximum": Refused(gpu_class(maxCount="2"), "spec.maxCount"),
    "text for tolerations": Refused(gpu_class(tolerations="gpu"), "spec.tolerations"),
    "text for a toleration": Refused(gpu_class(tolerations=["gpu"]), "spec.tolerations[0]"),
    "seconds beyond int64": Refused(
        tolerating({"key": "gpu", "effect": "NoExecute", "tolerationSeconds": 2**63}),
        "spec.tolerations[0].tolerationSeconds",
    ),
    "text for seconds": Refused(
        tolerating({"key": "gpu", "effect": "NoExecute", "tolerationSeconds": "5"}),
        "spec.tolerations[0].tolerationSeconds",
    ),
}

UNKNOWN_FIELDS: Mapping[str, Refused] = {
    "in the spec": Refused(gpu_class(flavour=1), "spec.flavour"),
    "in the source": Refused(
        gpu_class(source={"devicePlugin": {"resourceName": "a.b/c"}, "pci": {}}), "spec.source.pci"
    ),
    "in the device plugin": Refused(
        gpu_class(source={"devicePlugin": {"resourceName": "a.b/c", "count": 1}}), "spec.source.devicePlugin.count"
    ),
    "in the licence": Refused(gpu_class(license={"secretName": "a", "server": "b"}), "spec.license.server"),
    "in a toleration": Refused(tolerating({"key": "gpu", "keys": ["a"]}), "spec.tolerations[0].keys"),
    "beside the spec": Refused({**gpu_class(), "flavour": "a"}, "flavour"),
}

STORED = gpu_class("stored", license={"secretName": "token"}, tolerations=[{"key": "gpu"}])
"""The class that the changes are made to."""


def _to_spec(*fields: str, **spec: object) -> Change:
    return Change({"spec": spec}, frozenset(f"spec.{field}" for field in fields))


def _to_status(*fields: str, **status: object) -> Change:
    return Change({"status": status}, frozenset(f"status.{field}" for field in fields))


CHANGES: Mapping[str, Change] = {
    "another vendor": _to_spec("vendor", vendor="AMD"),
    "another model": _to_spec("model", model="L4"),
    "another mode": _to_spec("mode", mode="passthrough", profile=None, license=None),
    "another profile": _to_spec("profile", profile="L40S-8C"),
    "no profile": _to_spec("profile", profile=None),
    "more memory": _to_spec("memory", memory="25Gi"),
    "a byte more memory": _to_spec("memory", memory=25769803777),
    "memory beyond all measure": _to_spec("memory", memory="1e999999999"),
    "memory that is no quantity": _to_spec("memory", memory="24GB"),
    "no memory": _to_spec("memory", memory=None),
    "another kind of source": _to_spec("source", source={"devicePlugin": None, "dra": {}}),
    "a second kind of source": _to_spec("source", source={"dra": {}}),
    "a bad resource name": _to_spec(
        "source.devicePlugin.resourceName", source={"devicePlugin": {"resourceName": "gpu"}}
    ),
    "a toleration that no Pod may have": _to_spec("tolerations[0].operator", tolerations=[{}]),
    "a maximum of none": _to_spec("maxCount", maxCount=0),
    "the same memory in smaller units": _to_spec(memory="24576Mi"),
    "the same memory in bytes": _to_spec(memory=25769803776),
    "the same memory with an exponent": _to_spec(memory="25769803.776e3"),
    "another resource name": _to_spec(source={"devicePlugin": {"resourceName": "nvidia.com/other"}}),
    "a maximum": _to_spec(maxCount=5),
    "no licence": _to_spec(license=None),
    "another licence": _to_spec(license={"secretName": "other", "featureType": 4}),
    "another toleration": _to_spec(tolerations=[{"operator": "Exists"}]),
    "no tolerations": _to_spec(tolerations=None),
    "a label": Change({"metadata": {"labels": {"a": "b"}}}),
}

STATUS_CHANGES: Mapping[str, Change] = {
    "fewer than no devices free": _to_status("free", free=-1),
    "devices free as text": _to_status("free", free="1"),
    "fewer than no devices free on a node": _to_status("maxFreePerNode", maxFreePerNode=-1),
    "a resource name beyond all lengths": _to_status("ownedResourceName", ownedResourceName="a" * 309),
    "nothing free": _to_status(free=0, maxFreePerNode=0),
    "figures and an owner": _to_status(free=12, maxFreePerNode=4, ownedResourceName="nvidia.com/NVIDIA_L40S-24C"),
    "no status": Change({"status": None}),
}


def every_toleration() -> Iterator[Json]:
    """Each combination of keys, operators, values, effects and seconds, good and bad, missing ones too."""
    choices = {
        "key": (UNSET, "", "gpu", "a.example/gpu", "a b"),
        "operator": (UNSET, "", "Equal", "Exists", "Lt", "exists"),
        "value": (UNSET, "", "v", "5", "b c"),
        "effect": (UNSET, "", "NoSchedule", "PreferNoSchedule", "NoExecute", "noExecute"),
        "tolerationSeconds": (UNSET, -1, 0, 300),
    }
    for values in product(*choices.values()):
        yield {key: value for key, value in zip(choices, values, strict=True) if value is not UNSET}
