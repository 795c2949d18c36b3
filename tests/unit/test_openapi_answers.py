"""Holding answers against their schema, and every object that can be made of a stored class."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.catalog.gpuclasscatalog import catalog_object
from apiserver.catalog.gpuclasses import gpu_class_object
from apiserver.cluster.view import View
from apiserver.gpu.classes import parse_class
from openapi.answers import problems
from openapi.generate import HERE

Json = dict[str, Any]

DOCUMENT: Json = json.loads((HERE / "v3.json").read_text())
GOOD: Json = {
    "apiVersion": "catalog.cozystack.io/v1alpha1",
    "kind": "GPUClassList",
    "metadata": {"resourceVersion": "1", "remainingItemCount": 2},
    "items": [
        {
            "apiVersion": "catalog.cozystack.io/v1alpha1",
            "kind": "GPUClass",
            "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}},
            "spec": {"mode": "vgpu", "tolerations": [{"tolerationSeconds": 3}]},
        }
    ],
}

INTEGERS = st.integers(-(2**63), 2**63 - 1)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(-1e15, 1e15) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def stored(*names: str) -> st.SearchStrategy[Json]:
    """Objects with some of these fields, each of them anything."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, JSON_VALUES))


TOLERATIONS = st.lists(stored("key", "operator", "value", "effect", "tolerationSeconds") | JSON_VALUES, max_size=3)
SPECS = st.fixed_dictionaries(
    {},
    optional={
        "vendor": st.just("NVIDIA") | JSON_VALUES,
        "model": JSON_VALUES,
        "mode": st.sampled_from(["vgpu", "passthrough"]) | JSON_VALUES,
        "profile": JSON_VALUES,
        "memory": st.sampled_from(["24Gi", 24, " 1e3 "]) | JSON_VALUES,
        "source": stored("devicePlugin", "dra")
        | st.fixed_dictionaries({"devicePlugin": stored("resourceName"), "dra": stored("deviceClassName")}),
        "license": stored("secretName", "featureType") | JSON_VALUES,
        "maxCount": st.integers(-1, 2**31) | JSON_VALUES,
        "tolerations": TOLERATIONS | JSON_VALUES,
    },
)


def test_good_answer() -> None:
    """What is as the schema says has no problems."""
    assert problems(GOOD, DOCUMENT) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param(["kind"], "Toy", id="an unknown kind"),
        pytest.param(["metadata", "selfLink"], "/", id="a field that is not named"),
        pytest.param(["metadata", "resourceVersion"], 1, id="a number for a string"),
        pytest.param(["metadata", "resourceVersion"], None, id="null"),
        pytest.param(["metadata", "remainingItemCount"], "2", id="a string for a number"),
        pytest.param(["metadata", "remainingItemCount"], 2.0, id="a fraction for a whole number"),
        pytest.param(["metadata", "remainingItemCount"], True, id="a boolean for a number"),
        pytest.param(["metadata", "remainingItemCount"], 2**63, id="a number beyond int64"),
        pytest.param(["items", 0, "spec", "maxCount"], 2**31, id="a number beyond int32"),
        pytest.param(["items", 0, "spec", "mode"], "mig", id="a value outside the enum"),
        pytest.param(["items", 0, "spec", "tolerations", 0, "tolerationSeconds"], "3", id="deep in a list"),
        pytest.param(["items", 0, "spec", "tolerations"], {}, id="an object for a list"),
        pytest.param(["items", 0, "metadata", "labels", "a"], 1, id="a value of a map"),
        pytest.param(["items", 0, "metadata", "creationTimestamp"], "yesterday", id="no time"),
        pytest.param(["items", 0, "metadata", "creationTimestamp"], "2026-01-01T00:00:00", id="a time without a zone"),
        pytest.param(["items", 0, "status"], {}, id="required fields missing"),
    ],
)
def test_bad_answers(path: list[str | int], value: object) -> None:
    """What is not as the schema says is a problem."""
    answer: Any = copy.deepcopy(GOOD)
    inner = answer
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    assert problems(answer, DOCUMENT)


@given(spec=SPECS, status=stored("ownedResourceName"), labels=JSON_VALUES)
def test_any_stored_class(spec: Json, status: Json, labels: object) -> None:
    """However wrong a stored class is, what is served of it is as the schema says."""
    metadata = {"name": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": labels}
    view = View()
    view.apply_class(parse_class({"metadata": metadata, "spec": spec, "status": status}))
    report = view.report("a")
    assert report is not None
    assert problems(gpu_class_object(report), DOCUMENT) == []
    page = catalog_object(view, "a")
    assert page is not None
    assert problems(page, DOCUMENT) == []
