"""Filling a view: from a snapshot file, or once from a cluster."""

import logging
import sys
from pathlib import Path
from typing import Final

from apiserver import __version__
from apiserver.cluster.client import ConfigurationError, connect
from apiserver.cluster.kubevirt import SCHEDULABLE_LABEL
from apiserver.cluster.live import Live, follow_until
from apiserver.cluster.snapshot import Snapshot, SnapshotError, parse_snapshot
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.settings import Settings

STDIN: Final = "-"
USER_AGENT: Final = f"gpuclass-catalog/{__version__}"
_LOAD_SECONDS: Final = 60
_log = logging.getLogger(__name__)


class InputError(Exception):
    """Objects cannot be had; the message says from where and why."""


def make_view(settings: Settings) -> View:
    """An empty view that counts as the settings say. With KubeVirt only nodes that take VMs count."""
    selector = {SCHEDULABLE_LABEL: "true"} if settings.kubevirt else {}
    return View(selector=selector | dict(settings.node_selector), resource_names=settings.resource_names)


def make_tenancy(settings: Settings) -> Tenancy | None:
    """An empty tenancy, or None when tenants are offered nothing."""
    return Tenancy() if settings.tenant_offers else None


def load_snapshot(file: str) -> Snapshot:
    """Read a dump, and say what in it was of no use.

    Raises:
        InputError: the file cannot be read, or is no dump.
    """
    try:
        text = sys.stdin.read() if file == STDIN else Path(file).read_text(encoding="utf-8")
        snapshot = parse_snapshot(text)
    except (OSError, UnicodeDecodeError, SnapshotError) as error:
        raise InputError(f"snapshot {file}: {error}") from error
    for problem in snapshot.rejected:
        _log.warning("snapshot %s: %s: left out", file, problem)
    if snapshot.skipped:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(snapshot.skipped.items()))
        _log.info("snapshot %s: of no use here and skipped: %s", file, kinds)
    return snapshot


async def load_cluster(settings: Settings, view: View) -> None:
    """Fill the view once from the cluster of a kubeconfig, the person's own by default.

    Raises:
        InputError: there is no such cluster, it refuses, or it does not answer in time.
    """
    live = Live(view, kubevirt=settings.kubevirt)
    try:
        client = await connect(settings.kubeconfig, user_agent=USER_AGENT, local=True)
        async with client:
            await follow_until(
                live, client, lambda: live.unsynced() is None or live.refused() is not None, _LOAD_SECONDS
            )
    except ConfigurationError as error:
        raise InputError(str(error)) from error
    except TimeoutError as error:
        raise InputError(f"the cluster did not answer within {_LOAD_SECONDS} s: {live.unsynced()}") from error
    if (refused := live.refused()) is not None:
        raise InputError(f"the cluster refused: {refused}")
