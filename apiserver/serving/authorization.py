"""Finding out whether the caller may: privileged groups, open paths, then a SubjectAccessReview.

Source: k8s.io/apiserver/pkg/server/options/authorization.go, plugin/pkg/authorizer/webhook (1.37).
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from apiserver.serving.reviews import ReviewCache
from apiserver.serving.users import PRIVILEGED_GROUP, User

Requirement = tuple[str, str, tuple[str, ...]]
"""One term of a selector: key, operator, values. The operator is that of a selector (`=`, `in`, `!`) or of a review."""

Reviewer = Callable[[dict[str, object]], Awaitable[Mapping[str, object]]]

_AUTHORIZER_NAME = "kubernetes.io/webhook"
_REMEMBERED_BYTES = 10_000
_FIELD_OPERATORS = {"=": "In", "==": "In", "in": "In", "!=": "NotIn", "notin": "NotIn"}
_LABEL_OPERATORS = _FIELD_OPERATORS | {"exists": "Exists", "!": "DoesNotExist", "doesnotexist": "DoesNotExist"}
_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
_GO_ESCAPES = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
}


class AuthorizationError(Exception):
    """Whether the caller may could not be found out, so it may not; HTTP 500 in plain text."""


class Decision(Enum):
    """What an authorizer says; a caller may only on ALLOW."""

    ALLOW = "allowed"
    DENY = "denied"
    NO_OPINION = "no-opinion"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision and, for the caller to read, its reason; "" if none was given."""

    decision: Decision
    reason: str = ""


ALLOWED: Final = Decision.ALLOW.value
"""What an allowance is counted as."""
_ALLOWED = Verdict(Decision.ALLOW)


@dataclass(frozen=True, slots=True)
class Attributes:
    """Who wants to do what: either to a resource, or, if it is not a resource request, to a path.

    Requirements are those of the request's selectors, for list, watch and deletecollection only.

    Source: k8s.io/apiserver/pkg/authorization/authorizer, AttributesRecord (1.37).
    """

    user: User
    verb: str
    resource_request: bool
    path: str = ""
    namespace: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    field_requirements: tuple[Requirement, ...] = ()
    label_requirements: tuple[Requirement, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Hash it once: what a client asks again and again is looked up by it each time."""
        parts = (self.user, self.verb, self.path, self.namespace, self.resource, self.subresource, self.name)
        object.__setattr__(self, "_hash", hash(parts))

    def __hash__(self) -> int:
        """Of some of its parts."""
        return self._hash

    @property
    def size(self) -> int:
        """Bytes of those parts that the caller chooses freely."""
        return sum(
            len(part.encode("utf-8", "surrogatepass"))
            for part in (
                self.namespace,
                self.verb,
                self.group,
                self.version,
                self.resource,
                self.subresource,
                self.name,
                self.path,
            )
        )


class OpenPaths:
    """Paths that are open to all, asked by `in`; they do not open what is requested of resources.

    Args:
        paths: match exactly; a trailing `*` opens all that begin so.

    Raises:
        ValueError: a path has a `*` elsewhere than at its end.

    Source: k8s.io/apiserver/pkg/authorization/path, NewAuthorizer (1.37).
    """

    def __init__(self, paths: Iterable[str] = ("/healthz", "/readyz", "/livez")) -> None:
        patterns = [path.removeprefix("/") for path in paths]
        if any("*" in pattern[:-1] for pattern in patterns):
            raise ValueError(f"a * may only end an always allowed path: {', '.join(patterns)}")
        self._paths = frozenset(pattern for pattern in patterns if not pattern.endswith("*"))
        self._prefixes = tuple(pattern[:-1] for pattern in patterns if pattern.endswith("*"))

    def __contains__(self, path: object) -> bool:
        """Whether the path is open."""
        relative = str(path).removeprefix("/")
        return relative in self._paths or relative.startswith(self._prefixes)


class Authorizer:
    """Says whether a caller may: always as `system:masters` and on open paths, otherwise as the API server reviews it.

    Args:
        reviewer: sends a SubjectAccessReview and returns it answered; whatever it raises is a failed review.
        open_paths: nobody is asked about.
        clock: seconds that only grow, for how long answers are remembered.

    Attributes:
        attempts: how many questions were answered with each Decision, and with an `error`.
    """

    def __init__(
        self,
        reviewer: Reviewer,
        *,
        open_paths: Container[str] = OpenPaths(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviewer = reviewer
        self._open_paths = open_paths
        self._reviews: ReviewCache[Attributes, Verdict] = ReviewCache(clock=clock)
        self.attempts: Counter[str] = Counter()

    def recall(self, attributes: Attributes) -> Verdict | None:
        """The verdict on the attributes where nobody need be asked; else None, and `authorize` asks."""
        verdict: Verdict | None = _ALLOWED
        if not self._is_exempt(attributes):
            verdict = self._reviews.recall(attributes)
        if verdict is not None:
            self.attempts[verdict.decision.value] += 1
        return verdict

    def lasting(self, attributes: Attributes) -> Callable[[], bool] | None:
        """Says for how long `recall` would allow the attributes without asking; None where it would not now."""
        if self._is_exempt(attributes):
            return _always
        verdict = self._reviews.recall(attributes)
        if verdict is None or verdict.decision is not Decision.ALLOW:
            return None
        return self._reviews.lasting(attributes)

    async def authorize(self, attributes: Attributes) -> Verdict:
        """Return the verdict on the attributes.

        Raises:
            AuthorizationError: the review failed, or its answer makes no sense.
        """
        known = self.recall(attributes)
        if known is not None:
            return known
        try:
            verdict = await self._ask(attributes)
        except AuthorizationError:
            self.attempts["error"] += 1
            raise
        self.attempts[verdict.decision.value] += 1
        return verdict

    async def _ask(self, attributes: Attributes) -> Verdict:
        try:
            return await self._reviews.get(
                attributes, lambda: self._review(attributes), remember=attributes.size < _REMEMBERED_BYTES
            )
        except AuthorizationError:
            raise
        except Exception as error:
            raise AuthorizationError(
                f"the subject access review failed: {str(error) or type(error).__name__}"
            ) from error

    def _is_exempt(self, attributes: Attributes) -> bool:
        """Whether nobody is asked about them."""
        if PRIVILEGED_GROUP in attributes.user.groups:
            return True
        return not attributes.resource_request and attributes.path in self._open_paths

    async def _review(self, attributes: Attributes) -> Verdict:
        answer = await self._reviewer(subject_access_review(attributes))
        status = answer.get("status")
        if not isinstance(status, Mapping):
            raise AuthorizationError("the subject access review was answered without a status")
        reason = str(status.get("reason") or "")
        allowed, denied = status.get("allowed") is True, status.get("denied") is True
        if allowed and denied:
            raise AuthorizationError("the subject access review was answered with allowed and denied at once")
        if allowed or denied:
            return Verdict(Decision.ALLOW if allowed else Decision.DENY, reason)
        return Verdict(Decision.NO_OPINION, f"{_AUTHORIZER_NAME}: {reason}" if reason else "")


def _always() -> bool:
    return True


def subject_access_review(attributes: Attributes) -> dict[str, object]:
    """Return the SubjectAccessReview of authorization.k8s.io/v1 that asks for the attributes, without empty fields."""
    user = attributes.user
    spec = {
        "user": user.name,
        "uid": user.uid,
        "groups": list(user.groups),
        "extra": {key: list(values) for key, values in user.extra.items()},
    }
    if attributes.resource_request:
        spec["resourceAttributes"] = _resource_attributes(attributes)
    else:
        spec["nonResourceAttributes"] = _without_empty({"path": attributes.path, "verb": attributes.verb})
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {key: value for key, value in spec.items() if value or key.endswith("Attributes")},
    }


def _resource_attributes(attributes: Attributes) -> dict[str, object]:
    fields = _requirements(attributes.field_requirements, _FIELD_OPERATORS)
    labels = _requirements(attributes.label_requirements, _LABEL_OPERATORS)
    return _without_empty(
        {
            "namespace": attributes.namespace,
            "verb": attributes.verb,
            "group": attributes.group,
            "version": attributes.version,
            "resource": attributes.resource,
            "subresource": attributes.subresource,
            "name": attributes.name,
            "fieldSelector": {"requirements": fields} if fields else None,
            "labelSelector": {"requirements": labels} if labels else None,
        }
    )


def _requirements(requirements: Iterable[Requirement], operators: Mapping[str, str]) -> list[dict[str, object]]:
    """Translate terms of a selector; an unknown operator is left out, which only asks for a wider right."""
    return [
        _without_empty({"key": key, "operator": operators[operator.lower()], "values": list(values)})
        for key, operator, values in requirements
        if operator.lower() in operators
    ]


def _without_empty(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value}


# --- What a refused caller reads --------------------------------------------------------------------------------------


def forbidden_message(attributes: Attributes, reason: str = "") -> str:
    """Return the message of a 403 Status: what is forbidden, and why.

    Source: k8s.io/apimachinery/pkg/api/errors, NewForbidden (1.37).
    """
    what = attributes.resource
    if attributes.group:
        what = f"{what}.{attributes.group}"
    if not what:
        return f"forbidden: {forbidden_cause(attributes, reason)}"
    name = f" {_quote(attributes.name)}" if attributes.name else ""
    return f"{what}{name} is forbidden: {forbidden_cause(attributes, reason)}"


def forbidden_cause(attributes: Attributes, reason: str = "") -> str:
    """Return the part of the message after `forbidden: `; as in Go, the reason alone is not made safe for HTML.

    Source: k8s.io/apiserver/pkg/endpoints/handlers/responsewriters, ForbiddenStatusError (1.37).
    """
    cannot = f"User {_quote(attributes.user.name)} cannot {attributes.verb}"
    if not attributes.resource_request:
        cause = f"{cannot} path {_quote(attributes.path)}"
    else:
        resource = attributes.resource
        if attributes.subresource:
            resource = f"{resource}/{attributes.subresource}"
        where = f"in the namespace {_quote(attributes.namespace)}" if attributes.namespace else "at the cluster scope"
        cause = f"{cannot} resource {_quote(resource)} in API group {_quote(attributes.group)} {where}"
    cause = cause.translate(_HTML)
    return f"{cause}: {reason}" if reason else cause


def _quote(text: str) -> str:
    """Quote as Go's %q does."""
    return f'"{"".join(map(_quote_character, text))}"'


def _quote_character(character: str) -> str:
    code = ord(character)
    if character in _GO_ESCAPES:
        return _GO_ESCAPES[character]
    if character.isprintable():
        return character
    if "\udc80" <= character <= "\udcff":  # a byte that was not UTF-8, as aiohttp hands it on
        return f"\\x{code - 0xDC00:02x}"
    if character < " " or character == "\x7f":
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if character <= "\uffff" else f"\\U{code:08x}"
