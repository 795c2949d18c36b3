"""List options: what is taken and what is refused, and with which code."""

import pytest

from apiserver.serving.options import ListOptions, read_options
from apiserver.serving.status import BadRequest, Invalid


@pytest.mark.parametrize(
    ("query", "watch", "options"),
    [
        pytest.param({}, False, ListOptions(send_initial_events=True), id="nothing"),
        pytest.param({"limit": "500"}, False, ListOptions(limit=500, send_initial_events=True), id="kubectl get"),
        pytest.param({"limit": "-1"}, False, ListOptions(send_initial_events=True), id="a negative limit is none"),
        pytest.param({"resourceVersion": "0"}, True, ListOptions(send_initial_events=True), id="any version"),
        pytest.param({"resourceVersion": "7"}, True, ListOptions(resource_version=7), id="from a version"),
        pytest.param(
            {"resourceVersion": "7", "resourceVersionMatch": "Exact"},
            False,
            ListOptions(resource_version=7, exactly=True),
            id="exactly a version",
        ),
        pytest.param(
            {"allowWatchBookmarks": "", "timeoutSeconds": "9"},
            True,
            ListOptions(allow_watch_bookmarks=True, send_initial_events=True, timeout_seconds=9),
            id="an empty boolean is true",
        ),
        pytest.param(
            {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"},
            True,
            ListOptions(allow_watch_bookmarks=True, send_initial_events=True, marks_initial_events=True),
            id="client-go's WatchList",
        ),
        pytest.param(
            {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "7"},
            True,
            ListOptions(resource_version=7),
            id="no initial events",
        ),
    ],
)
def test_taken(query: dict[str, str], watch: bool, options: ListOptions) -> None:
    """Options are read and defaulted as Kubernetes does."""
    assert read_options(query, watch=watch) == options


@pytest.mark.parametrize(
    ("query", "watch"),
    [
        ({"limit": "x"}, False),
        ({"limit": "1.5"}, False),
        ({"limit": "99999999999999999999"}, False),
        ({"timeoutSeconds": "x"}, True),
        ({"resourceVersion": "x"}, False),
        ({"resourceVersion": "-1"}, False),
        ({"resourceVersion": "1" * 30}, False),
        ({"continue": "x", "resourceVersion": "7"}, False),
    ],
)
def test_bad_request(query: dict[str, str], watch: bool) -> None:
    """What cannot be understood is 400."""
    with pytest.raises(BadRequest):
        read_options(query, watch=watch)


@pytest.mark.parametrize(
    ("query", "watch", "fields"),
    [
        ({"resourceVersionMatch": "Exact"}, False, ["resourceVersionMatch"]),
        ({"resourceVersionMatch": "Other", "resourceVersion": "7"}, False, ["resourceVersionMatch"]),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, False, ["resourceVersionMatch"]),
        ({"resourceVersionMatch": "Exact", "continue": "x"}, False, ["resourceVersionMatch"] * 2),
        ({"sendInitialEvents": "false"}, False, ["sendInitialEvents"]),
        ({"sendInitialEvents": "true"}, True, ["resourceVersionMatch"]),
        ({"resourceVersionMatch": "NotOlderThan"}, True, ["resourceVersionMatch"]),
        ({"sendInitialEvents": "true", "resourceVersionMatch": "Exact"}, True, ["resourceVersionMatch"] * 2),
        ({"resourceVersion": "x"}, True, ["resourceVersion"]),
    ],
)
def test_invalid(query: dict[str, str], watch: bool, fields: list[str]) -> None:
    """What does not go together is 422, with a cause for each field."""
    with pytest.raises(Invalid) as caught:
        read_options(query, watch=watch)
    assert [cause["field"] for cause in caught.value.details["causes"]] == fields
    assert (caught.value.details["kind"], caught.value.details["group"]) == ("ListOptions", "meta.k8s.io")
