"""Content negotiation: what each client sends and gets."""

import pytest

from apiserver.serving.negotiation import JSON, YAML, Representation, negotiate, wants_pretty
from apiserver.serving.status import NotAcceptable

TABLE_V1 = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param("", Representation(JSON), id="nothing"),
        pytest.param("*/*", Representation(JSON), id="anything"),
        pytest.param("application/*", Representation(JSON), id="any application"),
        pytest.param("application/json, */*", Representation(JSON), id="kubectl get --raw"),
        pytest.param(
            f"{TABLE_V1},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Representation(JSON, "Table", "v1"),
            id="kubectl get",
        ),
        pytest.param("application/vnd.kubernetes.protobuf,application/json", Representation(JSON), id="client-go"),
        pytest.param(
            f"application/vnd.kubernetes.protobuf;{METADATA},application/json;{METADATA},application/json",
            Representation(JSON, "PartialObjectMetadataList", "v1"),
            id="the metadata client of the controllers",
        ),
        pytest.param("application/yaml", Representation(YAML), id="YAML"),
        pytest.param("application/json;q=0.5,application/yaml", Representation(YAML), id="by quality"),
        pytest.param("*/*,application/yaml", Representation(YAML), id="the more specific before the wildcard"),
        pytest.param("application/json;as=Other;v=v1;g=meta.k8s.io,application/yaml", Representation(YAML), id="skip"),
        pytest.param("application/json;pretty=1", Representation(JSON, pretty=True), id="pretty"),
        pytest.param("application/json;pretty=true", Representation(JSON), id="only 1 is pretty"),
        pytest.param(
            "application/json;as=Table;v=v1beta1;g=meta.k8s.io", Representation(JSON, "Table", "v1beta1"), id="v1beta1"
        ),
        pytest.param("application/json;stream=watch;charset=utf-8", Representation(JSON), id="other parameters"),
        pytest.param("application/json;q=x", Representation(JSON), id="a broken quality"),
    ],
)
def test_negotiate(accept: str, expected: Representation) -> None:
    """The first clause that can be served wins."""
    assert negotiate(accept) == expected


@pytest.mark.parametrize(
    "accept",
    ["text/plain", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v2;g=meta.k8s.io", ";"]
    + [f"application/json;{parameters}" for parameters in ("stream=other", "sv=v1", "g=meta.k8s.io", "v=v1")],
)
def test_not_acceptable(accept: str) -> None:
    """What cannot be made is refused."""
    with pytest.raises(NotAcceptable):
        negotiate(accept)


@pytest.mark.parametrize(
    ("representation", "query", "agent", "pretty"),
    [
        (Representation(), {}, "kubectl/v1.37", False),
        (Representation(), {}, "curl/8", True),
        (Representation(), {}, "Mozilla/5.0 (X11)", True),
        (Representation(), {"pretty": "false"}, "curl/8", False),
        (Representation(), {"pretty": ""}, "kubectl/v1.37", True),
        (Representation(pretty=True), {}, "", True),
    ],
)
def test_pretty(representation: Representation, query: dict[str, str], agent: str, pretty: bool) -> None:
    """The query decides, then the media type, then who asks."""
    assert wants_pretty(representation, query, agent) is pretty
