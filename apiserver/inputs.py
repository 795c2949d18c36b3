"""What a view is filled from: how it counts, and what is read from a snapshot file."""

import logging
import sys
from pathlib import Path
from typing import Final

from apiserver import __version__
from apiserver.cluster.kubevirt import SCHEDULABLE_LABEL
from apiserver.cluster.snapshot import Snapshot, SnapshotError, parse_snapshot
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.settings import Settings

STDIN: Final = "-"
USER_AGENT: Final = f"gpuclass-catalog/{__version__}"
_log = logging.getLogger(__name__)


class InputError(Exception):
    """Objects cannot be had; the message says from where and why."""


class Source:
    """What is known of the objects, once they are there. By itself it is a file that was read once.

    Args:
        view: the objects.
    """

    def __init__(self, view: View) -> None:
        self.view = view

    def untold(self) -> str | None:
        """Why no true answer can be given now, or None."""
        return None

    def lagging(self) -> str | None:
        """Why what is known may not be of now, though it may still be told; or None."""
        return None


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


def stamp(file: Path) -> tuple[int, int, int] | None:
    """What changes when a file does; None while there is none."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
