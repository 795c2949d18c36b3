"""The example dashboard client, by way of `kubectl proxy`."""

import re
import sys
from collections.abc import Callable
from typing import Final

from tests.cluster.catalog import MANIFESTS
from tests.cluster.processes import Process
from tests.cluster.waiting import wait_for
from tests.conformance.checks import Check
from tests.conformance.stage import FREE, Stage

EXAMPLE: Final = MANIFESTS / "examples" / "follow_offers.py"
LISTENING: Final = re.compile(r"Starting to serve on (\S+)")


def _follow(stage: Stage) -> None:
    """It tells what there is, and then each change."""
    stage.splitter.take_watches()
    directory = stage.scratch("dashboard")
    kubectl, kubeconfig = stage.control_plane.binaries.kubectl, stage.control_plane.kubeconfig
    command = (str(kubectl), f"--kubeconfig={kubeconfig}", "proxy", "--port=0")
    proxy = Process("kubectl proxy", command, directory / "proxy.log")
    try:
        address = wait_for(lambda: LISTENING.search(proxy.log.read_text()), "kubectl proxy to listen")[1]
        client = Process("the dashboard", (sys.executable, str(EXAMPLE), f"http://{address}"), directory / "lines")
        try:
            _require_lines(stage, lambda: [line.split() for line in client.log.read_text().splitlines()])
        finally:
            client.stop()
    finally:
        proxy.stop()


def _require_lines(stage: Stage, lines: Callable[[], list[list[str]]]) -> None:
    listed = [["LISTED", name, str(free), "Offered"] for name, free in FREE.items()]
    wait_for(lambda: lines()[: len(listed)] == listed, "the list")
    stage.wait_for_watches()
    with stage.sold("shown", 2):
        wait_for(lambda: _told(lines(), ["l40s", "6", "Offered"]), "a sale")
    wait_for(lambda: _told(lines()[-1:], ["l40s", "8", "Offered"]), "the end of the sale")
    stage.add_class("shown")
    wait_for(lambda: ["ADDED", "shown", "0", "Offered"] in lines(), "a new class")
    stage.remove_class("shown")
    wait_for(lambda: ["DELETED", "shown", "0", "Offered"] in lines(), "the end of a class")


def _told(lines: list[list[str]], words: list[str]) -> bool:
    """Whether it was told; as ADDED, if the watch began with it at another replica than the one that listed."""
    return any(line[0] in ("ADDED", "MODIFIED") and line[1:] == words for line in lines)


CHECKS: Final = (Check("the example dashboard client", _follow, is_short=True, needs_splitter=True),)
