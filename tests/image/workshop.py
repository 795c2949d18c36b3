"""Where images are built without a registry: buildah with a storage of its own, and a base made by debootstrap.

All of it is kept in a cache of the user that is keyed by how the base is made; it needs root, and no daemon.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.binaries import locked
from tests.debian import NotInstallableError, apt_get, need

BASE = "localhost/gpuclass-catalog-base:latest"
PACKAGES = ("python3", "python3-venv")
LEFT_OUT = (
    "usr/share/doc",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/info",
    "var/cache/apt",
    "var/lib/apt/lists",
)
"""Of no use to a test, and copied at each step: the storage knows no layers."""
PIP_LIKE_THE_OFFICIAL_IMAGE = "python3 $wheel/pip install --no-index --root-user-action=ignore --break-system-packages"
BASE_TIMEOUT_SECONDS = 1500
BUILD_TIMEOUT_SECONDS = 600
MAX_IMAGES = 60
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
PIP_SETTINGS = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")


@dataclass(frozen=True, slots=True)
class Workshop:
    """Builds and unpacks images.

    Attributes:
        root: of everything that is kept.
        driver: of the storage: overlay, or vfs where the kernel lets no overlay be mounted.
    """

    root: Path
    driver: str

    @property
    def environment(self) -> dict[str, str]:
        """What makes buildah need neither a daemon, namespaces, nor the machine's own storage."""
        return {
            **os.environ,
            "STORAGE_DRIVER": self.driver,
            "BUILDAH_ISOLATION": "chroot",
            "CONTAINERS_STORAGE_CONF": str(self.root / "storage.conf"),
            "TMPDIR": str(self.root / "tmp"),  # cache mounts are kept there
        }

    def run(self, *command: str, timeout: float = BUILD_TIMEOUT_SECONDS, cwd: Path | None = None) -> str:
        """Run a program with this storage, and return what it printed.

        Raises:
            CalledProcessError: it failed.
        """
        try:
            done = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, timeout=timeout, check=True, cwd=cwd
            )
        except subprocess.CalledProcessError as error:
            error.add_note(f"{error.stdout[-4000:]}\n{error.stderr[-4000:]}")
            raise
        return done.stdout.strip()

    def prepare(self) -> None:
        """Make what buildah reads and writes, and let what builds kept for later ones not grow for ever."""
        (self.root / "tmp").mkdir(parents=True, exist_ok=True)
        (self.root / "storage.conf").write_text(
            f'[storage]\ndriver = "{self.driver}"\ngraphroot = "{self.root}/storage"\nrunroot = "{self.root}/run"\n'
        )
        if len(self.run("buildah", "images", "--all", "--quiet").splitlines()) > MAX_IMAGES:
            self.run("buildah", "rmi", "--prune", "--force")

    @contextmanager
    def unpacked(self, image: str) -> Iterator[Path]:
        """The root file system of an image, until the context is left."""
        container = self.run("buildah", "from", "--pull-never", image)
        try:
            yield Path(self.run("buildah", "mount", container))
        finally:
            self.run("buildah", "rm", container)

    def pip_secrets(self, directory: Path) -> Iterator[str]:
        """Flags that let pip reach the registry that this machine's pip reaches; no layer keeps them."""
        listed = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True, timeout=60
        )
        settings = dict(line.split("=", 1) for line in listed.stdout.splitlines() if "=" in line)
        known = {key.rpartition(".")[2]: value.strip("'") for key, value in settings.items()}
        lines = [f"{key} = {known[key]}" for key in PIP_SETTINGS if key in known]
        certificates = Path(known.get("cert", CERTIFICATES))
        if certificates.is_file():
            yield f"--secret=id=ca.crt,src={certificates}"
            lines.append("cert = /run/secrets/ca.crt")
        file = directory / "pip.conf"
        file.write_text("\n".join(["[global]", *lines, ""]))
        yield f"--secret=id=pip.conf,src={file}"


@contextmanager
def opened(announce: Callable[[str], None]) -> Iterator[Workshop]:
    """The workshop with its base, which is made if it is missing; nobody else has it meanwhile.

    Args:
        announce: told in one sentence before what takes minutes.

    Raises:
        NotInstallableError: this is not root on Debian, or no mirror of Debian is reached.
    """
    need(buildah="buildah", debootstrap="debootstrap", setpriv="util-linux")
    if os.geteuid() != 0:
        raise NotInstallableError("an image is built and started with another user's id, which only root can")
    release = platform.freedesktop_os_release()
    if "VERSION_CODENAME" not in release or release.get("ID") != "debian":
        raise NotInstallableError("the base is made of this machine's own release of Debian, and this is none")
    suite = release["VERSION_CODENAME"]
    recipe = repr((suite, platform.machine(), PACKAGES, LEFT_OUT, PIP_LIKE_THE_OFFICIAL_IMAGE))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuclass-catalog"
    driver = "overlay" if _can_overlay(cache) else "vfs"
    workshop = Workshop(cache / f"image-{driver}-{hashlib.sha256(recipe.encode()).hexdigest()[:12]}", driver)
    workshop.root.mkdir(parents=True, exist_ok=True)
    with locked(workshop.root / ".lock"):
        workshop.prepare()
        if not workshop.run("buildah", "images", "--quiet", "--filter", f"reference={BASE}"):
            announce(f"Making a base image of Debian's packages in {workshop.root}: once, some minutes.")
            _make_base(workshop, suite)
        yield workshop


def _can_overlay(directory: Path) -> bool:
    """Whether the kernel mounts an overlay there; then a step costs what it changes, and not a copy of everything."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=directory) as name:
        lower, upper, work, mounted = (Path(name, each) for each in ("lower", "upper", "work", "mounted"))
        for each in (lower, upper, work, mounted):
            each.mkdir()
        options = f"lowerdir={lower},upperdir={upper},workdir={work}"
        # In a mount namespace of its own, which ends with the command.
        command = ["unshare", "--mount", "mount", "-t", "overlay", "overlay", "-o", options, str(mounted)]
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def _make_base(workshop: Workshop, suite: str) -> None:
    """Debian's Python with pip in /usr/local, as the official Python images have it."""
    container = workshop.run("buildah", "from", "scratch")
    try:
        root = Path(workshop.run("buildah", "mount", container))
        command = ("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(root))
        workshop.run(*command, _mirror(suite), timeout=BASE_TIMEOUT_SECONDS)
        install = f"wheel=$(echo /usr/share/python-wheels/pip-*.whl) && {PIP_LIKE_THE_OFFICIAL_IMAGE} $wheel"
        workshop.run("chroot", str(root), "sh", "-c", install)
        for path in LEFT_OUT:
            shutil.rmtree(root / path, ignore_errors=True)
        workshop.run("buildah", "commit", container, BASE)
    except subprocess.CalledProcessError as error:
        raise NotInstallableError(f"no base: {error}\n{error.stdout[-1000:]}{error.stderr[-1000:]}") from error
    finally:
        workshop.run("buildah", "rm", container)


def _mirror(suite: str) -> str:
    """The mirror of Debian that this machine installs from."""
    wanted = ("indextargets", "--format", "$(CODENAME) $(COMPONENT) $(REPO_URI)", "Created-By: Packages")
    for attempt in range(2):
        for line in apt_get(*wanted).splitlines():
            codename, component, mirror = line.split(maxsplit=2)
            if (codename, component) == (suite, "main"):
                return mirror
        if attempt == 0:
            apt_get("update")  # it tells only of what it has a list of
    raise NotInstallableError(f"apt knows no mirror of Debian's {suite}")
