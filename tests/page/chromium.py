"""Chromium without a window: found or installed, started, and driven over the DevTools protocol.

Source: https://chromedevtools.github.io/devtools-protocol/ (tip-of-tree); Chromium 156.
"""

import asyncio
import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.cluster.binaries import UnavailableError
from tests.debian import NotInstallableError, need

Json = dict[str, Any]

START_SECONDS = 60
ANSWER_SECONDS = 30
POLL_SECONDS = 0.02
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless=new",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--hide-scrollbars",
    "--lang=en-US",
)


def find_chromium() -> Path:
    """The program, installed from Debian first where that is possible.

    Raises:
        UnavailableError: it is not there and cannot be installed.
    """
    for name in PROGRAMS:
        if found := shutil.which(name):
            return Path(found)
    try:
        need("fonts-dejavu-core", chromium="chromium")
    except NotInstallableError as error:
        raise UnavailableError(str(error)) from error
    return Path(shutil.which("chromium") or "chromium")


@contextlib.contextmanager
def started(program: Path) -> Iterator[str]:
    """A browser with a profile of its own; yields the address of its DevTools."""
    with tempfile.TemporaryDirectory(prefix="gpuclass-chromium-", ignore_cleanup_errors=True) as profile:
        flags = [*FLAGS, f"--user-data-dir={profile}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        process = subprocess.Popen(
            [program, *flags, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            yield _devtools_of(process)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=10)
            process.kill()
            process.communicate(timeout=10)


def _devtools_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"DevTools listening on (\S+)", line):
            return found[1]
    raise RuntimeError(f"Chromium did not start: {''.join(said)}")


@dataclass
class Tab:
    """One page in a browser, apart from all others.

    Attributes:
        requests: the addresses it asked for.
        complaints: what it wrote to the console, exceptions nobody caught, and whatever its policy refused; each with
            where it came from.
    """

    _socket: aiohttp.ClientWebSocketResponse
    _session: str = ""
    requests: list[str] = field(default_factory=list)
    complaints: list[tuple[str, str]] = field(default_factory=list)
    _waiting: dict[int, asyncio.Future[Json]] = field(default_factory=dict)
    _last: int = 0

    async def send(self, method: str, **parameters: object) -> Json:
        """Ask for something, and wait for the answer.

        Raises:
            RuntimeError: it is refused.
        """
        self._last += 1
        number = self._last
        message: Json = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json(message)
        async with asyncio.timeout(ANSWER_SECONDS):
            found = await answer
        if "error" in found:
            raise RuntimeError(f"{method}: {found['error']}")
        result: Json = found["result"]
        return result

    async def open(self, url: str) -> None:
        """Go there anew, and wait until it is loaded."""
        # By way of an empty page: another fragment of the same address alone would load nothing.
        for each in ("about:blank", url):
            await self.send("Page.navigate", url=each)
            await self.wait(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(each)})")

    async def run(self, expression: str) -> Any:  # noqa: ANN401 # whatever JSON it is
        """The value of an expression on the page, awaited if it is a promise.

        Raises:
            RuntimeError: it throws.
        """
        done = await self.send(
            "Runtime.evaluate",
            expression=expression,
            returnByValue=True,
            awaitPromise=True,
            allowUnsafeEvalBlockedByCSP=False,
        )
        if "exceptionDetails" in done:
            raise RuntimeError(json.dumps(done["exceptionDetails"])[:1000])
        return done["result"].get("value")

    async def wait(self, condition: str, seconds: float = ANSWER_SECONDS) -> None:
        """Wait until an expression is true on the page.

        Raises:
            TimeoutError: it never was; with what the page showed instead.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            with contextlib.suppress(RuntimeError):  # between two documents there is nothing to ask
                if await self.run(condition):
                    return
            await asyncio.sleep(POLL_SECONDS)
        raise TimeoutError(f"never: {condition}; the page: {await self.text()}; complaints: {self.complaints}")

    async def text(self) -> str:
        """What can be read on the page."""
        return str(await self.run("document.body.innerText"))

    async def show_as(self, *, width: int, height: int = 800, features: Mapping[str, str] | None = None) -> None:
        """Take a size in CSS pixels, and media features such as prefers-color-scheme."""
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )
        named = [{"name": name, "value": value} for name, value in (features or {}).items()]
        await self.send("Emulation.setEmulatedMedia", features=named)

    async def hide(self) -> None:
        """Minimize the window that it is in, so that its visibility is hidden."""
        await self._set_window("minimized")

    async def show(self) -> None:
        """Bring the window back."""
        await self._set_window("normal")

    async def _set_window(self, state: str) -> None:
        window = (await self.send("Browser.getWindowForTarget"))["windowId"]
        await self.send("Browser.setWindowBounds", windowId=window, bounds={"windowState": state})

    async def press(self, key: str, *, text: str = "", shift: bool = False) -> None:
        """Press a key and let it go."""
        codes = {"Tab": 9, "Enter": 13, " ": 32}
        event = {"key": key, "windowsVirtualKeyCode": codes.get(key, 0), "modifiers": 8 if shift else 0}
        await self.send("Input.dispatchKeyEvent", type="keyDown", text=text, **event)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **event)

    async def picture(self, height: int | None = None) -> bytes:
        """The page as a PNG, all of it, or so much of its top."""
        metrics = (await self.send("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": metrics["width"], "height": height or metrics["height"], "scale": 1}
        shot = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    async def read(self) -> None:
        """Take what the browser says, for as long as it is connected."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                waiting = self._waiting.pop(said["id"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(said)
            else:
                self._heed(said["method"], said["params"])

    def _heed(self, method: str, told: Json) -> None:
        if method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(("console", json.dumps(told["args"])))
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(("exception", json.dumps(told["exceptionDetails"])))
        elif method == "Log.entryAdded":
            self.complaints.append((told["entry"]["source"], told["entry"]["text"]))
        elif method == "Audits.issueAdded" and "ContentSecurityPolicy" in told["issue"]["code"]:
            self.complaints.append(("policy", json.dumps(told["issue"]["details"])))


@contextlib.asynccontextmanager
async def opened(
    devtools: str, domains: Sequence[str] = ("Page", "Runtime", "Network", "Log", "Audits")
) -> AsyncIterator[Tab]:
    """A new page in a browser context of its own, closed when the context is left."""
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(devtools, max_msg_size=MAX_MESSAGE_BYTES) as socket,
    ):
        tab = Tab(socket)
        reading = asyncio.create_task(tab.read())
        try:
            context = (await tab.send("Target.createBrowserContext"))["browserContextId"]
            target = await tab.send("Target.createTarget", url="about:blank", browserContextId=context)
            attached = await tab.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)
            tab._session = attached["sessionId"]  # noqa: SLF001 # it was not known before
            for domain in domains:
                await tab.send(f"{domain}.enable")
            yield tab
            tab._session = ""  # noqa: SLF001 # the context belongs to the browser
            await tab.send("Target.disposeBrowserContext", browserContextId=context)
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
