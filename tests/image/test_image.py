"""The image: what is in it, what is not, and that it serves as anybody but root with nothing to write to."""

import json
import logging
import re
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.debian import NotInstallableError
from tests.image.container import Container
from tests.image.workshop import BASE, Workshop, opened
from tests.needs import missing

REPOSITORY = Path(__file__).parents[2]
EXAMPLE = REPOSITORY / "manifests" / "examples" / "snapshot.yaml"
CLASSES = "/apis/catalog.cozystack.io/v1alpha1/gpuclasses"
IMAGE = "localhost/gpuclass-catalog:test"
TIMEOUT_SECONDS = 2400  # a base is made the first time
COMPILERS = ("cc", "c++", "cpp", "gcc", "g++", "clang", "tcc", "as", "ld", "make", "go", "rustc", "cargo")
WRITE_EVERYWHERE = """
import os
written = []
for directory, _, _ in os.walk("/"):
    try:
        os.close(os.open(directory + "/gpuclass-catalog-was-here", os.O_CREAT | os.O_WRONLY))
    except OSError as error:
        assert error.errno in (30, 13), error
    else:
        written.append(directory)
print(os.getuid(), written)
"""
"""30 is EROFS, which counts for root too; 13 is EACCES, where somebody else is not let in at all."""

pytestmark = pytest.mark.timeout(TIMEOUT_SECONDS)


@pytest.fixture(scope="module")
def workshop(pytestconfig: pytest.Config) -> Iterator[Workshop]:
    """Where images are built; without it the test is skipped, and in CI it fails."""
    reporter = pytestconfig.pluginmanager.get_plugin("terminalreporter")
    try:
        with opened(reporter.write_line if reporter else logging.getLogger(__name__).info) as found:
            yield found
    except NotInstallableError as error:
        missing(f"not run for want of a builder of images: {error}")


@pytest.fixture(scope="module")
def config(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, object]:
    """The configuration of the image that `make image` builds, on a base of Debian's packages.

    It stays in the storage: the next build begins with its layers.
    """
    flags = " ".join(["--pull-never", "--layers", *workshop.pip_secrets(tmp_path_factory.mktemp("pip"))])
    workshop.run("make", "image", f"IMAGE={IMAGE}", f"BASE_IMAGE={BASE}", f"IMAGE_FLAGS={flags}", cwd=REPOSITORY)
    found: Mapping[str, object] = json.loads(workshop.run("buildah", "inspect", "--type=image", IMAGE))
    oci = found["OCIv1"]
    assert isinstance(oci, dict)
    made = oci["config"]
    assert isinstance(made, dict)
    return made


@pytest.fixture(scope="module")
def container(workshop: Workshop, config: Mapping[str, object]) -> Iterator[Container]:
    """The image unpacked."""
    environment, user = config["Env"], config["User"]
    assert isinstance(environment, list)
    assert isinstance(user, str)
    with workshop.unpacked(IMAGE) as root:
        yield Container(root, environment, user)


def test_config(config: Mapping[str, object]) -> None:
    """The image says what it is, runs as a number that is not root, and keeps nothing of where it was built."""
    labels = config["Labels"]
    assert isinstance(labels, dict)
    described = {key.removeprefix("org.opencontainers.image."): text for key, text in labels.items()}
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert described["title"] == "gpuclass-catalog"
    assert described["description"]
    assert described["licenses"] == "Apache-2.0"
    assert re.fullmatch(r"\d+\.\d+\.\d+", described["version"])
    assert described["revision"] == (head.stdout.strip() or "unknown")
    assert described["base.name"] == BASE
    assert config["User"] == "65532:65532"
    assert (config["Entrypoint"], config["Cmd"]) == (["gpuclass-catalog"], ["serve"])
    environment = config["Env"]
    assert isinstance(environment, list)
    names = {each.partition("=")[0] for each in environment}
    assert names == {"PATH", "HOME", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}


def test_content(container: Container) -> None:
    """No compiler, no pip, no tool or source of the build, no secret, and nothing that its user may change."""
    root = container.root
    path = dict(each.split("=", 1) for each in container.environment)["PATH"]
    programs = {file.name for each in path.split(":") for file in root.joinpath(each.lstrip("/")).glob("*")}
    assert {"python3", "gpuclass-catalog"} <= programs
    assert not {name for name in programs if name in COMPILERS or re.match(r"pip|gcc|.*-gcc", name)}
    for python in ("python3", "/usr/bin/python3"):
        assert "No module named pip" in container.run(python, "-m", "pip", check=False).stderr
    installed = {
        file.name.partition("-")[0] for file in root.glob("opt/gpuclass-catalog/lib/*/site-packages/*.dist-info")
    }
    assert {"gpuclass_catalog", "aiohttp", "opentelemetry_sdk"} <= installed
    assert not installed & {"pip", "hatchling", "pytest", "mypy", "ruff", "kubernetes"}
    assert [each.name for each in root.joinpath("opt").iterdir()] == ["gpuclass-catalog"]
    for left in ("src", "wheel", "etc/pip.conf", "root/.cache", "run/secrets/ca.crt"):
        assert not root.joinpath(left).exists(), left
    assert not [str(each) for each in root.joinpath("opt").rglob("*") if each.lstat().st_uid == int(container.user[:5])]


def test_bytecode(container: Container) -> None:
    """Nothing that the server imports is compiled at its start: neither ours, nor a library, nor Python's own."""
    imports = "import apiserver.serve, apiserver.cluster.client, kubernetes_asyncio.client, uvloop"
    loaded = re.findall(
        r"^# code object from '?([^'\n]+)", container.run("python", "-v", "-c", imports).stderr, re.MULTILINE
    )
    assert len([each for each in loaded if "/apiserver/" in each]) > 40
    assert [each for each in loaded if not each.endswith(".pyc")] == []


def test_serves_with_nothing_to_write_to(container: Container) -> None:
    """The server answers with the example's figures as a user without rights whose whole file system is read-only."""
    # Root is asked too: what stops it is the mount, not who owns what.
    for user in ("0:0", container.user):
        assert container.run("python", "-c", WRITE_EVERYWHERE, user=user).stdout == f"{user.partition(':')[0]} []\n"
    flags = ("serve", "--snapshot", "-", "--insecure-port", "0")
    with container.serving("gpuclass-catalog", *flags, stdin=EXAMPLE) as (url, pid):
        with urllib.request.urlopen(url + CLASSES, timeout=30) as answer:
            items = json.load(answer)["items"]
        status = Path(f"/proc/{pid}/status").read_text()
        mounts = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    assert {item["metadata"]["name"]: item["status"]["orderable"] for item in items} == {
        "l40s-12q": 9,
        "l40s-24c": 5,
        "l40s-passthrough": 1,
    }
    fields = dict(line.split(":\t", 1) for line in status.splitlines())
    assert fields["Uid"].split() == fields["Gid"].split() == ["65532"] * 4
    assert fields["Groups"].split() == []
    assert (int(fields["CapEff"], 16), int(fields["CapPrm"], 16), fields["NoNewPrivs"].strip()) == (0, 0, "1")
    seen = [line.split() for line in mounts]  # what lies outside of its root is not told to it
    assert [(each[4], each[5].split(",")[0]) for each in seen] == [("/", "ro")]
