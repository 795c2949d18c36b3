"""Traces behind a real kube-apiserver: ours go on with its own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.cluster.binaries import Binaries
from tests.cluster.catalog import API, CatalogServer
from tests.cluster.control_plane import ControlPlane
from tests.http.test_traces import PARENT, TRACE, Collector, collecting

PLANE: Final = """apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: 127.0.0.1:1
samplingRatePerMillion: 1000000
"""
"""It samples everything, and tells it nowhere: of its spans ours has the ids."""
SOMEBODY: Final = "somebody"


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector on loopback."""
    with collecting() as running:
        yield running


@pytest.mark.slow
def test_traces(binaries: Binaries, tmp_path: Path, collector: Collector) -> None:
    """Ours is a child of kube-apiserver's span in the trace of an administrator; what others sample is not told."""
    tracing = tmp_path / "tracing.yaml"
    tracing.write_text(PLANE)
    flags = [f"--tracing-endpoint={collector.url}"]
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    with (
        ControlPlane(binaries, tmp_path / "plane", scheduler=False, tracing=tracing) as plane,
        CatalogServer(plane, arguments=flags) as server,
    ):
        assert plane.client.request("GET", f"{API}/gpuclasses", headers=headers).code == 200
        with server.client() as believed, server.client(SOMEBODY, ()) as other:
            assert believed.request("GET", f"{API}/gpuclasses/none/catalog", headers=headers).code == 404
            assert other.request("GET", f"{API}/gpuclasses/none", headers=headers).code == 403
        server.stop()  # which sends what was not sent yet
        plane.process("kube-apiserver").kill()  # which would go on trying to tell its own
    spans = collector.spans()
    span, told = spans[f"GET {API}/gpuclasses"]
    assert span.trace_id.hex() == TRACE
    assert span.parent_span_id.hex() not in ("", PARENT), "between the caller and us is kube-apiserver's span"
    assert told["http.response.status_code"] == 200
    direct, _ = spans[f"GET {API}/gpuclasses/{{:name}}/catalog"]
    assert (direct.trace_id.hex(), direct.parent_span_id.hex()) == (TRACE, PARENT)
    assert f"GET {API}/gpuclasses/{{:name}}" not in spans, "what somebody samples is not told"
