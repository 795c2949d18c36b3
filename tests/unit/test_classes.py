"""Reading stored classes: the normal form, and every rule that can be broken."""

from typing import Any

import pytest

from apiserver.gpu.classes import parse_class
from apiserver.gpu.tolerations import Toleration


def stored(**spec: Any) -> dict[str, Any]:  # noqa: ANN401 # whatever somebody stored
    """A valid vGPU class with some fields of its spec replaced; None leaves one out."""
    valid = {
        "vendor": "NVIDIA",
        "model": "L40S",
        "mode": "vgpu",
        "profile": "L40S-24C",
        "memory": "24Gi",
        "source": {"devicePlugin": {"resourceName": "nvidia.com/NVIDIA_L40S-24C"}},
    }
    fields = {key: value for key, value in {**valid, **spec}.items() if value is not None}
    return {"metadata": {"name": "l40s-24c"}, "spec": fields}


def test_normal_form() -> None:
    """Declared fields only, memory a string, integers integers, the feature type defaulted."""
    gpu_class = parse_class(
        stored(
            memory=25769803776,
            maxCount=2.0,
            color="green",
            license={"secretName": "vgpu"},
            tolerations=[{"key": "gpu", "operator": "Exists", "extra": 1}],
        )
    )
    assert gpu_class.violations == ()
    assert gpu_class.spec == {
        "vendor": "NVIDIA",
        "model": "L40S",
        "mode": "vgpu",
        "profile": "L40S-24C",
        "memory": "25769803776",
        "source": {"devicePlugin": {"resourceName": "nvidia.com/NVIDIA_L40S-24C"}},
        "license": {"secretName": "vgpu", "featureType": 1},
        "maxCount": 2,
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    assert gpu_class.tolerations == (Toleration("gpu", "Exists"),)
    assert gpu_class.max_count == 2
    assert type(gpu_class.max_count) is int


def test_served_metadata() -> None:
    """What only matters to writers of the stored object is not served on."""
    metadata = {
        "name": "a",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-02-01T00:00:00Z",
        "resourceVersion": "7",
        "generation": 3,
        "managedFields": [{}],
        "finalizers": ["f"],
        "ownerReferences": [{}],
        "labels": {"tier": "gold"},
        "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "n"},
    }
    gpu_class = parse_class({"metadata": metadata})
    assert gpu_class.metadata == {
        "name": "a",
        "uid": "u",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "deletionTimestamp": "2026-02-01T00:00:00Z",
        "labels": {"tier": "gold"},
        "annotations": {"note": "n"},
    }
    assert gpu_class.terminating


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"vendor": None}, "vendor", id="no vendor"),
        pytest.param({"model": ""}, "model", id="an empty model"),
        pytest.param({"model": "x" * 64}, "model", id="too long a model"),
        pytest.param({"mode": "mig"}, "mode", id="an unknown mode"),
        pytest.param({"profile": None}, "profile", id="vGPU without a profile"),
        pytest.param({"mode": "passthrough"}, "profile", id="passthrough with a profile"),
        pytest.param({"memory": None}, "memory", id="no memory"),
        pytest.param({"memory": "24GB"}, "memory", id="memory that is no quantity"),
        pytest.param({"memory": "0"}, "memory", id="no memory at all"),
        pytest.param({"source": None}, "source", id="no source"),
        pytest.param({"source": {"devicePlugin": {"resourceName": "a.b/c"}, "dra": {}}}, "source", id="two sources"),
        pytest.param({"source": {"devicePlugin": {}}}, "source.devicePlugin.resourceName", id="no resource name"),
        pytest.param(
            {"source": {"devicePlugin": {"resourceName": "gpu"}}},
            "source.devicePlugin.resourceName",
            id="a resource name without a domain",
        ),
        pytest.param(
            {"source": {"devicePlugin": {"resourceName": "mykubernetes.io/gpu"}}},
            "source.devicePlugin.resourceName",
            id="Kubernetes' own domain",
        ),
        pytest.param(
            {"source": {"devicePlugin": {"resourceName": "gold.gpuclass.cozystack.io/devices"}}},
            "source.devicePlugin.resourceName",
            id="the domain of budgets",
        ),
        pytest.param({"source": {"dra": {"deviceClassName": "A"}}}, "source.dra.deviceClassName", id="a bad name"),
        pytest.param({"license": {}}, "license.secretName", id="a licence without its Secret"),
        pytest.param({"license": {"secretName": "A_b"}}, "license.secretName", id="no Secret has such a name"),
        pytest.param({"license": {"secretName": "a", "featureType": 2}}, "license.featureType", id="a feature type"),
        pytest.param(
            {"mode": "passthrough", "profile": None, "license": {"secretName": "a"}}, "license", id="licence on a card"
        ),
        pytest.param({"maxCount": 0}, "maxCount", id="at most nothing"),
        pytest.param({"maxCount": "2"}, "maxCount", id="a number in quotes"),
        pytest.param({"maxCount": True}, "maxCount", id="a truth instead of a number"),
        pytest.param({"tolerations": {}}, "tolerations", id="tolerations that are no list"),
        pytest.param({"tolerations": [{"operator": "Exists"}] * 65}, "tolerations", id="too many tolerations"),
        pytest.param({"tolerations": [{"key": "a b"}]}, "tolerations[0].key", id="no taint has such a key"),
        pytest.param({"tolerations": [{"value": "v"}]}, "tolerations[0].operator", id="an empty key needs Exists"),
        pytest.param({"tolerations": [{"key": "a", "operator": "Gt"}]}, "tolerations[0].operator", id="Gt"),
        pytest.param(
            {"tolerations": [{"key": "a", "operator": "Exists", "value": "v"}]}, "tolerations[0].value", id="a value"
        ),
        pytest.param({"tolerations": [{"key": "a", "value": "-"}]}, "tolerations[0].value", id="no label value"),
        pytest.param({"tolerations": [{"key": "a", "effect": "No"}]}, "tolerations[0].effect", id="an unknown effect"),
        pytest.param(
            {"tolerations": [{"key": "a", "tolerationSeconds": 1}]}, "tolerations[0].effect", id="seconds for all"
        ),
        pytest.param(
            {"tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": "1"}]},
            "tolerations[0].tolerationSeconds",
            id="seconds in quotes",
        ),
        pytest.param(
            {"tolerations": [{"key": "a", "effect": "NoExecute", "tolerationSeconds": 1e30}]},
            "tolerations[0].tolerationSeconds",
            id="seconds beyond int64",
        ),
    ],
)
def test_violations(spec: dict[str, Any], field: str) -> None:
    """A broken rule is named with its field, and costs nothing else of the object."""
    gpu_class = parse_class(stored(**spec))
    assert [violation.partition(":")[0] for violation in gpu_class.violations] == [f"spec.{field}"]
    assert gpu_class.name == "l40s-24c"


def test_name_rule() -> None:
    """A class name is a DNS label."""
    raw = stored()
    raw["metadata"]["name"] = "a.b"
    assert parse_class(raw).violations[0].startswith("metadata.name:")


@pytest.mark.parametrize("raw", [{}, {"metadata": {}}, {"metadata": {"name": 3}}, {"metadata": []}])
def test_nameless(raw: dict[str, Any]) -> None:
    """Without a name there is nothing to serve."""
    with pytest.raises(ValueError, match=r"metadata\.name"):
        parse_class(raw)


@pytest.mark.parametrize("spec", [None, [], "x", {"source": [], "license": 3, "tolerations": "x", "memory": {}}])
def test_any_shape(spec: object) -> None:
    """No shape of spec or status raises."""
    gpu_class = parse_class({"metadata": {"name": "a"}, "spec": spec, "status": 7})
    assert gpu_class.violations
    assert gpu_class.resource_name == ""


def test_reserved_source() -> None:
    """A dra source is valid to store and not counted."""
    gpu_class = parse_class(stored(source={"dra": {"deviceClassName": "gpu.nvidia.com"}}))
    assert (gpu_class.violations, gpu_class.unsupported_source, gpu_class.resource_name) == ((), True, "")
