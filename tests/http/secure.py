"""The whole server on a TLS port of its own, in this process, as a cluster of two authorities would have it."""

import ssl
import time
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from multidict import CIMultiDict

from apiserver.catalog.gpuoffers import Offering
from apiserver.catalog.install import install
from apiserver.serving.authentication import AuthenticationConfig, Authenticator
from apiserver.serving.authorization import Authorizer, OpenPaths
from apiserver.serving.certificates import ServingContext, self_signed
from apiserver.serving.filters import Filter, authenticating, authorizing
from apiserver.serving.handlers import Handlers
from apiserver.serving.limits import Inflight, ending_in_time, limiting
from apiserver.serving.server import listening, make_app
from apiserver.serving.shutdown import Shutdown
from apiserver.serving.users import User
from apiserver.serving.versions import VersionSource
from tests.http.conftest import Cluster
from tests.unit.test_certificates import Issued, authority, client

FRONT_PROXY_CA = authority("front-proxy-ca")
CLIENT_CA = authority("kubernetes")
CONFIGMAP = {
    "client-ca-file": CLIENT_CA.pem,
    "requestheader-client-ca-file": FRONT_PROXY_CA.pem,
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-allowed-names": '["front-proxy-client"]',
}
FRONT_PROXY = client(FRONT_PROXY_CA, "front-proxy-client")
JANE = client(CLIENT_CA, "jane")

Headers = Mapping[str, str] | CIMultiDict[str]


@dataclass
class SecureServer:
    """A server that asks a stand-in for kube-apiserver whose tokens are good and who may.

    Attributes:
        url: where.
        certificate: what it serves with, as PEM.
        directory: for files of the clients.
        authenticator: what is trusted.
        inflight: the share of requests.
        asked: the specs of all SubjectAccessReviews.
        may: answers them by their spec; what it raises is a failed review.
        shutdown: how far its end has come.
        later: seconds by which its clocks are ahead.
        handlers: what answers.
        authorizer: says who may.
    """

    directory: Path
    url: str = ""
    certificate: str = ""
    authenticator: Authenticator = field(default_factory=Authenticator)
    inflight: Inflight = field(default_factory=Inflight)
    asked: list[Mapping[str, object]] = field(default_factory=list)
    may: Callable[[Mapping[str, object]], bool] = lambda _: True
    shutdown: Shutdown = field(default_factory=Shutdown)
    later: float = 0
    handlers: Handlers = field(init=False)
    authorizer: Authorizer = field(init=False)

    async def review(self, review: Mapping[str, object]) -> Mapping[str, object]:
        """A SubjectAccessReview, answered."""
        spec = review["spec"]
        assert isinstance(spec, Mapping)
        self.asked.append(spec)
        return {"status": {"allowed": self.may(spec)}}

    @asynccontextmanager
    async def connected(self, shown: Issued | None = None) -> AsyncIterator[aiohttp.ClientSession]:
        """A client that shows a certificate, or none."""
        context = ssl.create_default_context(cadata=self.certificate)
        if shown:
            file = self.directory / "client.pem"
            file.write_text(shown.pem + shown.key_pem)
            context.load_cert_chain(file)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(self.url, connector=connector, max_field_size=64 * 1024) as session:
            yield session


async def whose(token: str) -> User | None:
    """Know one good token."""
    return User("robot") if token == "good" else None


@asynccontextmanager
async def secure_server(
    cluster: Cluster,
    directory: Path,
    configmap: Mapping[str, str] | None = CONFIGMAP,
    *,
    open_paths: Container[str] = OpenPaths(),
    further: Sequence[Filter] = (),
    offering: Offering | None = None,
) -> AsyncIterator[SecureServer]:
    """Serve the cluster with the filters in the order of `serve`, and trust what a ConfigMap says; None: no one yet."""
    server = SecureServer(directory)
    server.authenticator = Authenticator(
        token_reviewer=whose,
        clock=lambda: time.monotonic() + server.later,
        now=lambda: time.time() + server.later,
    )
    pair = self_signed(["localhost"], ["127.0.0.1"])
    server.certificate = pair[0].decode()
    context = ServingContext(lambda: pair)
    if configmap is not None:
        config = AuthenticationConfig.from_configmap(configmap)
        context.trust(config.verifiers)
        server.authenticator.update(config)
    served = install(cluster.view, VersionSource(lambda: cluster.now), lambda: cluster.unsynced, offering)
    server.authorizer = Authorizer(server.review, open_paths=open_paths, clock=lambda: time.monotonic() + server.later)
    server.handlers = Handlers(served, cluster.health, "0.1.0")
    filters = [
        ending_in_time,
        authenticating(server.authenticator, open_paths),
        limiting(server.inflight),
        authorizing(server.authorizer),
        *further,
    ]
    app = make_app(server.handlers, filters, server.shutdown)
    async with listening(app, address="127.0.0.1", port=0, tls=context.ssl_context) as server.url:
        yield server
