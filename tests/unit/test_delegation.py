"""Delegated trust: what is believed of the cluster's configuration and of its reviews."""

from typing import Any

import pytest

from apiserver.cluster.client import ClusterClient
from apiserver.delegation import ConfigMap, Reviews, Trust
from apiserver.serving.authentication import Authenticator
from apiserver.serving.certificates import ServingContext, self_signed
from apiserver.serving.users import User
from tests.unit.test_certificates import authority

FRONT_PROXY = {"requestheader-client-ca-file": authority("front-proxy").pem}
BROKEN = {"requestheader-client-ca-file": "no certificate"}


@pytest.fixture
def authenticator() -> Authenticator:
    """Nobody is trusted yet."""
    return Authenticator()


@pytest.fixture
def trust(authenticator: Authenticator) -> Trust:
    """What keeps it told."""
    pair = self_signed(["localhost"])
    return Trust(authenticator, ServingContext(lambda: pair))


def trusted(authenticator: Authenticator) -> bool:
    """Whether the front proxy's authority is trusted."""
    config = authenticator.config
    return config is not None and config.request_header is not None and config.request_header.ca is not None


def test_nothing_known(trust: Trust, authenticator: Authenticator) -> None:
    """Before the ConfigMap was read nobody is trusted, and health says so."""
    assert not authenticator.configured
    assert "extension-apiserver-authentication" in (trust.problem() or "")


def test_taken(trust: Trust, authenticator: Authenticator) -> None:
    """What the cluster publishes is trusted from then on; a change replaces it."""
    trust.replace([ConfigMap(FRONT_PROXY)])
    assert trusted(authenticator)
    assert trust.problem() is None
    trust.apply("MODIFIED", ConfigMap({}))
    assert not trusted(authenticator)


def test_missing(trust: Trust, authenticator: Authenticator) -> None:
    """A cluster without the ConfigMap trusts no front proxy, and that is no problem."""
    trust.replace([])
    assert authenticator.configured
    assert not trusted(authenticator)
    assert trust.problem() is None


@pytest.mark.parametrize("step", ["deleted", "gone from the list", "broken", "unreadable"])
def test_what_was_good_stays(trust: Trust, authenticator: Authenticator, step: str) -> None:
    """Neither the deletion of the ConfigMap nor a broken one takes trust away; a broken one is said."""
    trust.replace([ConfigMap(FRONT_PROXY)])
    if step == "deleted":
        trust.apply("DELETED", ConfigMap(FRONT_PROXY))
    elif step == "gone from the list":
        trust.replace([])
    elif step == "broken":
        trust.apply("MODIFIED", ConfigMap(BROKEN))
    else:
        trust.reject("kube-system/x", "no object")
    assert trusted(authenticator)
    assert (trust.problem() is not None) is (step in ("broken", "unreadable"))
    trust.apply("MODIFIED", ConfigMap(FRONT_PROXY))
    assert trust.problem() is None


class Answering(ClusterClient):
    """A connection that answers every review with the same status."""

    def __init__(self, status: Any) -> None:  # noqa: ANN401 # JSON
        self.asked: list[tuple[str, Any]] = []
        self._status = status

    async def post(self, path: str, body: Any) -> dict[str, Any]:  # noqa: ANN401 # JSON
        """Answer."""
        self.asked.append((path, body))
        return {**body, "status": self._status}


async def test_token() -> None:
    """A valid token is its user, with all that belongs to one."""
    user = {"username": "jane", "uid": "7", "groups": ["a", "b"], "extra": {"scopes": ["x", "y"]}}
    reviews = Reviews()
    reviews.client = client = Answering({"authenticated": True, "user": user})
    assert await reviews.token("t") == User("jane", "7", ("a", "b"), {"scopes": ("x", "y")})
    ((path, body),) = client.asked
    assert path.endswith("/tokenreviews")
    assert body["spec"] == {"token": "t"}


async def test_invalid_token() -> None:
    """A token that is not valid is nobody, and a review that failed is an error: neither is anonymous."""
    reviews = Reviews()
    reviews.client = Answering({"authenticated": False})
    assert await reviews.token("t") is None
    reviews.client = Answering({"error": "no issuer", "authenticated": True})
    with pytest.raises(ValueError, match="no issuer"):
        await reviews.token("t")


async def test_not_connected() -> None:
    """Before there is a connection every review fails, which refuses the request."""
    with pytest.raises(ConnectionError):
        await Reviews().access({})
    reviews = Reviews()
    reviews.client = Answering({"allowed": True})
    assert (await reviews.access({"spec": {}}))["status"] == {"allowed": True}
