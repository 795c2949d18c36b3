"""Whether the caller may: what is open, what a review says, what is remembered of it, and what the refused read."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from apiserver.serving.authorization import (
    Attributes,
    AuthorizationError,
    Authorizer,
    Decision,
    OpenPaths,
    Requirement,
    Verdict,
    forbidden_cause,
    forbidden_message,
    subject_access_review,
)
from apiserver.serving.users import User

JANE = User("jane", uid="7", groups=("dev", "system:authenticated"), extra={"scopes": ("read", "write")})
MASTER = User("root", groups=("system:masters",))
LIST = Attributes(
    user=JANE, verb="list", resource_request=True, path="/apis/g/v1/things", group="g", version="v1", resource="things"
)
GET = replace(LIST, verb="get", name="one")
PATH = Attributes(user=JANE, verb="get", resource_request=False, path="/metrics")


class Reviews:
    """A reviewer that counts and answers as told, on a clock that stands still."""

    def __init__(self, **status: object) -> None:
        self.status: object = status
        self.asked: list[dict[str, object]] = []
        self.seconds = 0.0
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.authorizer = Authorizer(self.review, clock=lambda: self.seconds)

    async def review(self, question: dict[str, object]) -> Mapping[str, object]:
        """Fail if told so, else answer the same to every question."""
        self.asked.append(question)
        await self.gate.wait()
        if self.failure:
            raise self.failure
        return {**question, "status": self.status}


# --- Decisions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "verdict"),
    [
        pytest.param({"allowed": True}, Verdict(Decision.ALLOW), id="allowed"),
        pytest.param({"allowed": True, "reason": "rbac"}, Verdict(Decision.ALLOW, "rbac"), id="allowed, with a reason"),
        pytest.param({"allowed": False, "denied": True, "reason": "no"}, Verdict(Decision.DENY, "no"), id="denied"),
        pytest.param({"allowed": False}, Verdict(Decision.NO_OPINION), id="no opinion"),
        pytest.param(
            {"allowed": False, "reason": "no rule"},
            Verdict(Decision.NO_OPINION, "kubernetes.io/webhook: no rule"),
            id="no opinion, with a reason that says whose it is",
        ),
        pytest.param({}, Verdict(Decision.NO_OPINION), id="an empty status allows nothing"),
        pytest.param({"allowed": "true"}, Verdict(Decision.NO_OPINION), id="only a true true allows"),
    ],
)
async def test_review(status: dict[str, object], verdict: Verdict) -> None:
    """The review decides, and what it leaves open is not allowed."""
    assert await Reviews(**status).authorizer.authorize(LIST) == verdict


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(replace(LIST, user=MASTER), id="system:masters on a resource"),
        pytest.param(replace(PATH, user=MASTER), id="system:masters on a path"),
        pytest.param(replace(PATH, path="/healthz"), id="healthz"),
        pytest.param(replace(PATH, path="/readyz"), id="readyz"),
        pytest.param(replace(PATH, path="/livez"), id="livez"),
    ],
)
async def test_open(attributes: Attributes) -> None:
    """Some callers and some paths need no review."""
    reviews = Reviews(allowed=False)
    assert await reviews.authorizer.authorize(attributes) == Verdict(Decision.ALLOW)
    assert reviews.asked == []


@pytest.mark.parametrize(
    "attributes",
    [
        pytest.param(replace(PATH, path="/livez/ping"), id="below an open path"),
        pytest.param(replace(PATH, path="/healthz/"), id="an open path with a slash"),
        pytest.param(replace(PATH, path="/"), id="the root"),
        pytest.param(replace(LIST, path="/healthz"), id="a resource at an open path"),
        pytest.param(replace(PATH, user=replace(JANE, groups=("system:mastersx",))), id="almost masters"),
    ],
)
async def test_not_open(attributes: Attributes) -> None:
    """An open path opens itself and nothing else."""
    reviews = Reviews(allowed=False)
    assert (await reviews.authorizer.authorize(attributes)).decision is Decision.NO_OPINION
    assert len(reviews.asked) == 1


async def test_open_prefix() -> None:
    """A trailing star opens whatever begins so; it is refused elsewhere."""
    reviews = Reviews(allowed=False)
    authorizer = Authorizer(reviews.review, open_paths=OpenPaths(["/readyz*", "openapi/*"]))
    verdicts = {
        path: (await authorizer.authorize(replace(PATH, path=path))).decision
        for path in ("/readyz", "/readyz/x", "/openapi/v2", "/openapi")
    }
    assert verdicts == {
        "/readyz": Decision.ALLOW,
        "/readyz/x": Decision.ALLOW,
        "/openapi/v2": Decision.ALLOW,
        "/openapi": Decision.NO_OPINION,
    }
    with pytest.raises(ValueError, match=r"\*"):
        OpenPaths(["/a*b"])


@pytest.mark.parametrize("status", [{"allowed": True, "denied": True}, None, "Success"])
async def test_senseless_answer(status: object) -> None:
    """An answer that contradicts itself, or has no status, is a failure and allows nothing."""
    reviews = Reviews()
    reviews.status = status
    with pytest.raises(AuthorizationError):
        await reviews.authorizer.authorize(LIST)


# --- The question -----------------------------------------------------------------------------------------------------


def test_question_about_a_resource() -> None:
    """The review is asked for the caller and for the resource, all of it."""
    attributes = replace(GET, namespace="ns", subresource="status")
    assert subject_access_review(attributes) == {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": "jane",
            "uid": "7",
            "groups": ["dev", "system:authenticated"],
            "extra": {"scopes": ["read", "write"]},
            "resourceAttributes": {
                "namespace": "ns",
                "verb": "get",
                "group": "g",
                "version": "v1",
                "resource": "things",
                "subresource": "status",
                "name": "one",
            },
        },
    }


def test_question_about_a_path() -> None:
    """What is not of a resource is asked by path; what is empty is left out."""
    assert subject_access_review(replace(PATH, user=User("bob")))["spec"] == {
        "user": "bob",
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


@pytest.mark.parametrize(
    ("requirement", "field", "label"),
    [
        pytest.param(("k", "=", ("v",)), "In", "In", id="equals"),
        pytest.param(("k", "==", ("v",)), "In", "In", id="equals, doubled"),
        pytest.param(("k", "in", ("v", "w")), "In", "In", id="in"),
        pytest.param(("k", "NotIn", ("v", "w")), "NotIn", "NotIn", id="not in, as a review writes it"),
        pytest.param(("k", "!=", ("v",)), "NotIn", "NotIn", id="not equals"),
        pytest.param(("k", "exists", ()), None, "Exists", id="exists is for labels"),
        pytest.param(("k", "!", ()), None, "DoesNotExist", id="does not exist is for labels"),
        pytest.param(("k", "gt", ("1",)), None, None, id="an unknown operator is left out"),
    ],
)
def test_question_with_selectors(requirement: Requirement, field: str | None, label: str | None) -> None:
    """The terms of selectors go along, as far as a review has words for them."""
    attributes = replace(LIST, field_requirements=(requirement,), label_requirements=(requirement,))
    key, _, values = requirement
    want: dict[str, object] = {"verb": "list", "group": "g", "version": "v1", "resource": "things"}
    for selector, operator in (("fieldSelector", field), ("labelSelector", label)):
        if operator:
            term = {"key": key, "operator": operator} | ({"values": list(values)} if values else {})
            want[selector] = {"requirements": [term]}
    spec = subject_access_review(attributes)["spec"]
    assert isinstance(spec, dict)
    assert spec["resourceAttributes"] == want


# --- Memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [True, False])
async def test_answers_are_remembered(allowed: bool) -> None:
    """A verdict holds for ten seconds, whichever it is."""
    reviews = Reviews(allowed=allowed)
    for reviews.seconds in (0.0, 5.0, 9.9):
        await reviews.authorizer.authorize(LIST)
    assert len(reviews.asked) == 1
    reviews.seconds = 10.0
    await reviews.authorizer.authorize(LIST)
    assert len(reviews.asked) == 2


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(replace(LIST, verb="watch"), id="verb"),
        pytest.param(replace(LIST, namespace="ns"), id="namespace"),
        pytest.param(replace(LIST, name="one"), id="name"),
        pytest.param(replace(LIST, subresource="status"), id="sub-resource"),
        pytest.param(replace(LIST, label_requirements=(("k", "in", ("v",)),)), id="selector"),
        pytest.param(replace(LIST, user=replace(JANE, name="bob")), id="user"),
        pytest.param(replace(LIST, user=replace(JANE, groups=("dev",))), id="groups"),
        pytest.param(replace(LIST, user=replace(JANE, extra={"scopes": ("read",)})), id="extra"),
    ],
)
async def test_questions_are_told_apart(other: Attributes) -> None:
    """Whatever a review may depend on makes another question."""
    reviews = Reviews(allowed=True)
    await reviews.authorizer.authorize(LIST)
    await reviews.authorizer.authorize(other)
    assert len(reviews.asked) == 2


@pytest.mark.parametrize(("length", "reviews_made"), [(9_000, 1), (10_000, 2)])
async def test_long_questions_are_not_remembered(length: int, reviews_made: int) -> None:
    """Callers cannot fill the memory with attributes of ten thousand bytes and more."""
    reviews = Reviews(allowed=True)
    for _ in range(2):
        await reviews.authorizer.authorize(replace(LIST, name="x" * length))
    assert len(reviews.asked) == reviews_made


async def test_failures_are_not_remembered() -> None:
    """A review that failed fails the one request, and the next is reviewed anew."""
    reviews = Reviews(allowed=True)
    reviews.failure = ConnectionResetError()
    with pytest.raises(AuthorizationError):
        await reviews.authorizer.authorize(LIST)
    reviews.failure = None
    assert await reviews.authorizer.authorize(LIST) == Verdict(Decision.ALLOW)


async def test_equal_reviews_are_merged() -> None:
    """Many equal requests at once make one review, which outlives those who hang up."""
    reviews = Reviews(allowed=True)
    reviews.gate.clear()
    asked = [asyncio.create_task(reviews.authorizer.authorize(LIST)) for _ in range(50)]
    await asyncio.sleep(0)
    asked[0].cancel()
    await asyncio.sleep(0)
    reviews.gate.set()
    assert await asyncio.gather(*asked[1:]) == [Verdict(Decision.ALLOW)] * 49
    assert asked[0].cancelled()
    assert len(reviews.asked) == 1


# --- Refusal ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "reason", "message"),
    [
        pytest.param(
            LIST,
            "",
            'things.g is forbidden: User "jane" cannot list resource "things" in API group "g" at the cluster scope',
            id="a list",
        ),
        pytest.param(
            replace(GET, subresource="status"),
            "no rule",
            'things.g "one" is forbidden: User "jane" cannot get resource "things/status" in API group "g" '
            "at the cluster scope: no rule",
            id="a sub-resource, with a reason",
        ),
        pytest.param(
            replace(GET, namespace="ns"),
            "",
            'things.g "one" is forbidden: User "jane" cannot get resource "things" in API group "g" '
            'in the namespace "ns"',
            id="in a namespace",
        ),
        pytest.param(
            replace(LIST, group="", resource="pods"),
            "",
            'pods is forbidden: User "jane" cannot list resource "pods" in API group "" at the cluster scope',
            id="the core group",
        ),
        pytest.param(PATH, "", 'forbidden: User "jane" cannot get path "/metrics"', id="a path"),
        pytest.param(
            replace(PATH, path="/<b>&", user=User('"x"')),
            "a < b",
            'forbidden: User "\\"x\\"" cannot get path "/&lt;b&gt;&amp;": a < b',
            id="what the caller chose is quoted and made safe, the reason is not",
        ),
        pytest.param(
            replace(PATH, path="/\n\x01\x7f\udcff\u200b\U000e0001é\\"),
            "",
            'forbidden: User "jane" cannot get path "/\\n\\x01\\x7f\\xff\\u200b\\U000e0001é\\\\"',
            id="what cannot be printed is escaped as Go does",
        ),
    ],
)
def test_forbidden(attributes: Attributes, reason: str, message: str) -> None:
    """The refused read the words of Kubernetes, which clients know."""
    assert forbidden_message(attributes, reason) == message
    assert message.endswith(forbidden_cause(attributes, reason))
