"""List options: what may be asked of a list or a watch, read from the query.

Source: apimachinery pkg/apis/meta/internalversion (defaults.go, validation/validation.go) of Kubernetes 1.37.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.serving.request_info import is_true_like
from apiserver.serving.status import BadRequest, Invalid

EXACT: Final = "Exact"
NOT_OLDER_THAN: Final = "NotOlderThan"
GET_OPTIONS: Final = frozenset({"export", "includeObject", "pretty", "resourceVersion", "timeout"})
"""What may be asked of any one object; timeout is what client-go adds for a deadline of its own."""

_INT64: Final = 2**63
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,20}")
_FORBIDDEN: Final = "FieldValueForbidden"
_NOT_SUPPORTED: Final = "FieldValueNotSupported"


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of one list or watch.

    Attributes:
        limit: objects on a page; 0 for all.
        continue_token: where the page before ended; "" for the first.
        resource_version: the version asked for, or None for the most recent ("" and, where any will do, 0).
        exactly: that very version, rather than one not older.
        allow_watch_bookmarks: whether a watch may carry bookmarks.
        send_initial_events: whether a watch begins with all objects.
        marks_initial_events: whether the end of those is marked by a bookmark.
        timeout_seconds: how long a watch lasts; 0 for the server's choice.
    """

    limit: int = 0
    continue_token: str = ""
    resource_version: int | None = None
    exactly: bool = False
    allow_watch_bookmarks: bool = False
    send_initial_events: bool = False
    marks_initial_events: bool = False
    timeout_seconds: int = 0


def read_options(query: Mapping[str, str], *, watch: bool) -> ListOptions:
    """Read and check the options of a list or a watch.

    Raises:
        BadRequest: one cannot be understood.
        Invalid: some do not go together.
    """
    if not query:
        return _NO_OPTIONS
    limit, timeout_seconds = _integer(query, "limit"), _integer(query, "timeoutSeconds")
    causes = _watch_causes(query) if watch else _list_causes(query)
    if causes:
        raise Invalid(causes)
    if not watch and query.get("continue") and query.get("resourceVersion", "0") not in ("", "0"):
        raise BadRequest("specifying resource version is not allowed when using continue")
    version = _version(query, watch=watch)
    asked_for_initial = is_true_like(query["sendInitialEvents"]) if "sendInitialEvents" in query else None
    bookmarks = is_true_like(query.get("allowWatchBookmarks", "false"))
    return ListOptions(
        limit=max(0, limit),
        continue_token=query.get("continue", ""),
        resource_version=version,
        exactly=query.get("resourceVersionMatch") == EXACT,
        allow_watch_bookmarks=bookmarks,
        # A watch from no version, or from any, begins with all objects; so it always was.
        send_initial_events=version is None if asked_for_initial is None else asked_for_initial,
        marks_initial_events=bool(asked_for_initial) and bookmarks,
        timeout_seconds=max(0, timeout_seconds),
    )


_NO_OPTIONS: Final = ListOptions(send_initial_events=True)
"""A list takes no notice of the initial events, and a watch begins with them."""


def _integer(query: Mapping[str, str], key: str) -> int:
    text = query.get(key, "") or "0"
    if not _NUMBER.fullmatch(text):
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax ({key})')
    value = int(text)
    if not -_INT64 <= value < _INT64:
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": value out of range ({key})')
    return value


def _version(query: Mapping[str, str], *, watch: bool) -> int | None:
    text = query.get("resourceVersion", "")
    if text in ("", "0"):
        return None
    if not (_NUMBER.fullmatch(text) and 0 <= int(text) < 2 * _INT64):
        problem = f'strconv.ParseUint: parsing "{text}": invalid syntax'
        if watch:
            raise Invalid([("resourceVersion", "FieldValueInvalid", f'Invalid value: "{text}": {problem}')])
        raise BadRequest(f"invalid resource version: {problem}")
    return int(text)


def _list_causes(query: Mapping[str, str]) -> list[tuple[str, str, str]]:
    causes = []
    match = query.get("resourceVersionMatch", "")
    field = "resourceVersionMatch"
    if match:
        if not query.get("resourceVersion"):
            message = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
            causes.append((field, _FORBIDDEN, message))
        if query.get("continue"):
            message = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
            causes.append((field, _FORBIDDEN, message))
        if match not in (EXACT, NOT_OLDER_THAN):
            message = f'Unsupported value: "{match}": supported values: "{EXACT}", "{NOT_OLDER_THAN}", ""'
            causes.append((field, _NOT_SUPPORTED, message))
        if match == EXACT and query.get("resourceVersion") == "0":
            message = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            causes.append((field, _FORBIDDEN, message))
    if "sendInitialEvents" in query:
        message = "Forbidden: sendInitialEvents is forbidden for list"
        causes.append(("sendInitialEvents", _FORBIDDEN, message))
    return causes


def _watch_causes(query: Mapping[str, str]) -> list[tuple[str, str, str]]:
    causes = []
    match = query.get("resourceVersionMatch", "")
    field = "resourceVersionMatch"
    initial = "sendInitialEvents" in query
    if initial and match != NOT_OLDER_THAN:
        message = f"Forbidden: sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
        causes.append((field, _FORBIDDEN, message))
    if match:
        if not initial:
            message = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            causes.append((field, _FORBIDDEN, message))
        if match != NOT_OLDER_THAN:
            causes.append(
                (field, _NOT_SUPPORTED, f'Unsupported value: "{match}": supported values: "{NOT_OLDER_THAN}"')
            )
    # A watch from no version is one with initial events, by default; so a page cannot be gone on with.
    is_defaulted = not initial and query.get("resourceVersion", "") in ("", "0")
    if query.get("continue") and (match or is_defaulted):
        message = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
        causes.append((field, _FORBIDDEN, message))
    return causes
