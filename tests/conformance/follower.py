"""A client that lists at one server and watches at others, as the API convention has it and client-go does it."""

import contextlib
import http.client
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final, Self

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Json
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS, ControlPlane
from tests.conformance.checks import require
from tests.conformance.stage import CLASSES

WATCH_SECONDS: Final = 1
TIMEOUT_SECONDS: Final = 10
JOIN_SECONDS: Final = 30
RELIST_SECONDS: Final = 1
RETRY_SECONDS: Final = 0.2
PROCESS_TAG: Final = (1 << 10) - 1
NO_ANSWER: Final = "no answer"
TOO_LARGE: Final = "ResourceVersionTooLarge"


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask, as whom, and whom to trust.

    The administrator asks. The context is made once: the files of the certificate may be written anew meanwhile.
    """

    address: str
    port: int
    context: ssl.SSLContext

    @classmethod
    def of_replica(cls, control_plane: ControlPlane, replica: CatalogServer) -> Self:
        """A replica itself, past kube-apiserver."""
        return cls(replica.host.address, replica.port, _context(control_plane, replica.authority))

    @classmethod
    def of_cluster(cls, control_plane: ControlPlane) -> Self:
        """kube-apiserver, which forwards to a replica."""
        context = _context(control_plane, control_plane.authority.certificate)
        return cls(control_plane.address, control_plane.port, context)


class Follower:
    """Keeps a copy of all classes for as long as a `with` block lasts.

    Attributes:
        codes: how often each HTTP code was answered; "no answer" where the connection broke instead.
        lists: how often it listed.
        watches: how many watches it began.
        expired: how many of them were answered with 410.
        ahead: how many were refused because its version lay in the future for that replica.
        processes: the tags, out of the versions of bookmarks, of the processes that it watched at.
        failure: what it could not understand, if anything.
    """

    def __init__(self, list_at: Server, watch_at: Iterator[Server], *, watch_seconds: int = WATCH_SECONDS) -> None:
        """Prepare it; entering the block starts it.

        Args:
            list_at: the server to list at.
            watch_at: the server for each watch in turn.
            watch_seconds: how long a watch lasts.
        """
        self.codes: Counter[str] = Counter()
        self.lists = self.watches = self.expired = self.ahead = 0
        self.failure = ""
        self.processes: set[int] = set()
        self._list_at, self._watch_at = list_at, watch_at
        self._watch_seconds = watch_seconds
        self._state: dict[str, Json] = {}
        self._version = ""
        self._ending = threading.Event()
        self._connection: http.client.HTTPSConnection | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._ending.set()
        self._cut()
        self._thread.join(JOIN_SECONDS)

    @property
    def state(self) -> dict[str, Json]:
        """The copy, without resourceVersions: each replica counts its own."""
        return {name: without_version(item) for name, item in list(self._state.items())}

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                if not self._version:
                    self._list()
                self._watch(next(self._watch_at))
            except (OSError, http.client.HTTPException, _UnavailableError) as error:
                if not self._ending.is_set() and not isinstance(error, _UnavailableError):
                    self.codes[NO_ANSWER] += 1
                self._ending.wait(RETRY_SECONDS)
            except (KeyError, ValueError, AssertionError) as error:
                if not self._ending.is_set():  # else it was cut in the middle of a line
                    self.failure = f"{type(error).__name__}: {error}"
                return

    def _list(self) -> None:
        with self._asked(self._list_at, CLASSES) as response:
            answer = json.loads(response.read())
        self.lists += 1
        self._state = {item["metadata"]["name"]: item for item in answer["items"]}
        self._version = answer["metadata"]["resourceVersion"]

    def _watch(self, server: Server) -> None:
        options = f"allowWatchBookmarks=true&timeoutSeconds={self._watch_seconds}&resourceVersion={self._version}"
        with self._asked(server, f"{CLASSES}?watch=1&{options}") as response:
            self.watches += 1
            for line in response:
                self._take(json.loads(line))
                if not self._version:
                    return

    @contextlib.contextmanager
    def _asked(self, server: Server, path: str) -> Iterator[http.client.HTTPResponse]:
        """The answer to one request.

        Raises:
            _UnavailableError: it is to be tried again.
        """
        timeout = TIMEOUT_SECONDS + self._watch_seconds
        connection = http.client.HTTPSConnection(server.address, server.port, context=server.context, timeout=timeout)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            self.codes[str(response.status)] += 1
            if response.status != HTTPStatus.OK:
                self._refused(response)
            self._connection = connection
            yield response

    def _refused(self, response: http.client.HTTPResponse) -> None:
        """Begin anew if the version is a future one, as client-go does; what only lasts a moment is tried again."""
        body = response.read().decode(errors="replace")
        if response.status == HTTPStatus.GATEWAY_TIMEOUT and TOO_LARGE in body:
            self.ahead += 1
            self._version = ""
        elif response.status not in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT):
            raise AssertionError(f"answered with {response.status}: {body[:256]}")
        raise _UnavailableError

    def _take(self, event: Json) -> None:
        kind, item = event["type"], event["object"]
        if kind == "ERROR":
            require(item["code"] == HTTPStatus.GONE, f"a watch ended with {item}")
            self.expired += 1
            self._version = ""
            time.sleep(RELIST_SECONDS)  # as client-go does, more or less
            return
        name = item["metadata"].get("name")
        if kind == "DELETED":
            self._state.pop(name, None)
        elif kind == "BOOKMARK":
            self.processes.add(int(item["metadata"]["resourceVersion"]) & PROCESS_TAG)
        else:
            self._state[name] = item
        self._version = str(max(int(self._version), int(item["metadata"]["resourceVersion"])))

    def _cut(self) -> None:
        """End the watch that is open, which may last for minutes."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(2)


class _UnavailableError(Exception):
    """Refused for now."""


def _context(control_plane: ControlPlane, authority: Path) -> ssl.SSLContext:
    certificate = control_plane.authority.client(ADMIN, ADMIN_GROUPS)
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate.certificate, certificate.key)
    return context


def without_version(item: Json) -> Json:
    """The object without what each replica makes itself."""
    metadata = {key: value for key, value in item["metadata"].items() if key != "resourceVersion"}
    return {**item, "metadata": metadata}
