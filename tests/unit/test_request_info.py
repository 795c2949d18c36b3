"""Requests as attributes."""

import pytest

from apiserver.serving.request_info import RequestInfo, read_request

G, V = "catalog.cozystack.io", "v1alpha1"


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        pytest.param("GET", "/", {}, ("get", False, "", "", "", ""), id="the root"),
        pytest.param("GET", f"/apis/{G}", {}, ("get", False, "", "", "", ""), id="a group"),
        pytest.param("GET", f"/apis/{G}/{V}/", {}, ("get", False, "", "", "", ""), id="a version"),
        pytest.param("GET", f"/apis/{G}/{V}/r", {}, ("list", True, "", "r", "", ""), id="list"),
        pytest.param("GET", f"/apis/{G}/{V}/r/", {}, ("list", True, "", "r", "", ""), id="a trailing slash"),
        pytest.param("GET", f"/apis/{G}/{V}/r", {"watch": ""}, ("watch", True, "", "r", "", ""), id="an empty watch"),
        pytest.param("GET", f"/apis/{G}/{V}/r", {"watch": "yes"}, ("watch", True, "", "r", "", ""), id="watch=yes"),
        pytest.param("GET", f"/apis/{G}/{V}/r", {"watch": "False"}, ("list", True, "", "r", "", ""), id="watch=False"),
        pytest.param("GET", f"/apis/{G}/{V}/r/n", {"watch": "1"}, ("get", True, "", "r", "n", ""), id="watch one"),
        pytest.param("GET", f"/apis/{G}/{V}/watch/r", {}, ("watch", True, "", "r", "", ""), id="the old watch path"),
        pytest.param("GET", f"/apis/{G}/{V}/r/n/s", {}, ("get", True, "", "r", "n", "s"), id="a subresource"),
        pytest.param("HEAD", f"/apis/{G}/{V}/r/n", {}, ("get", True, "", "r", "n", ""), id="HEAD"),
        pytest.param("DELETE", f"/apis/{G}/{V}/r", {}, ("deletecollection", True, "", "r", "", ""), id="delete all"),
        pytest.param("POST", f"/apis/{G}/{V}/r", {}, ("create", True, "", "r", "", ""), id="create"),
        pytest.param("BREW", f"/apis/{G}/{V}/r", {}, ("", True, "", "r", "", ""), id="an unknown method"),
        pytest.param("GET", f"/apis/{G}/{V}/namespaces/t/r/n", {}, ("get", True, "t", "r", "n", ""), id="namespaced"),
        pytest.param("GET", "/api/v1/namespaces/t", {}, ("get", True, "t", "namespaces", "t", ""), id="a namespace"),
        pytest.param(
            "GET", "/api/v1/namespaces/t/status", {}, ("get", True, "t", "namespaces", "t", "status"), id="its status"
        ),
    ],
)
def test_read(method: str, path: str, query: dict[str, str], expected: tuple[str, bool, str, str, str, str]) -> None:
    """Verb, kind of request, namespace, resource, name and subresource, as RequestInfo has them."""
    info: RequestInfo = read_request(method, path, query)
    found = (info.verb, info.is_resource_request, info.namespace, info.resource, info.name, info.subresource)
    assert found == expected
