"""The page as a document: where it is, with which headers, and that it is nowhere else."""

import asyncio
import base64
import hashlib
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from aiohttp.pytest_plugin import AiohttpClient

from apiserver.browsing import show_page
from apiserver.catalog.install import install
from apiserver.serving.filters import only_loopback
from apiserver.serving.handlers import Handlers
from apiserver.serving.server import make_app
from apiserver.serving.versions import VersionSource
from apiserver.ui import PATH, make_page
from tests.http.apps import AppServer, Client
from tests.http.conftest import Cluster
from tests.http.running import running, write_snapshot
from tests.http.secure import JANE, secure_server

EXPECTED_HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@pytest.fixture
async def browser(cluster: Cluster, aiohttp_client: AiohttpClient) -> Client:
    """A client of a server with the page."""
    served = install(cluster.view, VersionSource(lambda: cluster.now), lambda: cluster.unsynced)
    handlers = Handlers(served, cluster.health, "0.1.0", documents={PATH: make_page()})
    return await aiohttp_client(AppServer(make_app(handlers, [only_loopback])))


async def test_headers(browser: Client) -> None:
    """It may be kept out of frames, is taken for nothing else, and is asked for anew each time."""
    async with browser.get(PATH) as response:
        assert response.status == 200
        assert {name: response.headers[name] for name in EXPECTED_HEADERS} == EXPECTED_HEADERS
        assert "Server" not in response.headers
        etag = response.headers["Etag"]
    async with browser.get(PATH, headers={"If-None-Match": etag}) as response:
        assert (response.status, await response.read()) == (304, b"")


async def test_policy(browser: Client) -> None:
    """Only the scripts and styles that are in it may run, each by its hash; it asks nobody but its own origin."""
    async with browser.get(PATH) as response:
        text, policy = await response.text(), response.headers["Content-Security-Policy"]
    directives = {name: set(values) for name, *values in (each.split() for each in policy.split("; "))}
    for tag in ("script", "style"):
        inside = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert inside
        assert directives.pop(f"{tag}-src") == {hash_of(each) for each in inside}
    assert directives == {
        "default-src": {"'none'"},
        "connect-src": {"'self'"},
        "img-src": {"data:"},
        "base-uri": {"'none'"},
        "form-action": {"'none'"},
        "frame-ancestors": {"'none'"},
        "require-trusted-types-for": {"'script'"},
        "trusted-types": {"'none'"},
    }
    assert not re.findall(r'\b(?:src|href)="(?!#|data:)', text), "it is self-contained"
    assert "style=" not in text


def hash_of(text: str) -> str:
    """How a policy names what it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        pytest.param("GET", "/ui", {}, 301, id="without the slash it leads there"),
        pytest.param("HEAD", PATH, {}, 200, id="HEAD"),
        pytest.param("POST", PATH, {}, 405, id="nothing to write"),
        pytest.param("GET", "/ui/page.js", {}, 404, id="what it is made of is no document"),
        pytest.param("GET", "/ui//", {}, 404, id="one slash too many"),
        pytest.param("GET", PATH, {"Host": "evil.example"}, 403, id="a foreign name that leads to loopback"),
    ],
)
async def test_requests(browser: Client, method: str, path: str, headers: dict[str, str], status: int) -> None:
    """It is one document at one path, and only for names of this machine."""
    async with browser.request(method, path, headers=headers, allow_redirects=False) as response:
        assert response.status == status
        assert response.headers.get("Location") == (PATH if status == 301 else None)


async def test_index(browser: Client) -> None:
    """The list of paths has it."""
    async with browser.get("/") as response:
        assert PATH in (await response.json())["paths"]


def test_file_name() -> None:
    """The name of a file is no markup."""
    body = make_page('"><script>alert(1)</script>').body
    assert b'data-file="&quot;&gt;&lt;script&gt;alert(1)' in body


@pytest.mark.parametrize(("may", "status"), [(True, 404), (False, 403)])
async def test_secure_port(cluster: Cluster, tmp_path: Path, may: bool, status: int) -> None:
    """On the secure port there is no page: it is answered as any path that there is not."""
    async with secure_server(cluster, tmp_path) as server, server.connected(JANE) as session:
        server.may = lambda _: may
        for path in (PATH, "/ui"):
            answers = []
            for each in (path, path.replace("ui", "xx")):
                async with session.get(each) as response:
                    text = (await response.text()).replace("xx", "ui")
                    kept = {k: v for k, v in response.headers.items() if k not in ("Audit-Id", "Date")}
                    answers.append((response.status, text, kept))
            assert answers[0] == answers[1]
            assert answers[0][0] == status


async def test_snapshot(tmp_path: Path) -> None:
    """`serve --snapshot` has the page, which names the file."""
    async with (
        running("--snapshot", write_snapshot(tmp_path / "cluster.json"), "--insecure-port", "0") as server,
        aiohttp.ClientSession() as session,
        session.get(server.url + PATH) as response,
    ):
        assert response.status == 200
        assert 'data-file="cluster.json"' in await response.text()


async def test_ui(tmp_path: Path) -> None:
    """`ui` prints where the page is, at a port that was free, and ends as `serve` does."""
    file = write_snapshot(tmp_path / "cluster.json")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "apiserver", "ui", "--snapshot", str(file), "--no-browser", stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            url = (await process.stdout.readline()).decode().strip()
            assert re.fullmatch(r"http://127\.0\.0\.1:[1-9]\d*/ui/", url)
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                assert response.status == 200
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("is_open", [True, False])
def test_browser(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    wait_for_threads: Callable[[], None],
    is_open: bool,
) -> None:
    """The person's browser is opened there; where there is none, that is said."""
    opened: list[str] = []

    def open_(url: str) -> bool:
        opened.append(url)
        return is_open

    monkeypatch.setattr("webbrowser.open", open_)
    show_page("http://127.0.0.1:1", open_browser=True)
    wait_for_threads()
    written = capfd.readouterr()
    assert opened == [written.out.strip()] == ["http://127.0.0.1:1/ui/"]
    assert ("no browser could be opened" in written.err) is not is_open
    show_page("http://127.0.0.1:1", open_browser=False)
    wait_for_threads()
    assert len(opened) == 1


@pytest.fixture
def wait_for_threads() -> Callable[[], None]:
    """Waits until the thread that opens the browser has."""

    def wait() -> None:
        for thread in threading.enumerate():
            if thread.name == "browser":
                thread.join(10)

    return wait
