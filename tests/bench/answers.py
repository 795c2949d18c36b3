"""The processor time of one answer, ours and bare aiohttp's, in alternating rounds: `python -m tests.bench.answers`.

Both serve the same bytes over TLS to a client with a certificate, without a cluster. What the process took for each
answer says more than a rate on a machine that others use as well. `--profile SECONDS` writes what py-spy saw of ours.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from apiserver.catalog.install import install
from apiserver.cluster.view import View
from apiserver.gpu.classes import GPUClass, parse_class
from apiserver.gpu.nodes import Node
from apiserver.measured import Measured
from apiserver.serving.authentication import AuthenticationConfig, Authenticator
from apiserver.serving.authorization import Authorizer
from apiserver.serving.certificates import ServingContext, pair_from_files
from apiserver.serving.filters import authenticating, authorizing
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.limits import Inflight, ending_in_time, limiting
from apiserver.serving.server import listening, make_app
from apiserver.serving.versions import VersionSource
from tests.bench.loads import Load, find_load
from tests.bench.objects import class_spec, device
from tests.bench.rows import alternating
from tests.cluster.client import Client
from tests.cluster.pki import CertificateAuthority, KeyPair
from tests.cluster.processes import Process, free_ports

BASE: Final = "/apis/catalog.cozystack.io/v1alpha1"
PATHS: Final = ("gpuclasses", "gpuclasses/class-000", "gpuclasses/class-000/catalog")
USER: Final = "reader"
CLASSES: Final = 100
NODES: Final = 50
SECONDS: Final = 1.0


def make_view() -> View:
    """100 classes, of which the first is on 50 nodes."""
    view = View()
    for index in range(CLASSES):
        view.apply_class(stored_class(index))
    for index in range(NODES):
        devices = {device(0): 8}
        view.apply_node(Node(f"gpu-{index:03}", capacity=devices, allocatable=devices))
    return view


def stored_class(index: int, **annotations: str) -> GPUClass:
    """One of the classes."""
    metadata = {"name": f"class-{index:03}", "uid": f"{index:036}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return parse_class({"metadata": {**metadata, "annotations": annotations}, "spec": class_spec(index)})


def serving(view: View, port: int, pair: KeyPair, authority: Path) -> AbstractAsyncContextManager[str]:
    """Serve with the filters of a server on a cluster while the context is open.

    Args:
        view: what to serve.
        port: on loopback.
        pair: the serving certificate.
        authority: who signs the clients' certificates.
    """
    inflight = Inflight()
    measured = Measured(install(view, VersionSource(time.time), lambda: None), inflight, view)
    proxy = CertificateAuthority(authority.parent, "front-proxy").certificate
    configmap = {
        "client-ca-file": authority.read_text(),
        "requestheader-client-ca-file": proxy.read_text(),
        "requestheader-username-headers": '["X-Remote-User"]',
    }
    config = AuthenticationConfig.from_configmap(configmap)
    context = ServingContext(pair_from_files(pair.certificate, pair.key))
    context.trust(config.verifiers)

    async def review(_: Mapping[str, object]) -> Mapping[str, object]:
        return {"status": {"allowed": True}}

    filters = [
        ending_in_time,
        authenticating(Authenticator(config), ()),
        limiting(inflight),
        authorizing(Authorizer(review)),
    ]
    handlers = Handlers(measured.served, Health(), "0.1.0", traffic=measured.traffic, metrics=measured.text)
    app = make_app(handlers, filters)
    return listening(app, address="127.0.0.1", port=port, tls=context.ssl_context)


async def serve(port: int, pair: KeyPair, authority: Path) -> None:
    """Serve until killed."""
    async with serving(make_view(), port, pair, authority):
        await asyncio.Event().wait()


def microseconds(pid: int, work: Callable[[], int]) -> float:
    """Processor time of a process for each answer that some work takes."""
    before = cpu_seconds(pid)
    answers = work()
    return (cpu_seconds(pid) - before) / answers * 1e6


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has taken so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", nargs=4, metavar=("PORT", "CERTIFICATE", "KEY", "AUTHORITY"), help=argparse.SUPPRESS)
    parser.add_argument("--profile", type=int, default=0, metavar="SECONDS")
    parser.add_argument("--path", choices=PATHS)
    chosen = parser.parse_args()
    if chosen.serve:
        port, certificate, key, authority = chosen.serve
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve(int(port), KeyPair(Path(certificate), Path(key)), Path(authority)))
    else:
        compare([chosen.path] if chosen.path else PATHS, chosen.profile)


def compare(paths: tuple[str, ...] | list[str], profile_seconds: int) -> None:
    """Start both, and take turns."""
    program = find_load()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="answers-")))
        authority = CertificateAuthority(directory, "ca")
        serving = authority.serving("serving", ("127.0.0.1",))
        load = Load(program, authority.client(USER))
        port, bare_port = free_ports(2)
        pair = (str(serving.certificate), str(serving.key))
        ours = Process(
            "ours",
            [sys.executable, "-m", "tests.bench.answers", "--serve", str(port), *pair, str(authority.certificate)],
            directory / "ours.log",
        )
        stack.callback(ours.stop)
        client = Client(port, authority=authority.certificate, certificate=load.certificate)
        stack.enter_context(client)
        ours.wait_until(lambda: client.request("GET", f"{BASE}/{PATHS[0]}").code == 200)
        prepared = {path: client.request("GET", f"{BASE}/{path}").body.decode() for path in PATHS}
        answers = directory / "answers.json"
        answers.write_text(json.dumps(prepared))
        bare = Process(
            "bare",
            [
                *(sys.executable, "-m", "tests.bench.yardstick", str(answers), str(bare_port)),
                *(*pair, str(authority.certificate)),
            ],
            directory / "bare.log",
        )
        stack.callback(bare.stop)
        probe = stack.enter_context(Client(bare_port, authority=authority.certificate))
        bare.wait_until(lambda: probe.request("GET", f"{BASE}/x").code == 200)
        for path in paths:
            if profile_seconds:
                profile(load, port, ours.pid, path, profile_seconds)
            mine, others = alternating(
                [
                    partial(microseconds, pid, partial(_count, load, f"https://127.0.0.1:{at}{BASE}/{path}"))
                    for at, pid in ((port, ours.pid), (bare_port, bare.pid))
                ]
            )
            sys.stdout.write(
                f"{path} ({len(prepared[path])} bytes): ours {mine:.0f} µs, bare aiohttp {others:.0f} µs, "
                f"speed {others / mine:.2f} of bare\n"
            )
            sys.stdout.flush()


def profile(load: Load, port: int, pid: int, path: str, seconds: int) -> None:
    """Write what py-spy sees of ours under load."""
    url = f"https://127.0.0.1:{port}{BASE}/{path}"
    file = Path("build") / f"answers-{path.replace('/', '-')}.txt"
    file.parent.mkdir(exist_ok=True)
    with load.running(url, seconds=seconds + 1):
        subprocess.run(py_spy(pid, seconds, file), check=True, capture_output=True)


def py_spy(pid: int, seconds: int, file: Path) -> Sequence[str]:
    """The command that writes what a process does for so long."""
    command = ("py-spy", "record", f"--pid={pid}", f"--duration={seconds}", "--rate=500", "--format=raw")
    return (*command, f"--output={file}")


def _count(load: Load, url: str) -> int:
    return int(load.run(url, seconds=SECONDS)["count"])


if __name__ == "__main__":
    main()
