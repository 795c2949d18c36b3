"""`serve --snapshot` as a process: on loopback, following its file."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

CLASS = """
apiVersion: cozystack.io/v1alpha1
kind: GPUClass
metadata: {name: NAME}
spec: {vendor: a, model: b, mode: passthrough, memory: 1Gi, source: {devicePlugin: {resourceName: a.b/c}}}
"""
LIST = "/apis/catalog.cozystack.io/v1alpha1/gpuclasses"


class Served:
    """A running server.

    Attributes:
        url: where it is.
        process: the process.
    """

    def __init__(self, file: Path) -> None:
        command = [sys.executable, "-m", "apiserver", "serve", "--snapshot", str(file), "--insecure-port", "0"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        found = None
        for line in self.process.stderr:
            found = re.search(r"serving at (\S+)", line)
            if found:
                break
        assert found, "the server ended before it served"
        self.url = found[1]

    def get(self, path: str) -> tuple[int, str]:
        """Code and text of an answer."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def names(self) -> list[str]:
        """The names of the listed classes."""
        return [each["metadata"]["name"] for each in json.loads(self.get(LIST)[1])["items"]]

    def wait_for(self, path: str, code: int) -> str:
        """The text of an answer once it has the code."""
        for _ in range(100):
            found, text = self.get(path)
            if found == code:
                return text
            time.sleep(0.1)
        raise TimeoutError(f"{path} was not {code}")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A snapshot with the class `one`."""
    path = tmp_path / "snapshot.yaml"
    path.write_text(CLASS.replace("NAME", "one"))
    return path


@pytest.fixture
def served(file: Path) -> Iterator[Served]:
    """A server of the snapshot."""
    server = Served(file)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate(timeout=10)


def test_reload(served: Served, file: Path) -> None:
    """A changed file is taken, a broken one is not, and readiness says which."""
    assert served.names() == ["one"]
    file.write_text(CLASS.replace("NAME", "two"))
    served.wait_for(f"{LIST}/two", 200)
    assert served.names() == ["two"]
    file.write_text("a: [")
    assert "snapshot" in served.wait_for("/readyz", 500)
    assert served.names() == ["two"]
    assert served.get("/livez") == (200, "ok")
    file.unlink()
    file.write_text(CLASS.replace("NAME", "three"))
    served.wait_for(f"{LIST}/three", 200)
    served.wait_for("/readyz", 200)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals(served: Served, number: int) -> None:
    """SIGTERM and Ctrl-C end the server with exit code 0."""
    served.process.send_signal(number)
    assert served.process.wait(timeout=10) == 0


def test_only_loopback(served: Served) -> None:
    """The port is bound on 127.0.0.1 alone."""
    port = int(served.url.rpartition(":")[2])
    with socket.socket() as other:
        other.settimeout(2)
        assert other.connect_ex(("127.0.0.2", port)) != 0


def test_refused_settings(file: Path) -> None:
    """An address that is not loopback, a missing file and a port in use end the start, each with its reason."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        for code, flag, *arguments in (
            (2, "--bind-address", "--snapshot", str(file), "--bind-address", "0.0.0.0"),
            (1, "missing", "--snapshot", str(file.with_name("missing"))),
            (1, port, "--snapshot", str(file), "--insecure-port", port),
        ):
            command = [sys.executable, "-m", "apiserver", "serve", *map(str, arguments)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            assert done.returncode == code
            assert str(flag) in done.stderr
            assert "Traceback" not in done.stderr
