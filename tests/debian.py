"""Programs of Debian packages, installed when a test needs them and whoever runs it may install."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

INSTALL_TIMEOUT_SECONDS = 600
LOCK = Path(tempfile.gettempdir()) / "gpuclass-catalog-apt.lock"


class NotInstallableError(Exception):
    """A program is not here and cannot be installed; the text says what to do."""


def need(*besides: str, **packages: str) -> None:
    """Have programs on PATH.

    Args:
        besides: packages to be installed with them.
        packages: the Debian package of each program.

    Raises:
        NotInstallableError: one is missing, and this is not root on Debian, or Debian's packages are not reached.
    """
    missing = sorted({package for program, package in packages.items() if shutil.which(program) is None})
    if not missing:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise NotInstallableError(f"not here, and only root on Debian can install it: {', '.join(missing)}")
    apt_get("update")
    apt_get("install", "--yes", "--no-install-recommends", *missing, *besides)


def apt_get(*arguments: str) -> str:
    """Run apt-get and return what it printed.

    Raises:
        NotInstallableError: it failed.
    """
    command = ["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    try:
        with LOCK.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # apt-get waits for nobody who fetches the lists
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_SECONDS, check=True
            )
    except subprocess.CalledProcessError as error:
        raise NotInstallableError(f"{' '.join(command)} failed:\n{error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise NotInstallableError(f"{' '.join(command)} took more than {INSTALL_TIMEOUT_SECONDS} s") from error
    return done.stdout
