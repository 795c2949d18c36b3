"""Traces of a running server, as a collector of OTLP over HTTP gets them."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.http.running import LIST, running, write_snapshot

TRACE, PARENT, AUDIT_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "11111111-2222-4333-8444-555555555555"
TOKEN = "a-token-of-somebody"
WITHOUT = """
import sys
from apiserver.cli import run
if sys.argv[2:] and sys.argv[2] == "missing":
    sys.modules["opentelemetry"] = None
    sys.exit(run(["serve", "--snapshot", sys.argv[1], "--tracing-endpoint", "http://127.0.0.1:1"]))
import apiserver.serve
from apiserver.settings import Settings
with apiserver.serve.tracing_filters(Settings()) as filters:
    assert filters == ()
sys.exit(any(name.startswith("opentelemetry") for name in sys.modules))
"""


class Collector(ThreadingHTTPServer):
    """Keeps what is sent to it.

    Attributes:
        bodies: of the requests to /v1/traces.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Collecting)
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> dict[str, tuple[Span, dict[str, object]]]:
        """Each span and its attributes, by its name; and the resource's name as that of one."""
        found = {}
        for body in self.bodies:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = {each.key: each.value.string_value for each in resource.resource.attributes}
                assert names["service.name"] == "gpuclass-catalog"
                for span in (span for scope in resource.scope_spans for span in scope.spans):
                    values = {each.key: each.value.string_value or each.value.int_value for each in span.attributes}
                    found[span.name] = span, dict(values)
        return found


class Collecting(BaseHTTPRequestHandler):
    """Takes traces."""

    def do_POST(self) -> None:  # the library names it
        """Keep the body."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Collector)
        if self.path == "/v1/traces":
            self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on loopback."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector on loopback."""
    with collecting() as running:
        yield running


@pytest.mark.parametrize("by_flag", [True, False])
async def test_spans(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch, by_flag: bool) -> None:
    """What the caller samples is told in his trace, refusals too; what he does not is not told; none tells a secret."""
    flags = ["--tracing-endpoint", collector.url] if by_flag else []
    if not by_flag:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    file = write_snapshot(tmp_path / "snapshot.yaml")
    async with (
        running("--snapshot", file, "--insecure-port", "0", *flags) as server,
        aiohttp.ClientSession(headers={"Audit-Id": AUDIT_ID, "Authorization": f"Bearer {TOKEN}"}) as client,
    ):
        for sampled, target in (("01", f"{LIST}?x={TOKEN}"), ("01", f"{LIST}/none"), ("00", "/version")):
            headers = {"traceparent": f"00-{TRACE}-{PARENT}-{sampled}"}
            async with client.get(server.url + target, headers=headers) as answer:
                await answer.read()
        async with client.get(server.url + "/livez") as answer:
            await answer.read()
        server.process.terminate()
        await server.process.wait()
    spans = collector.spans()
    assert sorted(spans) == [f"GET {LIST}", f"GET {LIST}/{{:name}}"]
    for name, code in ((f"GET {LIST}", 200), (f"GET {LIST}/{{:name}}", 404)):
        span, told = spans[name]
        assert (span.trace_id.hex(), span.parent_span_id.hex(), span.kind) == (TRACE, PARENT, Span.SPAN_KIND_SERVER)
        assert (told["http.request.method"], told["http.response.status_code"]) == ("GET", code)
        assert told["audit-id"] == AUDIT_ID
    assert (spans[f"GET {LIST}"][1]["url.path"], spans[f"GET {LIST}"][1]["url.query"]) == (LIST, "x=-")
    assert TOKEN.encode() not in b"".join(collector.bodies)


def test_nothing_is_imported_unless_asked_for(tmp_path: Path) -> None:
    """A server that does not trace has no module of OpenTelemetry; one that should and cannot says what to install."""
    command = [sys.executable, "-c", WITHOUT, str(write_snapshot(tmp_path / "snapshot.yaml"))]
    assert subprocess.run(command, timeout=60, check=False).returncode == 0
    done = subprocess.run([*command, "missing"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "gpuclass-catalog[tracing]" in done.stderr
    assert "Traceback" not in done.stderr
