"""The catalog on a real cluster, asked with kubectl through kube-apiserver, and straight at its own port."""

import json
import random
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.catalog import CatalogServer
from tests.cluster.client import Client, Json
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.workload import (
    DEVICE,
    NODES,
    STORED,
    bind,
    create_node,
    create_pod,
    gpu_class,
    node,
    pod,
    pod_path,
    set_phase,
)

BASE = "/apis/catalog.cozystack.io/v1alpha1"
KIND = "gpuclasses.catalog.cozystack.io"
READER = "gpuclass-catalog-viewer"
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
BODY_OF_403 = 'cannot {verb} resource "{resource}" in API group "catalog.cozystack.io" at the cluster scope'


def read(control_plane: ControlPlane, path: str) -> Json:
    """What kubectl get --raw prints, as JSON."""
    answer: Json = json.loads(control_plane.kubectl("get", "--raw", path).stdout)
    return answer


def wait_for_figures(control_plane: ControlPlane, name: str, **figures: int) -> Json:
    """Ask through kube-apiserver until the class has these figures, and return its status."""
    status: Json = {}

    def matches() -> bool:
        status.update(read(control_plane, f"{BASE}/gpuclasses/{name}")["status"])
        return figures.items() <= status.items()

    wait_for(matches, f"{name} to have {figures}; it has {status}", timeout_seconds=10)
    return status


@pytest.fixture
def l40s(api: Client, catalog: CatalogServer, control_plane: ControlPlane) -> str:
    """A class with two nodes of 4 devices each, all free, and known to the catalog."""
    catalog.require_running()
    create_node(api, node("n1", capacity={DEVICE: 4}))
    create_node(api, node("n2", capacity={DEVICE: 4}))
    api.post(STORED, gpu_class("l40s", maxCount=3))
    wait_for(
        lambda: any(each["metadata"]["name"] == "l40s" for each in read(control_plane, f"{BASE}/gpuclasses")["items"]),
        "the class to be listed",
    )
    wait_for_figures(control_plane, "l40s", free=8)
    return "l40s"


@pytest.fixture
def stranger(catalog: CatalogServer) -> Iterator[Client]:
    """A user without any rights, straight at our port."""
    catalog.require_running()
    with catalog.client("stranger", ()) as client:
        yield client


def test_figures_follow_the_cluster(api: Client, control_plane: ControlPlane, l40s: str) -> None:
    """Binding a pod lowers free, its end and its deletion raise it, cordoning takes the node out."""
    created = create_pod(api, pod("vm", requests={DEVICE: 1}, spec={"schedulerName": "nobody"}))
    assert wait_for_figures(control_plane, l40s, free=8)["maxPerInstance"] == 3
    page = read(control_plane, f"{BASE}/gpuclasses/{l40s}/catalog")
    wait_for(
        lambda: read(control_plane, f"{BASE}/gpuclasses/{l40s}/catalog")["capacity"]["pending"] == 1,
        "the unbound pod to be pending",
    )
    assert [each["free"] for each in page["nodes"]] == [4, 4]
    bind(api, created, "n1")
    wait_for_figures(control_plane, l40s, free=7, requested=1, maxFreePerNode=4)
    set_phase(api, created, "Succeeded")
    wait_for_figures(control_plane, l40s, free=8, requested=0)
    second = create_pod(api, pod("second", node="n2", requests={DEVICE: 4}))
    wait_for_figures(control_plane, l40s, free=4, requested=4)
    control_plane.kubectl("cordon", "n1")
    wait_for_figures(control_plane, l40s, free=0, allocatable=4, unavailable=4)
    reasons = {
        each["name"]: [reason["reason"] for reason in each["reasons"]]
        for each in read(control_plane, f"{BASE}/gpuclasses/{l40s}/catalog")["nodes"]
    }
    assert reasons["n1"][0] == "Cordoned"
    assert reasons["n2"] == []
    api.delete(pod_path(second))
    wait_for_figures(control_plane, l40s, free=4, requested=0)
    control_plane.kubectl("uncordon", "n1")
    wait_for_figures(control_plane, l40s, free=8)
    api.delete(f"{NODES}/n1")
    wait_for_figures(control_plane, l40s, free=4, capacity=4)


def test_scheduler_agrees(api: Client, control_plane: ControlPlane, l40s: str) -> None:
    """The real scheduler places as many one-device pods as are said to be free, and not one more."""
    create_pod(api, pod("holder", node="n1", requests={DEVICE: 3}))
    free = wait_for_figures(control_plane, l40s, free=5)["free"]
    pods = [create_pod(api, pod(f"vm{number}", requests={DEVICE: 1})) for number in range(free + 2)]
    wait_for_figures(control_plane, l40s, free=0, requested=8)
    placed = [each for each in map(pod_path, pods) if api.get(each)["spec"].get("nodeName")]
    assert len(placed) == free


def test_kubectl_prints_columns(control_plane: ControlPlane, l40s: str) -> None:
    """Plain kubectl prints the columns of the catalog, of one class, and node by node."""
    printed = control_plane.kubectl("get", KIND).stdout.splitlines()
    assert printed[0].split() == ["NAME", "FREE", "MAX", "REQUESTED", "ALLOCATABLE", "OFFERED", "REASON", "AGE"]
    assert printed[1].split()[:7] == [l40s, "8", "3", "0", "8", "true", "Offered"]
    wide = control_plane.kubectl("get", KIND, l40s, "-o", "wide").stdout.splitlines()
    assert wide[0].split()[8:] == ["VENDOR", "MODEL", "MODE", "PROFILE", "MEMORY", "RESOURCE"]
    assert wide[1].split()[-1] == DEVICE
    nodes = control_plane.kubectl("get", KIND, l40s, "--subresource=catalog").stdout.splitlines()
    assert nodes[0].split() == ["NODE", "FREE", "REQUESTED", "ALLOCATABLE", "CAPACITY", "ELIGIBLE", "REASONS"]
    assert nodes[1].split() == ["n1", "4", "0", "4", "4", "true"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(("-o", "name"), f"gpuclass.catalog.cozystack.io/{'l40s'}\n", id="name"),
        pytest.param(("-o", "jsonpath={.items[0].status.free}"), "8", id="jsonpath"),
        pytest.param(("--no-headers", "-o", "custom-columns=N:.metadata.name"), "l40s\n", id="custom columns"),
    ],
)
@pytest.mark.usefixtures("l40s")
def test_kubectl_outputs(control_plane: ControlPlane, arguments: Sequence[str], expected: str) -> None:
    """The other forms of kubectl's output work as for any resource."""
    assert control_plane.kubectl("get", KIND, *arguments).stdout == expected


@pytest.mark.usefixtures("l40s")
def test_names_in_discovery(control_plane: ControlPlane) -> None:
    """The short name and the category are ours; the bare plural stays the stored kind."""
    assert "REASON" in control_plane.kubectl("get", "gpucatalog").stdout
    assert "REASON" in control_plane.kubectl("get", "gpu").stdout
    assert "REASON" not in control_plane.kubectl("get", "gpuclasses").stdout


def test_not_found(control_plane: ControlPlane, l40s: str) -> None:
    """Kubectl says of a class that does not exist what it says of anything that does not."""
    for arguments in ((), ("--subresource=catalog",)):
        failed = control_plane.kubectl("get", KIND, f"no-{l40s}", *arguments, check=False)
        assert failed.stderr == f'Error from server (NotFound): {KIND} "no-{l40s}" not found\n'


@pytest.mark.parametrize(
    ("path", "head", "verb", "resource"),
    [
        pytest.param("gpuclasses", KIND, "list", "gpuclasses", id="list"),
        pytest.param("gpuclasses/l40s", f'{KIND} "l40s"', "get", "gpuclasses", id="get"),
        pytest.param("gpuclasses/l40s/catalog", f'{KIND} "l40s"', "get", "gpuclasses/catalog", id="subresource"),
        pytest.param("nothing/x", 'nothing.catalog.cozystack.io "x"', "get", "nothing", id="403 comes before 404"),
    ],
)
def test_forbidden(stranger: Client, path: str, head: str, verb: str, resource: str) -> None:
    """A user without rights gets 403 in the words of every Kubernetes API server."""
    answer = stranger.request("GET", f"{BASE}/{path}")
    status = answer.json()
    assert (answer.code, status["reason"], status["code"]) == (403, "Forbidden", 403)
    body = BODY_OF_403.format(verb=verb, resource=resource)
    assert status["message"].startswith(f'{head} is forbidden: User "stranger" {body}')
    assert status["details"]["kind"] == path.partition("/")[0]


def test_forbidden_through_kube_apiserver(control_plane: ControlPlane, l40s: str) -> None:
    """Kubectl of a user without rights is refused."""
    refused = control_plane.kubectl("get", KIND, l40s, user="stranger", check=False)
    assert refused.stderr.startswith(f'Error from server (Forbidden): {KIND} "{l40s}" is forbidden: User "stranger"')


def test_reader_role(api: Client, control_plane: ControlPlane, catalog: CatalogServer, l40s: str) -> None:
    """The role that is shipped lets its holder read, and nothing else, through kube-apiserver and directly."""
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "reader"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "test-reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": READER},
        "subjects": [subject],
    }
    api.post(BINDINGS, binding)
    try:
        wait_for(lambda: control_plane.kubectl("get", KIND, user="reader", check=False).returncode == 0, "the right")
        assert (
            l40s
            in control_plane.kubectl("get", KIND, l40s, "--subresource=catalog", "-o", "name", user="reader").stdout
        )
        with catalog.client("reader", ()) as direct:
            assert direct.get(f"{BASE}/gpuclasses/{l40s}")["status"]["free"] == 8
            assert direct.request("GET", "/metrics").code == 403
    finally:
        api.delete(f"{BINDINGS}/test-reader")


CLAIM_ADMIN = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}


def test_identity_headers_need_the_front_proxy(catalog: CatalogServer, stranger: Client) -> None:
    """X-Remote-User counts from the front proxy only: without its certificate the caller is who he is otherwise."""
    path = f"{BASE}/gpuclasses"
    with Client(catalog.port, authority=catalog.authority) as nobody:
        anonymous = nobody.request("GET", path, headers=CLAIM_ADMIN)
    assert anonymous.code == 403
    assert 'User "system:anonymous"' in anonymous.json()["message"]
    named = stranger.request("GET", path, headers=CLAIM_ADMIN)
    assert named.code == 403
    assert 'User "stranger"' in named.json()["message"]
    with catalog.front_proxy_client() as proxy:
        assert proxy.request("GET", path, headers=CLAIM_ADMIN).code == 200
        forwarded = proxy.request("GET", path, headers={"X-Remote-User": "stranger"})
    assert forwarded.code == 403
    assert 'User "stranger"' in forwarded.json()["message"]


def test_bearer_tokens(catalog: CatalogServer) -> None:
    """A token that kube-apiserver does not know is 401, never anonymous, and says nothing of why."""
    with Client(catalog.port, authority=catalog.authority) as client:
        answer = client.request("GET", f"{BASE}/gpuclasses", headers={"Authorization": "Bearer made-up"})
    assert (answer.code, answer.json()["message"]) == (401, "Unauthorized")


def test_impersonation_is_refused(catalog: CatalogServer) -> None:
    """Impersonation is never ignored silently."""
    with catalog.client() as admin:
        answer = admin.request("GET", f"{BASE}/gpuclasses", headers={"Impersonate-User": "stranger"})
    assert answer.code == 403


def test_health_is_open(catalog: CatalogServer) -> None:
    """Probes are answered without credentials; a single check needs the right to it."""
    with Client(catalog.port, authority=catalog.authority) as client:
        codes = {path: client.request("GET", path).code for path in ("/livez", "/readyz", "/healthz", "/livez/ping")}
    assert codes == {"/livez": 200, "/readyz": 200, "/healthz": 200, "/livez/ping": 403}


def test_many_groups(catalog: CatalogServer) -> None:
    """A user of three hundred groups is a user like any other."""
    groups = [f"team-{number:03}-with-a-long-name" for number in range(300)]
    with catalog.client("busy", groups) as client:
        answer = client.request("GET", f"{BASE}/gpuclasses")
    assert answer.code == 403


def comparable(listing: Json) -> Json:
    """A list without its versions and without the words of the moment."""
    for each in [listing, *listing["items"]]:
        each["metadata"].pop("resourceVersion")
    return listing


def run_get(*arguments: str, stdin: str = "") -> Json:
    """What `gpuclass-catalog get … -o json` prints, as JSON."""
    command = [sys.executable, "-m", "apiserver", "get", *arguments, "-o", "json"]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answer: Json = json.loads(done.stdout)
    return answer


def test_snapshot_and_kubeconfig_say_the_same(api: Client, control_plane: ControlPlane, l40s: str) -> None:
    """A dump piped into `get`, `get` with a kubeconfig, and the API give the same items."""
    create_pod(api, pod("vm", node="n2", requests={DEVICE: 3}))
    create_node(api, node("n3", capacity={DEVICE: 8}, allocatable={DEVICE: 7}, unschedulable=True))
    api.post(STORED, gpu_class("second", tolerations=[{"key": "a", "operator": "Exists"}]))
    wait_for_figures(control_plane, l40s, free=5, capacity=16, sharesWith=["second"])  # type: ignore[arg-type]
    served = comparable(read(control_plane, f"{BASE}/gpuclasses"))
    dump = control_plane.kubectl("get", "gpuclasses.cozystack.io,nodes,pods", "-A", "-o", "json").stdout
    assert comparable(run_get("--snapshot", "-", stdin=dump)) == served
    assert comparable(run_get("--kubeconfig", str(control_plane.kubeconfig))) == served


@contextmanager
def served_locally(kubeconfig: Path, *flags: str) -> Iterator[str]:
    """The URL of `serve --local` with that kubeconfig; at the end it must leave with 0 on SIGTERM."""
    command = [sys.executable, "-m", "apiserver", "serve", "--local", "--insecure-port", "0"]
    process = subprocess.Popen([*command, *flags, "--kubeconfig", str(kubeconfig)], stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        yield next(line.split()[-1] for line in process.stderr if "serving at" in line)
    finally:
        process.terminate()
        process.communicate(timeout=20)
    assert process.returncode == 0


def fetch(url: str) -> tuple[int, str, str]:
    """Code, text and Retry-After of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode(), ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers.get("Retry-After", "")


def test_local(control_plane: ControlPlane, l40s: str) -> None:
    """`serve --local` answers on loopback from the person's kubeconfig, without anything installed."""
    with served_locally(control_plane.kubeconfig) as url:
        wait_for(lambda: fetch(f"{url}/readyz")[1] == "ok", "the local server to be in sync")
        assert json.loads(fetch(f"{url}{BASE}/gpuclasses/{l40s}")[1])["status"]["free"] == 8


@pytest.mark.usefixtures("l40s")
def test_never_zeros_before_the_first_sync(control_plane: ControlPlane) -> None:
    """Without the right to list, data is 503 with the reason and Retry-After; discovery answers, and `get` says why."""
    kubeconfig = control_plane.user_kubeconfig("stranger")
    with served_locally(kubeconfig) as url:
        wait_for(lambda: "403" in fetch(f"{url}{BASE}/gpuclasses")[1], "the refusal to be known")
        code, text, retry_after = fetch(f"{url}{BASE}/gpuclasses")
        assert (code, retry_after, json.loads(text)["reason"]) == (503, "1", "ServiceUnavailable")
        assert fetch(f"{url}/readyz")[0] == 500
        assert (fetch(f"{url}/livez")[0], fetch(f"{url}{BASE}")[0]) == (200, 200)
    command = [sys.executable, "-m", "apiserver", "get", "--kubeconfig", str(kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "stranger" in done.stderr


def test_churn(api: Client, control_plane: ControlPlane, l40s: str) -> None:
    """After many changes the followed view says what a fresh reading of the cluster says."""
    rng = random.Random(7)  # noqa: S311 # reproducible, not secret
    api.post(STORED, gpu_class("other", "amd.com/gpu"))
    created: list[Json] = []
    for number in range(120):
        action = rng.choice(["pod", "pod", "delete", "finish", "cordon", "shrink", "node"])
        if action == "pod":
            requests = {rng.choice([DEVICE, "amd.com/gpu"]): rng.randint(1, 3)}
            created.append(create_pod(api, pod(f"p{number}", node=f"n{rng.randint(1, 4)}", requests=requests)))
        elif action in ("delete", "finish") and created:
            chosen = created.pop(rng.randrange(len(created)))
            if action == "delete":
                api.delete(pod_path(chosen))
            else:
                set_phase(api, chosen, rng.choice(["Succeeded", "Failed"]))
        elif action == "cordon":
            api.patch(f"{NODES}/n1", {"spec": {"unschedulable": rng.random() < 0.5}})
        elif action == "shrink":
            patch = {"status": {"allocatable": {DEVICE: str(rng.randint(0, 4)), "amd.com/gpu": str(rng.randint(0, 2))}}}
            api.patch(f"{NODES}/n2/status", patch)
        elif action == "node" and number % 2:
            create_node(api, node(f"extra{number}", capacity={"amd.com/gpu": 2}))
    fresh = comparable(run_get("--kubeconfig", str(control_plane.kubeconfig)))
    assert {each["metadata"]["name"] for each in fresh["items"]} == {l40s, "other"}
    wait_for(lambda: comparable(read(control_plane, f"{BASE}/gpuclasses")) == fresh, "the catalog to say the same")


def test_kubectl_watches(api: Client, control_plane: ControlPlane, l40s: str) -> None:
    """`kubectl get -w` prints the class, and a line for each change of it."""
    command = [str(control_plane.binaries.kubectl), f"--kubeconfig={control_plane.kubeconfig}", "get", KIND, "-w"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        lines = (line.split() for line in process.stdout)
        assert next(lines)[:2] == ["NAME", "FREE"]
        assert next(lines)[:2] == [l40s, "8"]
        created = create_pod(api, pod("vm", node="n1", requests={DEVICE: 3}))
        assert next(lines)[:2] == [l40s, "5"]
        api.delete(pod_path(created))
        assert next(lines)[:2] == [l40s, "8"]
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_kubectl_selects_and_waits(api: Client, control_plane: ControlPlane, l40s: str) -> None:
    """Selectors, pages and `kubectl wait` work as for any resource."""
    api.post(STORED, gpu_class("other", "amd.com/gpu"))
    api.patch(f"{STORED}/other", {"metadata": {"labels": {"tier": "gold"}}})
    wait_for(lambda: control_plane.kubectl("get", KIND, "-l", "tier=gold", "-o", "name").stdout, "the label")
    assert control_plane.kubectl("get", KIND, "-l", "tier=gold", "--no-headers").stdout.split()[0] == "other"
    by_field = ("--field-selector", f"metadata.name={l40s}")
    assert control_plane.kubectl("get", KIND, *by_field, "-o", "name").stdout.endswith(f"/{l40s}\n")
    pages = control_plane.kubectl("get", KIND, "--chunk-size=1", "-o", "name").stdout.splitlines()
    assert len(pages) == 2
    by_free = control_plane.kubectl("get", KIND, "--sort-by=.status.free", "--no-headers").stdout.splitlines()
    assert [line.split()[0] for line in by_free] == ["other", l40s]
    waiting = ("wait", f"{KIND}/{l40s}", "--for=jsonpath={.status.free}=8", "--timeout=10s")
    assert "condition met" in control_plane.kubectl(*waiting).stdout
