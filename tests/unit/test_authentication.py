"""Who is asking: the order of the authenticators, what each accepts, and what is remembered about tokens."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from apiserver.serving.authentication import (
    AuthenticationConfig,
    Authenticator,
    ForeignPage,
    RequestHeaderConfig,
    Unauthenticated,
    impersonation_requested,
    unescape_extra_key,
    user_from_headers,
)
from apiserver.serving.users import ANONYMOUS, User, with_authenticated_group
from tests.unit.test_certificates import NOW, SERVER_AUTH, Issued, authority, client, credential

FRONT_PROXY_CA = authority("front-proxy-ca")
CLIENT_CA = authority("kubernetes")

FRONT_PROXY = client(FRONT_PROXY_CA, "front-proxy-client")
JANE = client(CLIENT_CA, "jane")
STRANGER = client(authority("elsewhere"), "jane")

HEADERS = RequestHeaderConfig(
    username_headers=("X-Remote-User",),
    uid_headers=("X-Remote-Uid",),
    group_headers=("X-Remote-Group",),
    extra_prefixes=("X-Remote-Extra-",),
)
CONFIGMAP = {
    "client-ca-file": CLIENT_CA.pem,
    "requestheader-client-ca-file": FRONT_PROXY_CA.pem,
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-allowed-names": '["front-proxy-client"]',
}
AS_ALICE = {"X-Remote-User": "alice", "X-Remote-Group": "dev"}
GOOD_TOKEN = {"Authorization": "Bearer good"}
BAD_TOKEN = {"Authorization": "Bearer bad"}

ALICE = User("alice", groups=("dev", "system:authenticated"))
ROBOT = User("robot", groups=("system:authenticated",))
JANE_BY_CERTIFICATE = User("jane", groups=("system:authenticated",), extra=credential(JANE))


async def review(token: str) -> User | None:
    """Know one good token."""
    return User("robot") if token == "good" else None


def authenticator(
    configmap: Mapping[str, str] = CONFIGMAP,
    *,
    token_reviewer: Callable[[str], Awaitable[User | None]] | None = review,
    now: datetime = NOW,
) -> Authenticator:
    """Return an authenticator that trusts what the ConfigMap says, at a fixed time."""
    return Authenticator(
        AuthenticationConfig.from_configmap(configmap), token_reviewer=token_reviewer, now=now.timestamp
    )


async def who(asked: Authenticator, certificate: Issued | None, headers: Mapping[str, str]) -> User | None:
    """Return who is asking, None for 401."""
    try:
        shown, given = certificate.der if certificate else None, CIMultiDict(headers)
        return asked.recall(shown, given) or await asked.authenticate(peer_certificate=shown, headers=given)
    except Unauthenticated:
        return None


# --- The table: certificate, allowed names, headers -------------------------------------------------------------------

OTHER_NAME = client(FRONT_PROXY_CA, "somebody")
SHARED = {**CONFIGMAP, "requestheader-client-ca-file": CLIENT_CA.pem}
SHARED_FRONT_PROXY = client(CLIENT_CA, "front-proxy-client")


@pytest.mark.parametrize(
    ("configmap", "certificate", "headers", "user"),
    [
        pytest.param(CONFIGMAP, None, AS_ALICE, ANONYMOUS, id="without a certificate the headers are ignored"),
        pytest.param(CONFIGMAP, None, AS_ALICE | GOOD_TOKEN, ROBOT, id="without a certificate the token counts"),
        pytest.param(CONFIGMAP, FRONT_PROXY, AS_ALICE, ALICE, id="the front proxy is believed"),
        pytest.param(CONFIGMAP, FRONT_PROXY, AS_ALICE | BAD_TOKEN, ALICE, id="the front proxy comes before the token"),
        pytest.param(
            SHARED,
            SHARED_FRONT_PROXY,
            {},
            User("front-proxy-client", groups=("system:authenticated",), extra=credential(SHARED_FRONT_PROXY)),
            id="a front proxy that names nobody is an ordinary client, if it is one",
        ),
        pytest.param(CONFIGMAP, FRONT_PROXY, {}, None, id="a front proxy that names nobody is refused as a client"),
        pytest.param(CONFIGMAP, FRONT_PROXY, GOOD_TOKEN, ROBOT, id="a front proxy that names nobody may show a token"),
        pytest.param(
            {key: value for key, value in CONFIGMAP.items() if key != "client-ca-file"},
            FRONT_PROXY,
            {},
            ANONYMOUS,
            id="a front proxy that names nobody is anonymous where no client authority objects",
        ),
        pytest.param(SHARED, JANE, AS_ALICE, JANE_BY_CERTIFICATE, id="a name not allowed falls back to the client"),
        pytest.param(CONFIGMAP, OTHER_NAME, AS_ALICE | GOOD_TOKEN, ROBOT, id="a name not allowed may show a token"),
        pytest.param(CONFIGMAP, OTHER_NAME, AS_ALICE, None, id="a name not allowed, and nothing else, is refused"),
        pytest.param(CONFIGMAP, JANE, AS_ALICE, JANE_BY_CERTIFICATE, id="a client's headers are ignored"),
        pytest.param(CONFIGMAP, STRANGER, AS_ALICE, None, id="a stranger is refused, not anonymous"),
        pytest.param(CONFIGMAP, STRANGER, GOOD_TOKEN, ROBOT, id="a stranger may show a token"),
        pytest.param(CONFIGMAP, STRANGER, BAD_TOKEN, None, id="a stranger with a bad token is refused"),
        pytest.param(
            CONFIGMAP, client(FRONT_PROXY_CA, "front-proxy-client", age=timedelta(days=2)), AS_ALICE, None, id="expired"
        ),
        pytest.param(
            CONFIGMAP,
            client(FRONT_PROXY_CA, "front-proxy-client", usages=SERVER_AUTH),
            AS_ALICE,
            None,
            id="no client use",
        ),
        pytest.param(
            CONFIGMAP | {"requestheader-allowed-names": "[]"}, OTHER_NAME, AS_ALICE, ALICE, id="no names allow all"
        ),
        pytest.param(
            CONFIGMAP | {"requestheader-allowed-names": '["Front-Proxy-Client"]'},
            FRONT_PROXY,
            AS_ALICE,
            None,
            id="allowed names differ by case",
        ),
        pytest.param(
            CONFIGMAP | {"requestheader-username-headers": ""},
            FRONT_PROXY,
            AS_ALICE | GOOD_TOKEN,
            ROBOT,
            id="without a configured header the front proxy names nobody",
        ),
        pytest.param({}, STRANGER, AS_ALICE, ANONYMOUS, id="where nothing is trusted a certificate says nothing"),
        pytest.param(CONFIGMAP, None, {}, ANONYMOUS, id="nobody in particular"),
    ],
)
async def test_who(
    configmap: Mapping[str, str], certificate: Issued | None, headers: Mapping[str, str], user: User | None
) -> None:
    """The first authenticator that knows wins; without one, an objection means 401."""
    assert await who(authenticator(configmap), certificate, headers) == user


async def test_intermediates_are_heeded() -> None:
    """A client may present the path to its authority."""
    middle = authority("middle", issuer=CLIENT_CA)
    leaf = client(middle, "jane")
    user = await authenticator().authenticate(
        peer_certificate=leaf.der, intermediates=(middle.der,), headers=CIMultiDict()
    )
    assert user.name == "jane"


async def test_trust_is_withdrawn_at_once() -> None:
    """A new configuration replaces the old one, remembered certificates included."""
    asked = authenticator()
    assert await who(asked, FRONT_PROXY, AS_ALICE) == ALICE
    asked.update(AuthenticationConfig.from_configmap(CONFIGMAP | {"requestheader-client-ca-file": CLIENT_CA.pem}))
    assert await who(asked, FRONT_PROXY, AS_ALICE) is None


async def test_a_known_certificate() -> None:
    """Who was known by the certificate alone is not for ever: not expired, not untrusted, not by a foreign page."""
    now = NOW
    asked = Authenticator(AuthenticationConfig.from_configmap(CONFIGMAP), now=lambda: now.timestamp())  # noqa: PLW0108 # of whatever it is then
    foreign = {"Host": "catalog", "Origin": "https://evil.example", "Upgrade": "websocket"}
    for headers in ({}, AS_ALICE, {}):
        assert await who(asked, JANE, headers) == JANE_BY_CERTIFICATE
    with pytest.raises(ForeignPage):
        await who(asked, JANE, foreign)
    now = JANE.certificate.not_valid_after_utc - timedelta(seconds=1)
    assert await who(asked, JANE, {}) == JANE_BY_CERTIFICATE
    now += timedelta(seconds=2)
    assert await who(asked, JANE, {}) is None
    now = NOW
    assert await who(asked, JANE, {}) == JANE_BY_CERTIFICATE
    asked.update(AuthenticationConfig.from_configmap(CONFIGMAP | {"client-ca-file": FRONT_PROXY_CA.pem}))
    assert await who(asked, JANE, {}) is None


async def test_before_configuration() -> None:
    """As long as nothing is known of the cluster, headers and certificates say nothing, and this can be told."""
    asked = Authenticator()
    assert not asked.configured
    assert await who(asked, FRONT_PROXY, AS_ALICE) == ANONYMOUS
    asked.update(AuthenticationConfig())
    assert asked.configured


@pytest.mark.parametrize(
    ("groups", "want"),
    [
        pytest.param((), ("system:authenticated",), id="no groups"),
        pytest.param(("dev",), ("dev", "system:authenticated"), id="added at the end"),
        pytest.param(("system:authenticated", "dev"), ("system:authenticated", "dev"), id="already there"),
        pytest.param(("system:unauthenticated",), ("system:unauthenticated",), id="said to be the opposite"),
    ],
)
def test_authenticated_group(groups: tuple[str, ...], want: tuple[str, ...]) -> None:
    """Whoever is known is in system:authenticated, unless the authenticator settled it."""
    assert with_authenticated_group(User("alice", groups=groups)).groups == want
    assert with_authenticated_group(User("system:anonymous", groups=groups)).groups == groups


# --- Headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        pytest.param([], None, id="nobody"),
        pytest.param([("X-Remote-User", "")], None, id="an empty name is none"),
        pytest.param([("x-remote-USER", "alice")], User("alice"), id="case does not matter"),
        pytest.param([("X-Remote-User", "a"), ("X-Remote-User", "b")], User("a"), id="only the first name counts"),
        pytest.param([("X-Remote-User", ""), ("X-Remote-User", "b")], None, id="even if the first is empty"),
        pytest.param([("X-Remote-User", "a"), ("X-Remote-Uid", "7")], User("a", uid="7"), id="UID"),
        pytest.param(
            [("X-Remote-Group", "x"), ("X-Remote-User", "a"), ("X-Remote-Group", ""), ("X-Remote-Group", "y,z")],
            User("a", groups=("x", "y,z")),
            id="every group that is not empty, and no comma splits",
        ),
        pytest.param(
            [
                ("X-Remote-User", "a"),
                ("X-Remote-Extra-Scopes", "read"),
                ("x-remote-extra-scopes", "write"),
                ("X-Remote-Extra-authentication.kubernetes.io%2fpod-name", "p"),
                ("X-Remote-Extra-100%", "full"),
            ],
            User(
                "a",
                extra={"scopes": ("read", "write"), "authentication.kubernetes.io/pod-name": ("p",), "100%": ("full",)},
            ),
            id="extras by key, unescaped",
        ),
        pytest.param([("X-Remote-User", "j\u00f6rg")], User("j\u00f6rg"), id="UTF-8"),
        pytest.param([("X-Remote-User", "j\udcf6rg")], User("j\ufffdrg"), id="what is not UTF-8 is replaced"),
    ],
)
def test_user_from_headers(headers: list[tuple[str, str]], user: User | None) -> None:
    """The headers of a front proxy are read as Go reads them."""
    assert user_from_headers(HEADERS, CIMultiDict(headers)) == user


def test_several_configured_headers() -> None:
    """The first configured header that says something names the user, and all of them the groups, in their order."""
    config = RequestHeaderConfig(
        username_headers=("X-Remote-User", "X-User"),
        group_headers=("X-Remote-Group", "X-Group"),
        extra_prefixes=("X-Remote-Extra-", "X-Extra-"),
    )
    headers = CIMultiDict(
        {"X-Extra-K": "2", "X-Group": "y", "X-User": "bob", "X-Remote-Group": "x", "X-Remote-Extra-K": "1"}
    )
    assert user_from_headers(config, headers) == User("bob", groups=("x", "y"), extra={"k": ("1", "2")})


TOKEN_BYTES = frozenset(b"!#$&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def escape_extra_key(key: str) -> str:
    """Escape a key as client-go does for a header's name."""
    return "".join(chr(byte) if byte in TOKEN_BYTES else f"%{byte:02X}" for byte in key.encode())


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="ABCDEFGHIJKLMNOPQRSTUVWXYZ")))
def test_extra_keys_survive(key: str) -> None:
    """Any key, which Kubernetes wants in lower case, arrives as it was sent."""
    escaped = escape_extra_key(key)
    assert unescape_extra_key(escaped) == key
    assert unescape_extra_key(escaped.lower()) == key


@given(st.text(st.characters(codec="ascii")))
def test_unescaping_never_fails(raw: str) -> None:
    """Whatever a header is called, there is a key; a bad escape leaves it as it is."""
    key = unescape_extra_key(raw)
    assert "%" in raw or key == raw.lower()


@pytest.mark.parametrize(
    ("name", "want"),
    [
        pytest.param("Impersonate-User", True, id="user"),
        pytest.param("impersonate-extra-scopes", True, id="extra, in lower case"),
        pytest.param("X-Impersonate-User", False, id="another header"),
    ],
)
def test_impersonation(name: str, want: bool) -> None:
    """A request to act as somebody else is seen whatever of it is sent."""
    assert impersonation_requested(CIMultiDict({"Accept": "*/*", name: "x"})) is want


# --- The ConfigMap ----------------------------------------------------------------------------------------------------


def test_configmap() -> None:
    """The ConfigMap of a kubeadm cluster is read completely."""
    config = AuthenticationConfig.from_configmap(CONFIGMAP)
    assert config.client_ca is not None
    assert config.request_header is not None
    assert config.request_header.ca is not None
    assert config.verifiers == (config.request_header.ca, config.client_ca)
    assert config.request_header == RequestHeaderConfig(
        ca=config.request_header.ca,
        username_headers=("X-Remote-User",),
        uid_headers=("X-Remote-Uid",),
        group_headers=("X-Remote-Group",),
        extra_prefixes=("X-Remote-Extra-",),
        allowed_names=("front-proxy-client",),
    )


@pytest.mark.parametrize("value", ["", "[]", "null"])
def test_empty_configmap(value: str) -> None:
    """Absent, empty and null values publish nothing."""
    assert AuthenticationConfig.from_configmap({}) == AuthenticationConfig()
    lists = {key: value for key in CONFIGMAP if not key.endswith("ca-file")}
    assert AuthenticationConfig.from_configmap(lists | {"client-ca-file": ""}) == AuthenticationConfig()


@pytest.mark.parametrize("key", CONFIGMAP)
@pytest.mark.parametrize("value", ["{", "7", "[7]", '{"a": "b"}'])
def test_bad_configmap(key: str, value: str) -> None:
    """A value that is not what it should be is refused, and named."""
    with pytest.raises(ValueError, match=f"^{key}: "):
        AuthenticationConfig.from_configmap(CONFIGMAP | {key: value})


@given(st.lists(st.text()))
def test_configured_names_survive(names: list[str]) -> None:
    """Any list of names is read as it was written."""
    config = AuthenticationConfig.from_configmap({"requestheader-allowed-names": json.dumps(names)})
    assert (config.request_header or RequestHeaderConfig()).allowed_names == tuple(names)


# --- Tokens -----------------------------------------------------------------------------------------------------------


def subprotocols(*protocols: str, upgrade: str = "websocket") -> dict[str, str]:
    """Return the headers of a WebSocket client."""
    return {"Connection": "Upgrade", "Upgrade": upgrade, "Sec-WebSocket-Protocol": ", ".join(protocols)}


def as_subprotocol(token: bytes) -> str:
    """Hide a token among the sub-protocols."""
    encoded = base64.urlsafe_b64encode(token).decode().rstrip("=")
    return f"base64url.bearer.authorization.k8s.io.{encoded}"


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        pytest.param({"Authorization": "Bearer good"}, ROBOT, id="a good token"),
        pytest.param({"Authorization": "bEARER good"}, ROBOT, id="case does not matter"),
        pytest.param({"Authorization": "Bearer good rest"}, ROBOT, id="what follows the token does not matter"),
        pytest.param({"Authorization": "Bearer bad"}, None, id="a bad token is refused"),
        pytest.param({"Authorization": "Bearer g\u00f6\udcf6d"}, None, id="a token of any bytes is reviewed"),
        pytest.param({"Authorization": "Bearer  good"}, ANONYMOUS, id="two blanks hide the token"),
        pytest.param({"Authorization": "Bearer"}, ANONYMOUS, id="no token"),
        pytest.param({"Authorization": "Basic Z29vZA=="}, ANONYMOUS, id="another scheme"),
        pytest.param({"Authorization": ""}, ANONYMOUS, id="an empty header"),
        pytest.param(subprotocols(as_subprotocol(b"good"), "v1"), ROBOT, id="a good token of a WebSocket"),
        pytest.param(subprotocols(as_subprotocol(b"bad"), "v1"), None, id="a bad token of a WebSocket"),
        pytest.param(subprotocols(as_subprotocol(b"good")), None, id="a WebSocket with nothing but a token"),
        pytest.param(subprotocols(as_subprotocol(b"good"), as_subprotocol(b"good"), "v1"), None, id="two tokens"),
        pytest.param(subprotocols(as_subprotocol(b"good") + "!", "v1"), None, id="a token badly encoded"),
        pytest.param(subprotocols(as_subprotocol(b"\xff\xfe"), "v1"), None, id="a token that is not UTF-8"),
        pytest.param(subprotocols(as_subprotocol(b""), "v1"), ANONYMOUS, id="an empty token of a WebSocket"),
        pytest.param(subprotocols("v1"), ANONYMOUS, id="a WebSocket without a token"),
        pytest.param(subprotocols(as_subprotocol(b"good"), "v1", upgrade="h2c"), ANONYMOUS, id="no WebSocket"),
    ],
)
async def test_token(headers: Mapping[str, str], user: User | None) -> None:
    """A token counts where it is looked for; a bad one is refused, none is anonymous."""
    assert await who(authenticator(), None, headers) == user


async def test_token_without_reviewer() -> None:
    """Where tokens cannot be reviewed, whoever shows one is refused."""
    assert await who(authenticator(token_reviewer=None), None, GOOD_TOKEN) is None


class Reviews:
    """A token reviewer that counts, on a clock that stands still."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.seconds = 0.0
        self.failure: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.authenticator = Authenticator(token_reviewer=self.review, clock=lambda: self.seconds)

    async def review(self, token: str) -> User | None:
        """Fail if told so, else know one good token."""
        self.tokens.append(token)
        await self.gate.wait()
        if self.failure:
            raise self.failure
        return await review(token)

    async def ask(self, token: str) -> User | None:
        """Return whose token it is, None for 401."""
        return await who(self.authenticator, None, {"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("token", ["good", "bad"])
async def test_answers_are_remembered(token: str) -> None:
    """What a review answered holds for ten seconds, whether good or bad."""
    reviews = Reviews()
    for reviews.seconds in (0.0, 5.0, 9.9):
        await reviews.ask(token)
    assert reviews.tokens == [token]
    reviews.seconds = 10.0
    await reviews.ask(token)
    assert reviews.tokens == [token, token]


async def test_tokens_are_told_apart() -> None:
    """Each token has its own answer."""
    reviews = Reviews()
    answers = [await reviews.ask(token) for token in ("good", "bad", "good", "bad")]
    assert answers == [ROBOT, None, ROBOT, None]
    assert reviews.tokens == ["good", "bad"]


async def test_failures_are_not_remembered() -> None:
    """A review that failed refuses the one request, and the next is reviewed anew."""
    reviews = Reviews()
    reviews.failure = ConnectionResetError()
    assert await reviews.ask("good") is None
    reviews.failure = None
    assert await reviews.ask("good") == ROBOT
    assert reviews.tokens == ["good", "good"]


async def test_a_failed_review_is_not_anonymous_but_another_proof_counts() -> None:
    """A failing review is an objection, which a certificate makes irrelevant."""
    reviews = Reviews()
    reviews.failure = TimeoutError()
    reviews.authenticator.update(AuthenticationConfig.from_configmap({"client-ca-file": CLIENT_CA.pem}))
    assert await reviews.ask("good") is None
    assert await who(reviews.authenticator, JANE, GOOD_TOKEN) == JANE_BY_CERTIFICATE


async def test_equal_reviews_are_merged() -> None:
    """Many requests with one token at once make one review."""
    reviews = Reviews()
    reviews.gate.clear()
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(reviews.ask("good")) for _ in range(50)]
        await asyncio.sleep(0)
        reviews.gate.set()
    assert [task.result() for task in asked] == [ROBOT] * 50
    assert reviews.tokens == ["good"]


@pytest.mark.parametrize("failure", [None, ConnectionResetError()])
async def test_who_leaves_takes_nothing_along(failure: Exception | None) -> None:
    """A client that hangs up does not end the review the others wait for, the first one included."""
    reviews = Reviews()
    reviews.failure = failure
    reviews.gate.clear()
    first, second = (asyncio.create_task(reviews.ask("good")) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    reviews.gate.set()
    assert await second == (None if failure else ROBOT)
    assert first.cancelled()
    assert reviews.tokens == ["good"]


async def test_a_review_nobody_waits_for() -> None:
    """A review whose clients all hung up still ends, and its answer is remembered."""
    reviews = Reviews()
    reviews.gate.clear()
    asked = asyncio.create_task(reviews.ask("good"))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    reviews.gate.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await reviews.ask("good") == ROBOT
    assert reviews.tokens == ["good"]


async def test_memory_of_tokens_is_bounded() -> None:
    """Old answers make room for new ones, least recently asked first."""
    reviews = Reviews()
    await reviews.ask("good")
    for number in range(8192):
        await reviews.ask(f"bad-{number}")
        if number % 1000 == 0:
            await reviews.ask("good")
    assert reviews.tokens.count("good") == 1
    await reviews.ask("bad-0")
    assert reviews.tokens.count("bad-0") == 2
