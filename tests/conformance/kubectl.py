"""kubectl: the one built beside the cluster, and the machine's own, which is older."""

import contextlib
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.cluster.catalog import API
from tests.cluster.client import Json
from tests.cluster.processes import Process
from tests.cluster.waiting import wait_for
from tests.cluster.workload import STORED
from tests.conformance.checks import Check, SkippedError, require, require_contains, require_equal
from tests.conformance.follower import without_version
from tests.conformance.stage import CLASSES, FREE, GROUP, RESOURCE, VERSION, Stage

TIMEOUT_SECONDS: Final = 60
OPENAPI_SECONDS: Final = 100
COLUMNS: Final = ["NAME", "FREE", "MAX", "REQUESTED", "ALLOCATABLE", "OFFERED", "REASON", "AGE"]
WIDE_COLUMNS: Final = [*COLUMNS, "VENDOR", "MODEL", "MODE", "PROFILE", "MEMORY", "RESOURCE"]
OFFERS: Final = "gpuoffers"
OFFER_COLUMNS: Final = ["NAME", "ORDERABLE", "MAX", "BUDGET-LEFT", "ENTITLED", "REASON", "AGE"]
NODE_COLUMNS: Final = ["NODE", "FREE", "REQUESTED", "ALLOCATABLE", "CAPACITY", "ELIGIBLE", "REASONS"]
REFUSED: Final = "the server does not allow this method on the requested resource"


@dataclass(frozen=True, slots=True)
class Kubectl:
    """One kubectl on one stage, as the administrator."""

    stage: Stage
    program: Path

    def __call__(self, *arguments: str) -> str:
        """Run it and return what it prints.

        Raises:
            AssertionError: it failed, or complained.
        """
        done = self.run(*arguments)
        require(done.returncode == 0, f"kubectl {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        require_equal(done.stderr, "", f"complaints of kubectl {' '.join(arguments)}")
        return done.stdout

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it, whatever comes of it."""
        return subprocess.run(
            self.command(*arguments), capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False, input=""
        )

    def command(self, *arguments: str) -> list[str]:
        """Its command line."""
        cache = self.stage.control_plane.directory / f"{self.program.parent.name}.cache"
        kubeconfig = self.stage.control_plane.kubeconfig
        return [str(self.program), f"--kubeconfig={kubeconfig}", f"--cache-dir={cache}", *arguments]

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator[Callable[[], list[str]]]:
        """While the block lasts it runs; the value tells the lines that it has printed."""
        log = self.stage.scratch("kubectl") / "output"
        process = Process("kubectl", self.command(*arguments), log)
        try:
            yield lambda: log.read_text().splitlines()
        finally:
            process.stop()

    def rows(self, *arguments: str) -> list[list[str]]:
        """The words of each line of what it prints."""
        return [line.split() for line in self(*arguments).splitlines()]


def _get(kubectl: Kubectl) -> None:
    header, *rows = kubectl.rows("get", RESOURCE)
    require_equal(header, COLUMNS, "columns")
    require_equal({row[0]: row[1] for row in rows}, {name: str(free) for name, free in FREE.items()}, "FREE")
    require_equal(rows[0][:7], ["l40s", "8", "3", "0", "8", "true", "Offered"], "a row")
    for name in ("gpucatalog", f"gpuclass.{GROUP}", f"gpuclasses.{VERSION}.{GROUP}"):
        require_equal(kubectl.rows("get", name)[0], COLUMNS, f"columns of {name}")
    require_equal(kubectl.rows("get", RESOURCE, "l40s", "--no-headers")[0][:2], ["l40s", "8"], "one class")
    missing = kubectl.run("get", RESOURCE, "nothing")
    require_contains(missing.stderr, f'Error from server (NotFound): {RESOURCE} "nothing" not found', "a missing class")


def _get_wide(kubectl: Kubectl) -> None:
    header, row = kubectl.rows("get", RESOURCE, "l40s-24c", "-o", "wide")
    require_equal(header, WIDE_COLUMNS, "columns")
    require_equal(row[8:], ["NVIDIA", "L40S", "vgpu", "L40S-24C", "24Gi", "nvidia.com/NVIDIA_L40S-24C"], "a row")
    labelled = kubectl.rows("get", RESOURCE, "l40s", "--show-labels", "-L", "tier", "--no-headers")[0]
    require_equal(labelled[-2:], ["gold", "tier=gold"], "labels")


def _get_objects(kubectl: Kubectl) -> None:
    served = without_version(json.loads(kubectl("get", "--raw", f"{CLASSES}/l40s")))
    as_json = json.loads(kubectl("get", RESOURCE, "l40s", "-o", "json"))
    require_equal(without_version(as_json), served, "-o json beside --raw")
    as_yaml = yaml.safe_load(kubectl("get", RESOURCE, "l40s", "-o", "yaml"))
    require_equal(without_version(as_yaml), _plain(served), "-o yaml")
    for each in (as_json, as_yaml):
        version = each["metadata"]["resourceVersion"]
        require(isinstance(version, str) and version.isdigit(), f"the version {version!r} is no text of digits")
    for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
        listed = read(kubectl("get", RESOURCE, "-o", output))
        require_equal(listed["kind"], "List", f"kind of the list in {output}")
        kinds = {(item["apiVersion"], item["kind"]) for item in listed["items"]}
        require_equal(kinds, {(f"{GROUP}/{VERSION}", "GPUClass")}, f"kinds in {output}")


def _get_words(kubectl: Kubectl) -> None:
    names = kubectl("get", RESOURCE, "-o", "name").split()
    require_equal(names, [f"gpuclass.{GROUP}/{name}" for name in FREE], "-o name")
    path = 'jsonpath={range .items[*]}{.metadata.name}={.status.free}{" "}{end}'
    require_equal(kubectl("get", RESOURCE, "-o", path).split(), [f"{n}={f}" for n, f in FREE.items()], "-o jsonpath")
    columns = "custom-columns=WHAT:.metadata.name,LEFT:.status.free"
    rows = [["WHAT", "LEFT"], *([name, str(free)] for name, free in FREE.items())]
    require_equal(kubectl.rows("get", RESOURCE, "-o", columns), rows, "-o custom-columns")
    template = "{{range .items}}{{.metadata.name}} {{end}}"
    require_equal(kubectl("get", RESOURCE, "-o", f"go-template={template}").split(), list(FREE), "-o go-template")


def _select(kubectl: Kubectl) -> None:
    selections = {
        ("-l", "tier=gold"): ["l40s"],
        ("-l", "tier in (gold, silver),tier!=bronze"): ["l40s"],
        ("-l", "!tier"): ["l40s-24c", "mi300x"],
        ("--field-selector", "metadata.name=mi300x"): ["mi300x"],
        ("--field-selector", "spec.mode=vgpu"): ["l40s-24c"],
        ("--field-selector", "spec.vendor!=NVIDIA,status.offered=true"): ["mi300x"],
        ("-l", "tier", "--field-selector", "spec.vendor=AMD"): [],
    }
    for selection, expected in selections.items():
        found = kubectl("get", RESOURCE, *selection, "-o", "jsonpath={.items[*].metadata.name}").split()
        require_equal(found, expected, " ".join(selection))
    refused = kubectl.run("get", RESOURCE, "--field-selector", "spec.model=L40S")
    require_contains(refused.stderr, "Error from server (BadRequest)", "a field that is not selectable")


def _pages(kubectl: Kubectl) -> None:
    pages = kubectl("get", RESOURCE, "--chunk-size=1", "-o", "name").split()
    require_equal(pages, [f"gpuclass.{GROUP}/{name}" for name in FREE], "names by pages of one")
    require_equal(len(kubectl.rows("get", RESOURCE, "--chunk-size=1")), 1 + len(FREE), "lines by pages of one")
    rows = kubectl.rows("get", RESOURCE, "--sort-by=.status.free", "--no-headers")
    require_equal([row[0] for row in rows], ["mi300x", "l40s-24c", "l40s"], "--sort-by")
    rows = kubectl.rows("get", RESOURCE, "--sort-by=.metadata.creationTimestamp", "--no-headers")
    require_equal(len(rows), len(FREE), "--sort-by time")


def _describe(kubectl: Kubectl) -> None:
    told = " ".join(kubectl("describe", RESOURCE, "l40s").split())
    for part in ("Name: l40s", "Labels: tier=gold", f"API Version: {GROUP}/{VERSION}", "Kind: GPUClass", "Free: 8"):
        require_contains(told, part, "describe")


def _stored_kind(kubectl: Kubectl) -> None:
    for name in ("gpuclasses", "gpuclass"):
        listed = json.loads(kubectl("get", name, "-o", "json"))["items"]
        require_equal({item["apiVersion"] for item in listed}, {"cozystack.io/v1alpha1"}, f"what {name} means")
        require_equal([item["metadata"]["name"] for item in listed], list(FREE), f"kubectl get {name}")
    require("FREE" not in kubectl.rows("get", "gpuclasses")[0], "the stored kind shows figures")


def _discovery(kubectl: Kubectl) -> None:
    rows = kubectl.rows("api-resources", f"--api-group={GROUP}", "--no-headers")
    expected = [
        ["gpuclasses", "gpucatalog", f"{GROUP}/{VERSION}", "false", "GPUClass"],
        ["gpuoffers", "gpuoffer", f"{GROUP}/{VERSION}", "true", "GPUOffer"],
    ]
    require_equal(rows, expected, "api-resources")
    wide = kubectl.rows("api-resources", f"--api-group={GROUP}", "--no-headers", "-o", "wide")
    require_equal(wide[0][-2:], ["get,list,watch", "gpu"], "verbs and categories")
    require_contains(kubectl("api-versions"), f"{GROUP}/{VERSION}\n", "api-versions")
    require_contains(kubectl("get", "gpu", "-o", "name"), f"gpuclass.{GROUP}/l40s\n", "the category")


def _raw(kubectl: Kubectl) -> None:
    page = json.loads(kubectl("get", "--raw", f"{CLASSES}/l40s/catalog"))
    require_equal([each["free"] for each in page["nodes"]], [4, 4], "figures of the nodes")
    require_equal(json.loads(kubectl("get", "--raw", API))["groupVersion"], f"{GROUP}/{VERSION}", "discovery")
    selected = json.loads(kubectl("get", "--raw", f"{CLASSES}?labelSelector=tier%3Dgold&limit=1"))
    require_equal([item["metadata"]["name"] for item in selected["items"]], ["l40s"], "a selected list")
    refused = kubectl.run("get", "--raw", f"{CLASSES}?sendInitialEvents=true")
    require_contains(refused.stderr, "sendInitialEvents is forbidden for list", "a bad option")


def _subresource(kubectl: Kubectl) -> None:
    tried = kubectl.run("get", RESOURCE, "l40s", "--subresource=catalog")
    if "invalid subresource value" in tried.stderr:
        raise SkippedError("this kubectl knows only the subresources status, scale and resize")
    header, *rows = [line.split() for line in tried.stdout.splitlines()]
    require_equal(header, NODE_COLUMNS, "columns of the nodes")
    require_equal([row[:2] for row in rows], [["gpu-1", "4"], ["gpu-2", "4"]], "rows of the nodes")


def _wait(kubectl: Kubectl) -> None:
    kubectl("wait", f"{RESOURCE}/l40s", "--for=jsonpath={.status.free}=8", "--timeout=10s")
    kubectl.stage.splitter.take_watches()
    with kubectl.running("wait", f"{RESOURCE}/l40s", "--for=jsonpath={.status.free}=6", "--timeout=20s") as lines:
        kubectl.stage.wait_for_watches()
        with kubectl.stage.sold("waited-for", 2):
            wait_for(lambda: any("condition met" in line for line in lines()), "the condition to be met")
    kubectl.stage.add_class("short-lived")
    kubectl.stage.splitter.take_watches()
    with kubectl.running("wait", f"{RESOURCE}/short-lived", "--for=delete", "--timeout=20s") as lines:
        kubectl.stage.wait_for_watches()
        kubectl.stage.remove_class("short-lived")
        wait_for(lambda: any("condition met" in line for line in lines()), "the deletion to be seen")


def _watch(kubectl: Kubectl) -> None:
    stage = kubectl.stage
    stage.splitter.take_watches()
    with kubectl.running("get", RESOURCE, "-w", "--output-watch-events") as lines:
        stage.wait_for_watches()
        wait_for(lambda: len(lines()) > len(FREE), "the list")
        require_equal(lines()[0].split(), ["EVENT", *COLUMNS], "columns")
        with stage.sold("followed", 3):
            _wait_for_change(lines, ["l40s", "5"])
        _wait_for_change(lines, ["l40s", "8"])
        stage.add_class("late")
        _wait_for_line(lines, ["ADDED", "late", "0"])
        stage.remove_class("late")
        _wait_for_line(lines, ["DELETED", "late", "0"])
    require_equal(len([line for line in lines() if "NAME" in line]), 1, "headers")


def _watch_one(kubectl: Kubectl) -> None:
    stage = kubectl.stage
    stage.splitter.take_watches()
    path = 'jsonpath={.metadata.name}={.status.free}{"\\n"}'
    with (
        kubectl.running("get", RESOURCE, "l40s", "-w", "-o", path) as one,
        kubectl.running("get", RESOURCE, "-l", "tier=gold", "--watch-only", "-o", "name") as gold,
    ):
        stage.wait_for_watches(2)
        _change_another(stage)
        with stage.sold("of-one", 1):
            wait_for(lambda: "l40s=7" in one(), "the change of one class")
        # The second change is the end of the sale.
        wait_for(lambda: len(gold()) >= 2, "the changes of the selected")
        require_equal(set(one()), {"l40s=8", "l40s=7"}, "what is told of one class")
        require_equal(set(gold()), {f"gpuclass.{GROUP}/l40s"}, "what is told of the selected")


def _change_another(stage: Stage) -> None:
    """Change a class that nobody follows, and change it back."""
    for value in ("silver", None):
        stage.client.patch(f"{STORED}/mi300x", {"metadata": {"labels": {"rank": value}}})
    stage.wait_for_free("mi300x", FREE["mi300x"])


def _wait_for_line(lines: Callable[[], list[str]], words: list[str]) -> None:
    wait_for(lambda: any(line.split()[: len(words)] == words for line in lines()), f"the line {' '.join(words)}")


def _wait_for_change(lines: Callable[[], list[str]], words: list[str]) -> None:
    """Wait for a change; it is ADDED if the watch began with it at another replica than the one that listed."""
    told = [["ADDED", *words], ["MODIFIED", *words]]
    wait_for(lambda: any(line.split()[: len(told[0])] in told for line in lines()), f"a change to {' '.join(words)}")


def _get_offers(kubectl: Kubectl) -> None:
    header, *rows = kubectl.rows("get", OFFERS, "-n", "default")
    require_equal(header, OFFER_COLUMNS, "columns")
    require_equal([row[0] for row in rows], list(FREE), "NAME")
    require_equal(rows[0][:6], ["l40s", "8", "3", "unlimited", "true", "Orderable"], "a row")
    for name in ("gpuoffer", f"gpuoffers.{VERSION}.{GROUP}"):
        require_equal(kubectl.rows("get", name, "-n", "kube-system")[0], OFFER_COLUMNS, f"columns of {name}")
    header, *rows = kubectl.rows("get", OFFERS, "-A")
    require_equal(header, ["NAMESPACE", *OFFER_COLUMNS], "columns of all namespaces")
    namespaces = kubectl("get", "namespaces", "-o", "jsonpath={.items[*].metadata.name}").split()
    expected = [[namespace, name] for namespace in sorted(namespaces) for name in FREE]
    require_equal([row[:2] for row in rows], expected, "offers of all namespaces")
    selected = kubectl("get", OFFERS, "-A", "--field-selector=metadata.namespace=default", "-o", "name").split()
    require_equal(selected, [f"gpuoffer.{GROUP}/{name}" for name in FREE], "the offers of one, selected")
    pages = kubectl.rows("get", OFFERS, "-A", "--chunk-size=2", "--no-headers")
    require_equal([row[:2] for row in pages], expected, "the same by pages of two")
    missing = kubectl.run("get", OFFERS, "nothing", "-n", "default")
    require_contains(missing.stderr, f'Error from server (NotFound): {OFFERS}.{GROUP} "nothing" not found', "a missing")


def _watch_offers(kubectl: Kubectl) -> None:
    stage = kubectl.stage
    stage.splitter.take_watches()
    with (
        kubectl.running("get", OFFERS, "-n", "default", "-w", "--output-watch-events", "--no-headers") as one,
        kubectl.running("get", OFFERS, "-A", "-w", "--output-watch-events", "--no-headers") as everywhere,
    ):
        stage.wait_for_watches(2)
        with stage.sold("ordered", 3):
            _wait_for_change(one, ["l40s", "5"])
            for namespace in ("default", "kube-system"):
                _wait_for_change(everywhere, [namespace, "l40s", "5"])
        _wait_for_change(one, ["l40s", "8"])


def _refused_writes(kubectl: Kubectl) -> None:
    changes = (
        ("delete", RESOURCE, "l40s"),
        ("label", RESOURCE, "l40s", "a=b"),
        ("patch", RESOURCE, "l40s", "--type=merge", "-p", '{"spec":{"model":"other"}}'),
        ("delete", RESOURCE, "--all"),
    )
    for change in changes:
        refused = kubectl.run(*change)
        require(refused.returncode != 0, f"kubectl {' '.join(change)} did not fail")
        require_contains(refused.stderr, REFUSED, f"kubectl {change[0]}")
    require_equal(len(kubectl("get", RESOURCE, "-o", "name").split()), len(FREE), "classes after all")


def _explain(kubectl: Kubectl) -> None:
    wait_for(
        lambda: f"apis/{GROUP}/{VERSION}" in kubectl.stage.client.get("/openapi/v3")["paths"],
        "our group in the index of OpenAPI v3",
        timeout_seconds=OPENAPI_SECONDS,
        poll_seconds=1,
    )
    free = " ".join(kubectl("explain", f"{RESOURCE}.status.free").split())
    require_contains(free, "KIND: GPUClass", "explain")
    require_contains(free, "FIELD: free <integer>", "explain")
    whole = " ".join(kubectl("explain", RESOURCE, "--recursive").split())
    for part in ("maxPerInstance <integer>", "tolerations <[]Toleration>", "labels <map[string]string>"):
        require_contains(whole, part, "explain --recursive")
    offer = " ".join(kubectl("explain", OFFERS, "--recursive").split())
    for part in ("KIND: GPUOffer", "orderable <integer>", "remaining <integer>"):
        require_contains(offer, part, "explain of offers")


def _plain(content: Json) -> Json:
    """The object as YAML reads it back: the same, its times are strings in quotes."""
    plain: Json = yaml.safe_load(yaml.safe_dump(content))
    return plain


FOLLOWING: Final = frozenset(
    {"get -w", "get NAME -w, -l --watch-only", "wait --for=jsonpath|delete", "get gpuoffers -w, -A -w"}
)
ACTIONS: Final[dict[str, tuple[Callable[[Kubectl], None], bool]]] = {
    "get": (_get, True),
    "get -o wide": (_get_wide, False),
    "get -o json|yaml": (_get_objects, False),
    "get -o name|jsonpath|custom-columns|go-template": (_get_words, False),
    "get -l, --field-selector": (_select, False),
    "get --chunk-size=1, --sort-by": (_pages, True),
    "get gpuclasses means the stored kind": (_stored_kind, True),
    "get --raw": (_raw, False),
    "get --subresource=catalog": (_subresource, False),
    "get -w": (_watch, True),
    "get NAME -w, -l --watch-only": (_watch_one, False),
    "get gpuoffers -n, -A": (_get_offers, True),
    "get gpuoffers -w, -A -w": (_watch_offers, False),
    "describe": (_describe, False),
    "wait --for=jsonpath|delete": (_wait, True),
    "api-resources, api-versions, category": (_discovery, False),
    "delete, label and patch are refused": (_refused_writes, False),
    "explain, --recursive": (_explain, False),
}


def _built(stage: Stage) -> Path:
    return stage.control_plane.binaries.kubectl


def _of_the_machine(_: Stage) -> Path:
    found = shutil.which("kubectl")
    if found is None:
        raise SkippedError("this machine has no kubectl")
    return Path(found)


def _check(title: str, find: Callable[[Stage], Path], name: str) -> Check:
    action, is_short = ACTIONS[name]

    def run(stage: Stage) -> None:
        action(Kubectl(stage, find(stage)))

    return Check(f"{title} {name}", run, is_short=is_short and find is _built, needs_splitter=name in FOLLOWING)


CHECKS: Final = (
    *(_check("kubectl", _built, name) for name in ACTIONS),
    *(_check("older kubectl", _of_the_machine, name) for name in ACTIONS),
)
