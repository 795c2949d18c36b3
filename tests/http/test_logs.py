"""The log of a running server: what a line says, and what none may say."""

import json
import logging
import re
from pathlib import Path

import aiohttp
import pytest

from apiserver.logs import JSONFormatter, TextFormatter, set_up
from apiserver.serving.httplog import REQUESTS, values
from tests.http.running import LIST, Running, running, write_snapshot

TOKEN = "eyJhbGciOi.a-token.of-somebody"
AUDIT_ID = "11111111-2222-4333-8444-555555555555"
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Audit-Id": AUDIT_ID, "User-Agent": 'kubectl "x"', "Cookie": TOKEN}
TARGET = f"{LIST}?limit=5&labelSelector=a%3Db&access_token={TOKEN}&x={TOKEN}"
TOLD = f"{LIST}?limit=5&labelSelector=a%3Db&access_token=-&x=-"


async def ask(server: Running) -> None:
    """A list, an unknown object, and a watch of one second."""
    async with aiohttp.ClientSession() as session:
        for target in (TARGET, f"{LIST}/none", f"{LIST}?watch=1&timeoutSeconds=1"):
            async with session.get(server.url + target, headers=HEADERS) as answer:
                await answer.read()


async def log_of(tmp_path: Path, *flags: str) -> list[str]:
    """The log of a server that was asked, and ended in peace."""
    file = write_snapshot(tmp_path / "snapshot.yaml")
    async with running("--snapshot", file, "--insecure-port", "0", *flags) as server:
        await ask(server)
        server.process.terminate()
        await server.process.wait()
    return server.log


async def test_each_request_is_a_line(tmp_path: Path) -> None:
    """With -v 3 each request is one JSON object under the keys of Kubernetes, with its audit id."""
    entries = [json.loads(line) for line in await log_of(tmp_path, "--logging-format=json", "--v=3")]
    assert all({"ts", "caller", "logger", "level", "msg", "v"} <= set(entry) for entry in entries)
    lines = [entry for entry in entries if entry["msg"] == "HTTP"]
    assert [(line["verb"], line["URI"], line["resp"], line["v"]) for line in lines] == [
        ("LIST", TOLD, 200, 3),
        ("GET", f"{LIST}/none", 404, 3),
        ("WATCH", f"{LIST}?watch=1&timeoutSeconds=1", 200, 3),
    ]
    assert {(line["audit-ID"], line["userAgent"]) for line in lines} == {(AUDIT_ID, 'kubectl "x"')}
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+", line["srcIP"]) for line in lines)
    assert [float(line["latency"].removesuffix("ms")) >= 1000 for line in lines] == [False, False, True]


async def test_text(tmp_path: Path) -> None:
    """As text a request is one line too, which nothing that a client sends can end."""
    lines = [line for line in await log_of(tmp_path, "-v", "3") if ": HTTP " in line]
    assert len(lines) == 3
    assert f'verb="LIST" URI="{TOLD}"' in lines[0]
    assert f'userAgent="kubectl \\"x\\"" audit-ID="{AUDIT_ID}"' in lines[0]


@pytest.mark.parametrize("logging_format", ["json", "text"])
@pytest.mark.parametrize("level", ["2", "10"])
async def test_no_secrets(tmp_path: Path, level: str, logging_format: str) -> None:
    """However much is told, a token is not; and requests are told from -v 3 on."""
    log = "".join(await log_of(tmp_path, "-v", level, "--logging-format", logging_format))
    assert TOKEN not in log
    assert ("userAgent" in log) is (level == "10")


def test_a_bug_is_told_with_its_audit_id(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback is one JSON object, under the id that its client was told; as text it stands below one line."""
    for formatter in (JSONFormatter(), TextFormatter()):
        handler = logging.StreamHandler()
        handler.setFormatter(formatter)
        logger = logging.getLogger("apiserver.test")
        logger.addHandler(handler)
        try:
            int("no")
        except ValueError:
            logger.exception("GET %s failed", "/a\nb\x1b", extra=values(audit_ID=AUDIT_ID))
        finally:
            logger.removeHandler(handler)
    as_json, as_text = capsys.readouterr().err.split("\n", 1)
    entry = json.loads(as_json)
    assert (entry["msg"], entry["audit-ID"], entry["level"]) == ("GET /a\nb\x1b failed", AUDIT_ID, "error")
    assert "ValueError: invalid" in entry["err"]
    assert "v" not in entry
    assert f'GET /a\\nb\\u001b failed audit-ID="{AUDIT_ID}"\nTraceback' in as_text


def test_libraries_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that tells what it sends and receives is not asked to, whatever the level."""
    root, program = logging.getLogger(), logging.getLogger("apiserver")
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    monkeypatch.setattr(program, "level", program.level)
    set_up(10, "json")
    logging.getLogger("kubernetes_asyncio").manager._clear_cache()  # type: ignore[attr-defined] # noqa: SLF001
    assert not logging.getLogger("kubernetes_asyncio.client.rest").isEnabledFor(logging.INFO)
    assert logging.getLogger("apiserver.serving").isEnabledFor(REQUESTS)
