"""What is installed: alike by kustomize and by Helm, admitted by the real kube-apiserver, placed by the scheduler."""

import contextlib
import copy
import json
import subprocess
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.binaries import Binaries, Module, find_program
from tests.cluster.catalog import API, MANIFESTS, NAME, NAMESPACE, composed, kustomized, manifests
from tests.cluster.cleaning import left_as_found
from tests.cluster.client import ApiError, Client, Json, NotFoundError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.renderings import (
    CERTIFICATION,
    CHART,
    COMPONENTS,
    OPTIONAL,
    VALUES,
    by_identity,
    path_of,
    require_admitted,
    run_helm,
    templated,
)
from tests.cluster.standins import foreign_kinds
from tests.cluster.waiting import wait_for
from tests.cluster.workload import (
    NAMESPACES,
    create_node,
    create_pod,
    ensure_namespace,
    node,
    wait_until_placed,
    wait_until_refused,
)

PROJECT = MANIFESTS.parent
CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition//gpuclasses.cozystack.io"
ELSEWHERE = "gpu-system"
FOREIGN_KINDS = Module("foreign-kinds")
ENFORCED = {"pod-security.kubernetes.io/enforce": "restricted"}
SPREAD = ("high-availability", "cert-manager")


def pod_template(documents: list[Json], name: str) -> Json:
    """A Pod as the Deployment makes it; the caller may change it."""
    (deployment,) = (each for each in documents if each["kind"] == "Deployment")
    template = copy.deepcopy(deployment["spec"]["template"])
    metadata = {**template["metadata"], "name": name, "namespace": NAMESPACE}
    metadata["labels"] = {**metadata["labels"], "pod-template-hash": "same"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


@pytest.mark.timeout(300)
def test_chart_is_the_components(kustomize_renderings: dict[tuple[str, ...], list[Json]], helm: Path) -> None:
    """With the values that mean the same, the chart renders object by object what kustomize makes of the components.

    The Namespace is the release's, so the chart has none; the CRD is a directory of its own for kustomize.
    """

    def compare(variant: tuple[str, ...]) -> None:
        by_kustomize = by_identity(kustomize_renderings[variant])
        by_helm = by_identity(templated(helm, [VALUES[each] for each in variant]))
        del by_kustomize[f"v1/Namespace//{NAMESPACE}"], by_helm[CRD]
        assert by_helm == by_kustomize, variant

    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(compare, kustomize_renderings))) == len(CERTIFICATION) * (len(OPTIONAL) + 3)


def test_every_component_is_compared() -> None:
    """A directory of components is in the table of values, so that the chart cannot lack it unnoticed."""
    assert {each.name for each in COMPONENTS.iterdir()} == set(VALUES)


def test_overlays_are_base_and_component(binaries: Binaries) -> None:
    """The two overlays are what their names say."""
    for overlay, component in (("default", "cert-manager"), ("trial", "self-signed")):
        found = kustomized(binaries.kubectl, MANIFESTS / "overlays" / overlay)
        assert by_identity(found) == by_identity(composed(binaries.kubectl, component))


def test_prometheus_verifies_the_server(
    binaries: Binaries, kustomize_renderings: dict[tuple[str, ...], list[Json]]
) -> None:
    """By the certificate's Secret and one of its names, wherever monitoring stands; self-signed after it ends that."""

    def verification(documents: list[Json]) -> Json:
        (monitor,) = (each for each in documents if each["kind"] == "ServiceMonitor")
        (endpoint,) = monitor["spec"]["endpoints"]
        found: Json = endpoint["tlsConfig"]
        return found

    documents = kustomize_renderings["monitoring", "cert-manager"]
    (certificate,) = (
        each["spec"]
        for each in documents
        if (each["kind"], each["metadata"]["name"]) == ("Certificate", f"{NAME}-serving")
    )
    verified = verification(documents)
    assert verified == {
        "ca": {"secret": {"name": certificate["secretName"], "key": "ca.crt"}},
        "serverName": certificate["dnsNames"][0],
    }
    for before in CERTIFICATION:
        assert verification(composed(binaries.kubectl, before, "monitoring")) == verified
    assert verification(kustomize_renderings["monitoring", "self-signed"]) == {"insecureSkipVerify": True}


def test_chart_has_the_crd(control_plane: ControlPlane, helm: Path) -> None:
    """The chart's CRD is the one of `manifests/crd`, kept at an uninstall; it can be left to others."""
    (original,) = manifests(control_plane, "crd")
    rendered = by_identity(templated(helm, []))[CRD]
    assert rendered == original
    assert rendered["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert CRD not in by_identity(templated(helm, ["crd.install=false"]))


def test_chart_is_whole_when_packaged(helm: Path, tmp_path: Path) -> None:
    """A package of the chart, which cannot refer to what is beside it, renders the same."""
    packed = run_helm(helm, "package", str(CHART), f"--destination={tmp_path}")
    assert packed.returncode == 0, packed.stderr
    (package,) = tmp_path.iterdir()
    assert templated(helm, [], chart=package) == templated(helm, [])


def test_chart_goes_elsewhere(helm: Path, binaries: Binaries) -> None:
    """In the release's namespace or in one that the chart makes, all is as in ours but for its name."""
    chosen = (*OPTIONAL, "cert-manager")
    values = [VALUES[each] for each in chosen]
    ours = yaml.safe_dump(composed(binaries.kubectl, *chosen))
    expected = by_identity(yaml.safe_load(ours.replace(NAMESPACE, ELSEWHERE)))
    made = by_identity(templated(helm, [*values, f"namespace={ELSEWHERE}"], namespace="default"))
    assert made.pop(CRD)
    assert made == expected
    own = by_identity(templated(helm, values, namespace=ELSEWHERE))
    named = by_identity(templated(helm, [*values, f"namespace={ELSEWHERE}"], namespace=ELSEWHERE))
    assert own.pop(CRD) == named.pop(CRD)
    assert own == named == {key: each for key, each in made.items() if each["kind"] != "Namespace"}


def test_chart_heeds_every_value(helm: Path, tmp_path: Path) -> None:
    """What is set arrives in the Deployment."""
    values: dict[str, Any] = {
        "image": {
            "repository": "registry.example.com:5000/gpu/catalog",
            "tag": "1.2.3",
            "pullPolicy": "Always",
            "pullSecrets": ["registry"],
        },
        "replicas": 3,
        "extraArgs": ["--node-selector=pool=gpu", "-v=2"],
        "resources": {"requests": {"memory": "1Gi"}},
        "nodeSelector": {"pool": "system"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
    }
    default = deployment(helm, tmp_path, {})
    changed = deployment(helm, tmp_path, values)
    assert changed["replicas"] == 3
    pod, container = changed["template"]["spec"], changed["template"]["spec"]["containers"][0]
    assert container["image"] == "registry.example.com:5000/gpu/catalog:1.2.3"
    assert container["imagePullPolicy"] == "Always"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    usual = default["template"]["spec"]["containers"][0]["args"]
    assert container["args"] == [*usual, "--node-selector=pool=gpu", "-v=2"]
    assert container["resources"]["requests"] == {"cpu": "100m", "memory": "1Gi"}
    assert pod["nodeSelector"] == {"pool": "system"}
    assert pod["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    pinned = {"image": {"tag": "1.2.3", "digest": f"sha256:{'a' * 64}"}}
    image = deployment(helm, tmp_path, pinned)["template"]["spec"]["containers"][0]["image"]
    assert image == f"gpuclass-catalog@sha256:{'a' * 64}"


def deployment(helm: Path, directory: Path, values: Json) -> Json:
    """The Deployment's spec with values from a file."""
    path = directory / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    done = run_helm(helm, "template", NAME, str(CHART), f"--values={path}", "--show-only=templates/deployment.yaml")
    assert done.returncode == 0, done.stderr
    spec: Json = yaml.safe_load(done.stdout)["spec"]
    return spec


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("replicas=0", "/replicas"),
        ("replicas=two", "/replicas"),
        ("tls.type=none", "/tls/type"),
        ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
        ("image.digest=latest", "/image/digest"),
        ("namespace=Upper_Case", "/namespace"),
        ("crd.install=maybe", "/crd/install"),
        ("kubevirt.enabled=maybe", "/kubevirt/enabled"),
        ("extraArgs={kubevirt}", "/extraArgs/0"),
        ("kubvirt.enabled=true", "kubvirt"),
        ("image.name=catalog", "name"),
    ],
)
def test_chart_refuses(helm: Path, value: str, field: str) -> None:
    """A wrong value, and one that does not exist, is refused by its name."""
    done = run_helm(helm, "template", NAME, str(CHART), "--set", value)
    assert done.returncode != 0
    assert field in done.stderr


def test_chart_is_linted(helm: Path) -> None:
    """`helm lint --strict` finds nothing wrong."""
    done = run_helm(helm, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout


def test_versions_agree(binaries: Binaries) -> None:
    """The chart, the image of the base and the package have one version."""
    version = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)
    image = pod_template(composed(binaries.kubectl), "any")["spec"]["containers"][0]["image"]
    assert image == f"{NAME}:{version}"


@pytest.mark.timeout(600)
def test_kinds_of_others_are_theirs(everything: list[Json], announce: Callable[[str], None]) -> None:
    """What is cert-manager's and the Prometheus operator's is of their own types, by a program built with them."""
    program = find_program("foreignkinds", FOREIGN_KINDS, ".", announce)

    def judged(documents: list[Json]) -> subprocess.CompletedProcess[str]:
        given = json.dumps(documents)
        return subprocess.run((program,), input=given, capture_output=True, text=True, timeout=30, check=False)

    ours = [each for each in everything if each["apiVersion"].startswith(("cert-manager.io/", "monitoring."))]
    kinds = [each["kind"] for each in ours]
    assert sorted(kinds) == [*["Certificate"] * 2, *["Issuer"] * 2, "PrometheusRule", *["ServiceMonitor"] * 2]
    assert judged(ours).stdout == "7\n", judged(ours).stderr
    for each in ours:
        refused = judged([{**each, "spec": {**each["spec"], "misspelt": ["x"]}}])
        assert (refused.returncode, "misspelt" in refused.stderr) == (1, True)


def test_pods_are_restricted(api: Client, everything: list[Json]) -> None:
    """Where PodSecurity enforces restricted, as the base's Namespace does, the Pods of every variant are let in."""
    (namespace,) = (each for each in everything if each["kind"] == "Namespace")
    assert namespace["metadata"]["labels"].items() >= ENFORCED.items()
    ensure_namespace(api, NAMESPACE, ENFORCED)
    api.patch(f"{NAMESPACES}/{NAMESPACE}", {"metadata": {"labels": ENFORCED}})
    path = f"{NAMESPACES}/{NAMESPACE}/pods?dryRun=All"
    deployments = [each for each in everything if each["kind"] == "Deployment"]
    assert len(deployments) == 2**3
    for each in deployments:
        assert api.post(path, pod_template([each], "tried"))["metadata"]["name"] == "tried"
    loose = pod_template(deployments[:1], "loose")
    loose["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(ApiError, match="violates PodSecurity") as refused:
        api.post(path, loose)
    assert refused.value.code == 403


def test_replicas_are_spread(api: Client, kustomize_renderings: dict[tuple[str, ...], list[Json]]) -> None:
    """With high-availability two replicas are on two hosts, and on one host alone there is one."""
    documents = kustomize_renderings[SPREAD]
    create_node(api, node("first"))
    wait_until_placed(api, create_pod(api, pod_template(documents, "one")))
    second = create_pod(api, pod_template(documents, "two"))
    wait_until_refused(api, second)
    create_node(api, node("second"))
    assert wait_until_placed(api, second) == "second"


def test_replicas_share_one_host(api: Client, kustomize_renderings: dict[tuple[str, ...], list[Json]]) -> None:
    """Without high-availability both replicas run on a cluster of one host."""
    create_node(api, node("only"))
    for name in ("one", "two"):
        pod = create_pod(api, pod_template(kustomize_renderings["cert-manager",], name))
        assert wait_until_placed(api, pod) == "only"


@pytest.mark.usefixtures("catalog")
def test_readers_have_a_flow_of_their_own(api: Client, control_plane: ControlPlane, everything: list[Json]) -> None:
    """With apf, kube-apiserver puts a reader of the catalog under our FlowSchema, and a reader of Nodes not."""
    ours = [each for each in everything if each["apiVersion"].startswith("flowcontrol.")]
    made = {each["kind"]: path_of(api, each) for each in ours}
    try:
        created = {each["kind"]: api.post(made[each["kind"]].rpartition("/")[0], each) for each in ours}
        uid = created["FlowSchema"]["metadata"]["uid"]
        with control_plane.user_client("reader", ["system:authenticated"]) as reader:

            def flow(path: str) -> str | None:
                return reader.request("GET", path).headers.get("x-kubernetes-pf-flowschema-uid")

            wait_for(lambda: flow(f"{API}/gpuclasses") == uid, "our FlowSchema to hold")
            assert flow("/api/v1/nodes") not in (uid, None)
    finally:
        for path in made.values():
            with contextlib.suppress(NotFoundError):
                api.delete(path)


def test_all_is_admitted_by_the_oldest(older_control_plane: ControlPlane, everything: list[Json]) -> None:
    """The same as in test_install.py, by the oldest Kubernetes that we promise to work with."""
    client = older_control_plane.client
    with left_as_found(client), foreign_kinds(client):
        ensure_namespace(client, NAMESPACE)
        require_admitted(client, everything)
