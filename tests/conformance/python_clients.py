"""The Python clients: kubernetes_asyncio, which we use ourselves, and the official one in an environment of its own."""

import asyncio
import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from kubernetes_asyncio import client, config, dynamic, watch

from tests import loops
from tests.cluster.binaries import Module
from tests.cluster.control_plane import ADMIN, ADMIN_GROUPS
from tests.cluster.workload import STORED, gpu_class
from tests.conformance.checks import Check, SkippedError, require_equal
from tests.conformance.stage import FREE, GROUP, PLURAL, VERSION, Stage

OFFICIAL: Final = "kubernetes==37.0.2"
OFFICIAL_SCRIPT: Final = Path(__file__).with_name("official_client.py")
CACHE: Final = Module("etcd").cache.parent
INSTALL_SECONDS: Final = 240
RUN_SECONDS: Final = 60
EXPECTED: Final = ["ADDED", "MODIFIED", "DELETED"]


async def _watch(stage: Stage) -> None:
    """It is told of a class that comes, changes and goes, from the version of its list on."""
    async with await _api_client(stage) as api, watch.Watch() as stream:
        custom = client.CustomObjectsApi(api)
        listed = await custom.list_cluster_custom_object(GROUP, VERSION, PLURAL)
        require_equal([item["metadata"]["name"] for item in listed["items"]], list(FREE), "the list")
        events = stream.stream(
            custom.list_cluster_custom_object,
            GROUP,
            VERSION,
            PLURAL,
            resource_version=listed["metadata"]["resourceVersion"],
            timeout_seconds=20,
        )
        stage.splitter.take_watches()
        changes = asyncio.create_task(asyncio.to_thread(_come_change_go, stage, "watched"))
        require_equal(await _types(events, "watched"), EXPECTED, "types of the events")
        await changes


async def _use_dynamic(stage: Stage) -> None:
    """Its dynamic client finds the kind by discovery, gets, lists with selectors, and watches."""
    async with await _api_client(stage) as api, watch.Watch() as stream:
        found = await (await dynamic.DynamicClient(api)).resources.get(
            api_version=f"{GROUP}/{VERSION}", kind="GPUClass"
        )
        require_equal((await found.get(name="l40s")).status.free, FREE["l40s"], "free")
        selected = await found.get(label_selector="tier=gold")
        require_equal([item.metadata.name for item in selected.items], ["l40s"], "a selected list")
        version = (await found.get()).metadata.resourceVersion
        stage.splitter.take_watches()
        changes = asyncio.create_task(asyncio.to_thread(_come_change_go, stage, "watched-again"))
        events = found.watch(resource_version=version, timeout=20, watcher=stream)
        require_equal(await _types(events, "watched-again"), EXPECTED, "types of the events")
        await changes


async def _api_client(stage: Stage) -> Any:  # noqa: ANN401 # the library has no types
    configuration = client.Configuration()
    await config.load_kube_config(str(stage.control_plane.kubeconfig), client_configuration=configuration)
    return client.ApiClient(configuration)


async def _types(events: Any, name: str) -> list[str]:  # noqa: ANN401 # the library has no types
    """The types of the events about a class, until it is gone; the same twice is once."""
    types: list[str] = []
    async with contextlib.AsyncExitStack() as stack:
        if hasattr(events, "aclose"):
            await stack.enter_async_context(contextlib.aclosing(events))
        async for event in events:
            item = event["raw_object"]
            if item["metadata"]["name"] == name and event["type"] not in types:
                types.append(event["type"])
            if types[-1:] == ["DELETED"]:
                break
    return types


def _come_change_go(stage: Stage, name: str) -> None:
    """When a watch has begun, make a class, change it and delete it, each seen by both replicas before the next.

    A watch that is taken up at the other replica tells of what is gone lately, so each check has a name of its own.
    """
    stage.wait_for_watches()
    with stage.control_plane.user_client(ADMIN, ADMIN_GROUPS) as own:
        own.post(STORED, gpu_class(name, "example.com/passing"))
        stage.wait_until_served(name)
        own.patch(f"{STORED}/{name}", {"metadata": {"labels": {"seen": "yes"}}})
        stage.wait_for_label(name, "seen", "yes")
        own.delete(f"{STORED}/{name}")
        stage.wait_until_gone(name)


def _official(stage: Stage) -> None:
    """The official client's dynamic client does the same, run by a Python of its own."""
    python = find_official_client()
    name = "officially-watched"
    command = [str(python), str(OFFICIAL_SCRIPT), str(stage.control_plane.kubeconfig), name]
    popen = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1)
    stage.splitter.take_watches()
    try:
        require_equal(_line(popen), json.dumps(FREE), "the list")
        _come_change_go(stage, name)
        output, errors = popen.communicate(timeout=RUN_SECONDS)
        require_equal((output.split(), errors), (EXPECTED, ""), "types of the events")
    finally:
        popen.kill()
        popen.communicate(timeout=RUN_SECONDS)


def _line(popen: subprocess.Popen[str]) -> str:
    line = popen.stdout.readline().strip() if popen.stdout else ""
    if not line:
        _, errors = popen.communicate(timeout=RUN_SECONDS)
        raise AssertionError(f"the official client ended: {errors[-600:]}")
    return line


def find_official_client() -> Path:
    """The Python that has the official client, which needs other versions than we do.

    Raises:
        SkippedError: it cannot be installed.
    """
    directory = CACHE / f"python-{sys.version_info.minor}-{OFFICIAL.replace('==', '-')}"
    python, ready = directory / "bin" / "python", directory / ".ready"
    if not ready.exists():
        commands = (
            [sys.executable, "-m", "venv", "--clear", str(directory)],
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", OFFICIAL],
        )
        try:
            for command in commands:
                subprocess.run(command, check=True, capture_output=True, timeout=INSTALL_SECONDS)
        except (subprocess.SubprocessError, OSError) as error:
            raise SkippedError(f"{OFFICIAL} cannot be installed: {error}") from error
        ready.touch()
    return python


CHECKS: Final = (
    Check("kubernetes_asyncio's watch", lambda stage: loops.run(_watch(stage)), needs_splitter=True),
    Check("kubernetes_asyncio's dynamic client", lambda stage: loops.run(_use_dynamic(stage)), needs_splitter=True),
    Check("official Python client's dynamic client", _official, needs_splitter=True),
)
