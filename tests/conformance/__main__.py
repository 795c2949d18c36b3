"""`make conformance`: run every real client against two replicas, and print one line each."""

import argparse
import contextlib
import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.cluster.binaries import UnavailableError, find_binaries, find_older_kube_apiserver
from tests.conformance import (
    dashboard,
    informers,
    kubectl,
    namespaces,
    openapi,
    python_clients,
    replicas,
    service,
    terraform,
    websockets,
)
from tests.conformance.checks import Check, SkippedError
from tests.conformance.stage import Stage, opened

SPLIT: Final = (
    *kubectl.CHECKS,
    *informers.CHECKS,
    *websockets.CHECKS,
    *dashboard.CHECKS,
    *python_clients.CHECKS,
    *replicas.CHECKS,
    *openapi.CHECKS,
    *terraform.CHECKS,
    *namespaces.CHECKS,
)
"""Lists and watches are forced to different replicas."""

BY_SERVICE: Final = (
    *(
        dataclasses.replace(check, name=f"by Service: {check.name}")
        for check in SPLIT
        if not check.needs_splitter and check not in replicas.CHECKS
    ),
    *service.CHECKS,
)
"""kube-apiserver chooses one of the two for each request."""

ALL: Final = (*SPLIT, *BY_SERVICE, *namespaces.LAST)
OLDER: Final = "1.34"


def main() -> int:
    """Run the checks, and say how many passed and failed."""
    arguments = _parse()
    checks = [check for check in ALL if arguments.only in check.name]
    if arguments.list:
        for check in checks:
            _say(check.name)
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="gpuclass-conformance-") as directory:
            return _run_all(checks, Path(directory), is_older=arguments.kube == OLDER)
    except UnavailableError as error:
        _say(str(error))
        return 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT", help="the checks whose name contains this")
    parser.add_argument("--kube", choices=("1.37", OLDER), default="1.37", help="version of kube-apiserver")
    parser.add_argument("--list", action="store_true", help="print the names of the checks")
    return parser.parse_args()


def _run_all(checks: Sequence[Check], directory: Path, *, is_older: bool) -> int:
    binaries = find_binaries(_say)
    if is_older:
        binaries = dataclasses.replace(binaries, kube_apiserver=find_older_kube_apiserver(_say))
    _fetch(checks)
    with opened(binaries, directory, announce=_say, controllers=namespaces.CONTROLLERS) as stage:
        results = [run(check, stage) for check in checks if check in SPLIT]
        if stage.control_plane.network is not None:
            stage.lead_to(*(replica.endpoint() for replica in stage.replicas))
            results += [run(check, stage) for check in checks if check in BY_SERVICE]
        results += [run(check, stage) for check in checks if check in namespaces.LAST]
    _say(f"{results.count(True)} passed, {results.count(False)} failed")
    return int(False in results)


def _fetch(checks: Sequence[Check]) -> None:
    """Build and install what the checks need; on the stage nothing from outside can be had."""
    if set(checks) & set(informers.CHECKS):
        informers.find_informer(_say)
    if set(checks) & set(terraform.CHECKS):
        terraform.find_provider(_say)
    if set(checks) & set(python_clients.CHECKS):
        with contextlib.suppress(SkippedError):  # the check says it
            python_clients.find_official_client()


def run(check: Check, stage: Stage) -> bool | None:
    """Run one check and print its line; True if it passed, None if it was skipped."""
    begun = time.monotonic()
    try:
        check.run(stage)
    except SkippedError as reason:
        _say(f"SKIP {check.name}: {reason}")
        return None
    except Exception as error:  # noqa: BLE001 # whatever a client runs into is the reason of its failure
        _say(f"FAIL {check.name}: {type(error).__name__}: {' '.join(str(error).split())}")
        return False
    _say(f"PASS {check.name} ({time.monotonic() - begun:.1f} s)")
    return True


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
