"""The judges' programs: etcd, the kube servers and kubectl, found or built.

Looked for in `KUBEBUILDER_ASSETS`, then in a cache of the user that is keyed by the Go module files in `judges/`; what
is missing is built from those with Go, once.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.waiting import wait_for

JUDGES = Path(__file__).parent / "judges"
BUILD_TIMEOUT_SECONDS = 1800
LOCK_TIMEOUT_SECONDS = 2 * BUILD_TIMEOUT_SECONDS
ASSETS_REQUIRED = ("etcd", "kube-apiserver")


class UnavailableError(Exception):
    """A program of the control plane is neither here nor can it be built."""


@dataclass(frozen=True, slots=True)
class Binaries:
    """The programs a control plane consists of, each as the path of an executable."""

    etcd: Path
    kube_apiserver: Path
    kube_scheduler: Path
    kube_controller_manager: Path
    kubectl: Path


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module that pins the versions of some programs, or is one itself.

    Attributes:
        name: of its directory.
        root: where that directory is.
    """

    name: str
    root: Path = JUDGES

    @property
    def directory(self) -> Path:
        """Where its go.mod and go.sum are."""
        return self.root / self.name

    @property
    def cache(self) -> Path:
        """Where its programs are kept: another content of the module files is another directory."""
        key = hashlib.sha256()
        for name in ("go.mod", "go.sum", "main.go"):
            with contextlib.suppress(FileNotFoundError):
                key.update((self.directory / name).read_bytes())
        return user_cache() / f"{self.name}-{key.hexdigest()[:12]}"

    @property
    def linker_flags(self) -> str:
        """What `go build` gets as -ldflags; without a version there a kube server calls itself v0.0.0."""
        version = re.search(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.\S+", (self.directory / "go.mod").read_text())
        if version is None:
            return "-s -w"
        values = {"gitVersion": version[0].split()[1], "gitMajor": version[1], "gitMinor": version[2]}
        return "-s -w " + " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())


ETCD = Module("etcd")
KUBE = Module("kube-1.37")
OLDER_KUBE = Module("kube-1.34")
HELM = Module("helm")
KUBE_APISERVER = "k8s.io/kubernetes/cmd/kube-apiserver"
PACKAGES = {
    "etcd": (ETCD, "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": (KUBE, KUBE_APISERVER),
    "kube-scheduler": (KUBE, "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kube-controller-manager": (KUBE, "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kubectl": (KUBE, "k8s.io/kubernetes/cmd/kubectl"),
}


def user_cache() -> Path:
    """Where programs that take minutes to build are kept from run to run."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuclass-catalog"


def find_binaries(announce: Callable[[str], None]) -> Binaries:
    """Find all programs, and build the missing ones.

    Args:
        announce: told in one sentence before each build, which takes minutes.

    Raises:
        UnavailableError: one is missing and cannot be built.
    """
    paths = {
        binary.replace("-", "_"): _from_assets(binary) or _from_cache(binary, module, package, announce)
        for binary, (module, package) in PACKAGES.items()
    }
    return Binaries(**paths)


def find_older_kube_apiserver(announce: Callable[[str], None]) -> Path:
    """Find kube-apiserver of the oldest Kubernetes whose admission is judged, and build it if it is missing.

    It is never taken from KUBEBUILDER_ASSETS, which holds one version of everything.

    Args:
        announce: as of `find_binaries`.

    Raises:
        UnavailableError: it is missing and cannot be built.
    """
    return _from_cache("kube-apiserver", OLDER_KUBE, KUBE_APISERVER, announce)


def find_helm(announce: Callable[[str], None]) -> Path:
    """Find helm, and build it if it is missing.

    Args:
        announce: as of `find_binaries`.

    Raises:
        UnavailableError: it is missing and cannot be built.
    """
    return _from_cache("helm", HELM, "helm.sh/helm/v4/cmd/helm", announce)


def find_program(binary: str, module: Module, package: str, announce: Callable[[str], None]) -> Path:
    """Find a program that is no part of a control plane, and build it if it is missing.

    Args:
        binary: what it is called.
        module: what it is built from.
        package: the Go package in that module.
        announce: as of `find_binaries`.

    Raises:
        UnavailableError: it is missing and cannot be built.
    """
    return _from_cache(binary, module, package, announce)


def _from_assets(binary: str) -> Path | None:
    """The program in KUBEBUILDER_ASSETS, if that directory holds at least what makes a control plane."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if not assets or not all(_is_program(Path(assets, name)) for name in ASSETS_REQUIRED):
        return None
    path = Path(assets, binary).absolute()
    return path if _is_program(path) else None


def _from_cache(binary: str, module: Module, package: str, announce: Callable[[str], None]) -> Path:
    """The program in the user's cache, built first if it is not there."""
    path = module.cache / binary
    if _is_program(path):
        return path
    go = shutil.which("go")
    if go is None:
        assets = ", or point KUBEBUILDER_ASSETS to a directory with etcd, kube-apiserver and kubectl"
        remedy = "install Go" if module in (OLDER_KUBE, HELM) else f"install Go{assets}"
        raise UnavailableError(f"{binary} is not in {path.parent}, and there is no Go to build it: {remedy}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent / ".lock"):
        if not _is_program(path):
            announce(f"Building {binary} from {module.name} into {path.parent}: once, some minutes.")
            _build(go, module, package, path)
    return path


def _build(go: str, module: Module, package: str, path: Path) -> None:
    """Build one program under another name and move it to its place whole."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    command = [go, "build", "-trimpath", f"-ldflags={module.linker_flags}", "-o", str(unfinished), package]
    try:
        run_build(path.name, command, module.directory)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def run_build(name: str, command: Sequence[str], directory: Path) -> None:
    """Run the command that builds a program, in a directory.

    Raises:
        UnavailableError: it fails, or takes too long.
    """
    try:
        subprocess.run(
            command, cwd=directory, check=True, capture_output=True, text=True, timeout=BUILD_TIMEOUT_SECONDS
        )
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"{name} cannot be built:\n{error.stderr[-2000:]}") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{name} was not built within {BUILD_TIMEOUT_SECONDS} s") from error


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file, so that two test runs do not build the same program at once."""
    with path.open("w") as file:

        def is_taken() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        wait_for(is_taken, f"the lock {path}", timeout_seconds=LOCK_TIMEOUT_SECONDS, poll_seconds=1)
        yield


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)
