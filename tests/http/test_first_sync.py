"""What a person is told of a cluster that cannot be read, and while it is read."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from apiserver.cluster.live import Live
from apiserver.inputs import InputError, make_view
from apiserver.printing.firstsync import following, reading
from apiserver.settings import Input, Settings
from tests.fake_apiserver import FakeApiserver, Refusal
from tests.http.running import write_kubeconfig
from tests.http.test_start import blackhole, nobody
from tests.terminals import CTRL_C, Terminal, plain


@dataclass(frozen=True, slots=True)
class OfClasses:
    """Refuses to list GPUClasses; what else is listed meets an error that passes."""

    refusal: Refusal

    async def answer(self, request: web.Request, closing: asyncio.Event) -> web.StreamResponse:
        """Refuse."""
        refusal = self.refusal if request.path.endswith("/gpuclasses") else Refusal(500)
        return await refusal.answer(request, closing)


def settings_of(directory: Path, url: str) -> Settings:
    """Settings for the cluster at an address."""
    return Settings(input=Input.LOCAL, kubeconfig=write_kubeconfig(directory / "kubeconfig", url), verbosity=0)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        pytest.param(Refusal(404), "kubectl apply -k manifests/crd", id="no such kind"),
        pytest.param(Refusal(401, "Unauthorized", "Unauthorized"), "does not know you", id="nobody we know"),
        pytest.param(
            Refusal(403, "Forbidden", "you cannot list"),
            '{apiGroups: ["cozystack.io"], resources: ["gpuclasses"], verbs: ["list", "watch"]}',
            id="no right",
        ),
    ],
)
async def test_refusals(tmp_path: Path, refusal: Refusal, said: str) -> None:
    """A refusal ends it at once, with what to do about it."""
    async with FakeApiserver() as fake:
        fake.list_faults.extend([OfClasses(refusal)] * 3)  # one for each of what is listed at first
        settings = settings_of(tmp_path, fake.url)
        live = Live(make_view(settings))
        with pytest.raises(InputError) as caught:
            async with following(settings, live):
                pass
    assert said in str(caught.value)


def test_nobody_answers(tmp_path: Path) -> None:
    """Where nobody answers that is said after two attempts, in one line, and not after a minute."""
    with nobody() as url:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", url)
        with Terminal("get", "--kubeconfig", kubeconfig, columns=300) as terminal:
            assert terminal.wait_for_end() == 1
    shown = [line.rpartition("\r")[2] for line in plain(terminal.written).replace("\r\n", "\n").split("\n")]
    lines = [line for line in shown if line]
    assert len(lines) == 1
    assert f"the cluster at {url}: nobody answers" in lines[0]


def test_progress(tmp_path: Path) -> None:
    """A person who waits is told for what, on a terminal only; Ctrl-C ends it without a word."""
    with blackhole() as url:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", url)
        with Terminal("get", "--kubeconfig", kubeconfig) as terminal:
            terminal.wait_for("reading the cluster: gpuclasses (asked), nodes (asked)")
            terminal.press(CTRL_C)
            assert terminal.wait_for_end() == 130
    assert "Traceback" not in terminal.written
    assert plain(terminal.written).rstrip().endswith("^C")


async def test_how_many(tmp_path: Path) -> None:
    """What is being read is told with how many objects there were so far."""
    async with FakeApiserver() as fake:
        for number in range(3):
            fake.put("/api/v1/nodes", f"node-{number}")
        settings = settings_of(tmp_path, fake.url)
        live = Live(make_view(settings))
        async with following(settings, live):
            assert reading(live) == "reading the cluster: 0 gpuclasses, 3 nodes, 0 pods ..."


def test_nothing_yet() -> None:
    """Before anything is asked the connection is what is waited for."""
    assert reading(Live(make_view(Settings()))) == "connecting to the cluster ..."
