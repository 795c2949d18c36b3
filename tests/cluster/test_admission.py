"""What the stored kind's CRD lets in, by real kube-apiservers; what it refuses names the field.

No test reads a sentence of the server: what counts is the code, and the fields in the causes of its Status.
"""

import contextlib
import copy
import re
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus

import pytest

from apiserver.gpu.classes import parse_class
from tests.cluster.admission import (
    ACCEPTED,
    CHANGES,
    NO_TOLERATIONS,
    NOTHING,
    REFUSED,
    STATUS_CHANGES,
    STORED,
    TOLERATIONS,
    UNKNOWN_FIELDS,
    WRONG_TYPES,
    Change,
    Refused,
    every_toleration,
    gpu_class,
    tolerating,
)
from tests.cluster.catalog import MANIFESTS, read_documents
from tests.cluster.client import MERGE_PATCH, Answer, Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.workload import pod

CRD = MANIFESTS / "crd" / "gpuclasses.cozystack.io.yaml"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GPU_CLASSES = "/apis/cozystack.io/v1alpha1/gpuclasses"
PODS = "/api/v1/namespaces/default/pods"
TRIAL = "dryRun=All&fieldValidation=Strict"
LENIENT_TRIAL = "dryRun=All&fieldValidation=Ignore"
MOST_TOLERATIONS = 64

NOT_A_FIELD = "<nil>"
"""The cause by which kube-apiserver says that it did not evaluate every rule, because one field was too wrong."""

OLD_GROUP = "before.example.com"
ANYTHING_GOES = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
HOLD = "example.com/hold"


@pytest.fixture(scope="module")
def server(either_control_plane: ControlPlane) -> Client:
    """The administrator's connection to each version's kube-apiserver, which serves the stored kind."""
    either_control_plane.kubectl("apply", "-f", str(CRD))
    wait_for(lambda: is_served(either_control_plane.client, GPU_CLASSES), "the stored kind to be served")
    return either_control_plane.client


@pytest.fixture
def stored(server: Client) -> Iterator[str]:
    """Where a stored class is that changes can be made to."""
    path = f"{GPU_CLASSES}/{server.post(GPU_CLASSES, STORED)['metadata']['name']}"
    yield path
    server.delete(path)


def is_served(client: Client, path: str) -> bool:
    """Whether the list is there: at first it is unknown, then for a moment it answers 429."""
    return client.request("GET", path).code == HTTPStatus.OK


def blamed(answer: Answer) -> set[str]:
    """The fields for which an object was refused; none if it was accepted.

    Raises:
        AssertionError: it was refused for anything but what stands in its fields.
    """
    if answer.code < HTTPStatus.BAD_REQUEST:
        return set()
    status = answer.json()
    assert (answer.code, status["reason"]) == (HTTPStatus.UNPROCESSABLE_ENTITY, "Invalid"), status
    return {cause["field"] for cause in status["details"]["causes"]} - {NOT_A_FIELD}


def try_to_create(client: Client, document: Json, path: str = GPU_CLASSES) -> set[str]:
    """Create without storing, and return the fields to blame."""
    return blamed(client.request("POST", f"{path}?{TRIAL}", document))


def try_to_change(client: Client, path: str, change: Change) -> set[str]:
    """Patch without storing, and return the fields to blame."""
    return blamed(client.request("PATCH", f"{path}?{TRIAL}", change.patch, {"Content-Type": MERGE_PATCH}))


def sentences(table: Mapping[str, object]) -> list[object]:
    """The cases of a table, each with its sentence as the identity of its test."""
    return [pytest.param(case, id=sentence) for sentence, case in table.items()]


@pytest.mark.parametrize("accepted", sentences(ACCEPTED))
def test_good_class_is_accepted(server: Client, accepted: Json) -> None:
    """A class that keeps the rules can be created, and has no field that the schema does not know."""
    assert try_to_create(server, accepted) == set()


@pytest.mark.parametrize("case", sentences(REFUSED))
def test_bad_class_is_refused(server: Client, case: Refused) -> None:
    """A class that breaks one rule cannot be created, and the one field is named."""
    assert try_to_create(server, case.gpu_class) == {case.field}


@pytest.mark.parametrize("document", sentences(NOTHING))
def test_class_of_nothing_is_refused(server: Client, document: Json) -> None:
    """A spec with something in it is required."""
    fields = try_to_create(server, document)
    assert fields
    assert {field.partition(".")[0] for field in fields} == {"spec"}


@pytest.mark.parametrize("case", sentences(WRONG_TYPES))
def test_field_of_another_type_is_refused(server: Client, case: Refused) -> None:
    """JSON of another type than the schema's is refused, and the field is named."""
    assert case.field in try_to_create(server, case.gpu_class)


@pytest.mark.parametrize("case", sentences(UNKNOWN_FIELDS))
def test_unknown_field_is_pruned(server: Client, case: Refused) -> None:
    """A field that the schema does not know is dropped unless the client wants to be told."""
    created = server.post(f"{GPU_CLASSES}?{LENIENT_TRIAL}", case.gpu_class)
    assert case.field.rpartition(".")[2] not in str({**created, "metadata": None})


@pytest.mark.parametrize("case", sentences(UNKNOWN_FIELDS))
def test_unknown_field_is_refused_under_strict_validation(server: Client, case: Refused) -> None:
    """A client that wants to be told is told which field the schema does not know."""
    answer = server.request("POST", f"{GPU_CLASSES}?{TRIAL}", case.gpu_class)
    assert answer.code == HTTPStatus.BAD_REQUEST
    assert f'"{case.field}"' in answer.json()["message"]


def test_feature_type_is_1_unless_said(server: Client) -> None:
    """A licence is one for NVIDIA vGPU by default; a maximum has no default."""
    spec = server.post(f"{GPU_CLASSES}?{TRIAL}", gpu_class(license={"secretName": "token"}))["spec"]
    assert spec == {**gpu_class()["spec"], "license": {"secretName": "token", "featureType": 1}}


def test_creation_drops_status(server: Client) -> None:
    """Nobody records an owner by creating a class."""
    recorded = {**gpu_class(), "status": {"free": 3, "ownedResourceName": "nvidia.com/NVIDIA_L40S-24C"}}
    assert "status" not in server.post(f"{GPU_CLASSES}?{TRIAL}", recorded)


@pytest.mark.parametrize("change", sentences(CHANGES))
def test_change_of_a_class(server: Client, stored: str, change: Change) -> None:
    """What was sold stays as it is; what is an operator's own may change, by the rules of creation."""
    assert try_to_change(server, stored, change) == change.fields


@pytest.mark.parametrize("change", sentences(STATUS_CHANGES))
def test_change_of_a_status(server: Client, stored: str, change: Change) -> None:
    """Figures below zero are refused, and so is what is no whole number."""
    assert try_to_change(server, f"{stored}/status", change) == change.fields


def test_spec_and_status_are_changed_apart(server: Client, stored: str) -> None:
    """Each of the two doors leaves alone what belongs to the other."""
    server.patch(f"{stored}/status", {"spec": {"maxCount": 7}, "status": {"free": 3}})
    server.patch(stored, {"spec": {"maxCount": 2}, "status": {"free": 9}})
    after = server.get(stored)
    assert (after["spec"]["maxCount"], after["status"]) == (2, {"free": 3})


def test_class_from_before_the_rules_can_be_let_go(server: Client) -> None:
    """Whatever today's rules refuse, if it is stored it can be relabelled, lose its finalizers, and be deleted.

    A field of another JSON type than its rule expects holds an object fast, and so does a missing spec: kube-apiserver
    passes over what is unchanged, but neither over a rule that it cannot evaluate nor over what is required at the top.
    """
    path = f"/apis/{OLD_GROUP}/v1alpha1/gpuclasses"
    refused = {sentence: case.gpu_class for sentence, case in REFUSED.items()}
    refused["an empty spec"] = NOTHING["an empty spec"]
    old = {sentence: _from_before(each, number) for number, (sentence, each) in enumerate(refused.items())}
    with _loose_kind(server, path) as tighten:
        for document in old.values():
            server.post(path, document)
        tighten()
        stuck = {sentence: _let_go(server, f"{path}/{each['metadata']['name']}") for sentence, each in old.items()}
        assert {sentence: fields for sentence, fields in stuck.items() if fields} == {}
        assert server.items(path) == []


@pytest.mark.parametrize("tolerations", sentences(TOLERATIONS))
def test_pod_may_have_what_a_class_may(server: Client, tolerations: list[Json]) -> None:
    """Tolerations that a class may have are such as a Pod may have."""
    assert try_to_create(server, pod("example", spec={"tolerations": tolerations}), PODS) == set()


@pytest.mark.parametrize("case", sentences(NO_TOLERATIONS))
def test_pod_may_not_have_what_a_class_may_not(server: Client, case: tuple[Json, str]) -> None:
    """A toleration that is refused to a class is refused to a Pod too."""
    toleration, _ = case
    fields = try_to_create(server, pod("example", spec={"tolerations": [toleration]}), PODS)
    assert fields
    assert {field.rpartition(".")[0] for field in fields} == {"spec.tolerations[0]"}


def test_every_toleration_is_judged_as_a_pods(server: Client) -> None:
    """Of all combinations of fields, a class may have exactly those that a Pod may have, and the model says so too."""
    every = list(every_toleration())
    to_pods, to_classes, in_the_model = set[int](), set[int](), set[int]()
    for start in range(0, len(every), MOST_TOLERATIONS):
        some = every[start : start + MOST_TOLERATIONS]
        to_pods |= {start + index for index in _refused_to_a_pod(server, some)}
        to_classes |= {start + index for index in _refused_to_a_class(server, some)}
        in_the_model |= {start + index for index in _indices(_violated(tolerating(*some)))}
    assert 0 < len(to_pods) < len(every)
    assert [every[index] for index in to_pods ^ to_classes] == []
    assert [every[index] for index in to_pods ^ in_the_model] == []


@pytest.mark.parametrize("accepted", sentences(ACCEPTED))
def test_model_finds_nothing_wrong_with_an_accepted_class(accepted: Json) -> None:
    """What admission accepts, the catalog offers."""
    assert _violated(accepted) == set()


@pytest.mark.parametrize("case", sentences(REFUSED))
def test_model_finds_what_is_wrong_with_a_refused_class(case: Refused) -> None:
    """What admission refuses, the catalog calls invalid for the same field."""
    assert _violated(case.gpu_class) == {case.field}


@pytest.mark.parametrize("document", sentences(NOTHING))
def test_model_finds_a_class_of_nothing_wrong(document: Json) -> None:
    """A class without a spec is not offered."""
    assert _violated(document)


def _violated(document: Json) -> set[str]:
    """The fields that the model blames."""
    return {violation.partition(":")[0] for violation in parse_class(document).violations}


def _indices(fields: set[str]) -> set[int]:
    """Which tolerations the fields belong to."""
    found = [re.match(r"spec\.tolerations\[(\d+)\]\.", field) for field in fields]
    return {int(match[1]) for match in found if match}


def _refused_to_a_pod(client: Client, tolerations: list[Json]) -> set[int]:
    """The indices of the refused ones."""
    return _indices(try_to_create(client, pod("example", spec={"tolerations": tolerations}), PODS))


def _refused_to_a_class(client: Client, tolerations: list[Json]) -> set[int]:
    """The indices of the refused ones, found in rounds.

    While the schema refuses one, kube-apiserver may leave out the rules for all: it goes, and the rest is asked again.
    """
    good = {"key": "good"}
    refused: set[int] = set()
    while True:
        asked = [good if index in refused else toleration for index, toleration in enumerate(tolerations)]
        found = _indices(try_to_create(client, tolerating(*asked)))
        if not found:
            return refused
        refused |= found


@contextlib.contextmanager
def _loose_kind(client: Client, path: str) -> Iterator[Callable[[], None]]:
    """A kind like ours without any rules for as long as the block lasts; what is yielded puts the rules in force."""
    (tight,) = read_documents(CRD.read_text())
    tight["metadata"]["name"] = f"gpuclasses.{OLD_GROUP}"
    tight["spec"]["group"] = OLD_GROUP
    loose = copy.deepcopy(tight)
    loose["spec"]["versions"][0]["schema"] = ANYTHING_GOES
    where = f"{CRDS}/{tight['metadata']['name']}"
    bad = {**gpu_class("bad", mode="none"), "apiVersion": f"{OLD_GROUP}/v1alpha1"}

    def tighten() -> None:
        client.patch(where, {"spec": tight["spec"]})
        refused = HTTPStatus.UNPROCESSABLE_ENTITY
        wait_for(lambda: client.request("POST", f"{path}?{TRIAL}", bad).code == refused, "the rules to be in force")
        wait_for(lambda: is_served(client, path), "the kind with rules to be served")

    client.post(CRDS, loose)
    try:
        wait_for(lambda: is_served(client, path), "the loose kind to be served")
        yield tighten
    finally:
        if client.items(path):
            client.patch(where, {"spec": loose["spec"]})
            wait_for(lambda: _is_emptied(client, path), "what the rules held to be gone")
        client.delete(where)
        wait_for(lambda: client.request("GET", where).code == HTTPStatus.NOT_FOUND, "the loose kind to be gone")


def _is_emptied(client: Client, path: str) -> bool:
    """Delete what is there without its finalizers, and whether nothing is left."""
    answer = client.request("GET", path)
    if answer.code != HTTPStatus.OK:
        return False
    items = answer.json()["items"]
    for item in items:
        where = f"{path}/{item['metadata']['name']}"
        client.request("PATCH", where, {"metadata": {"finalizers": None}}, {"Content-Type": MERGE_PATCH})
        client.request("DELETE", where)
    return not items


def _from_before(gpu_class: Json, number: int) -> Json:
    """The same of the loose kind, held by a finalizer; a name that is not the point becomes a name of its own."""
    name = gpu_class["metadata"]["name"]
    metadata = {"name": f"old-{number}" if name == "example" else name, "finalizers": [HOLD]}
    return {**gpu_class, "apiVersion": f"{OLD_GROUP}/v1alpha1", "metadata": metadata}


def _let_go(client: Client, path: str) -> set[str]:
    """Relabel a class, delete it, and take its finalizer away; the fields that stood in the way."""
    relabelled = client.request("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, {"Content-Type": MERGE_PATCH})
    client.delete(path)
    released = client.request("PATCH", path, {"metadata": {"finalizers": None}}, {"Content-Type": MERGE_PATCH})
    return blamed(relabelled) | blamed(released)
