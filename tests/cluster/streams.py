"""Watches over chunked HTTP, read line by line."""

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

from tests.cluster.client import Json
from tests.cluster.pki import KeyPair

TIMEOUT_SECONDS = 30


@contextlib.contextmanager
def watching(
    port: int, path: str, *, authority: Path, certificate: KeyPair, accept: str = "application/json"
) -> Iterator[Iterator[Json]]:
    """The events of a watch for as long as a `with` block lasts; waiting too long for the next one raises.

    Args:
        port: of the server on loopback.
        path: with the query.
        authority: what its certificate is verified by.
        certificate: of the user.
        accept: the Accept header.
    """
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate.certificate, certificate.key)
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection):
        connection.request("GET", path, headers={"Accept": accept})
        response = connection.getresponse()
        assert response.status == HTTPStatus.OK, response.read()
        yield (json.loads(line) for line in response)
