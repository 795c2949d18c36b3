"""What is installed, by kustomize and by Helm: the same choices made in the words of either."""

import json
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.cluster.catalog import MANIFESTS, NAMESPACE, read_documents
from tests.cluster.client import Answer, Client, Json

CHART: Final = MANIFESTS / "chart"
COMPONENTS: Final = MANIFESTS / "components"
RELEASE: Final = "gpuclass-catalog"
APPLY: Final = "application/apply-patch+yaml"
HELM_TIMEOUT_SECONDS: Final = 60

CERTIFICATION: Final = {"cert-manager": "tls.type=cert-manager", "self-signed": "tls.type=self-signed"}
"""One of these components must be chosen."""
OPTIONAL: Final = {
    "high-availability": "highAvailability.enabled=true",
    "kubevirt": "kubevirt.enabled=true",
    "apf": "apf.enabled=true",
    "network-policy": "networkPolicy.enabled=true",
    "monitoring": "monitoring.enabled=true",
}
"""Each of these can be added, in this order, before one of `CERTIFICATION`."""
OF_THE_DEPLOYMENT: Final = ("high-availability", "kubevirt")
"""Those of them that change one object."""
VALUES: Final = CERTIFICATION | OPTIONAL
"""The value of the chart that means the same as the component."""


def variants() -> Iterator[tuple[str, ...]]:
    """None, each alone, those that change one object, and all; with either of `CERTIFICATION`, which comes last."""
    for chosen in ((), *((each,) for each in OPTIONAL), OF_THE_DEPLOYMENT, tuple(OPTIONAL)):
        for last in CERTIFICATION:
            yield (*chosen, last)


def run_helm(helm: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm, whatever it ends with; nothing of the person's own is read."""
    environment = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
    return subprocess.run(
        (str(helm), *arguments),
        capture_output=True,
        text=True,
        timeout=HELM_TIMEOUT_SECONDS,
        check=False,
        env=environment,
    )


def templated(helm: Path, values: Iterable[str], *, namespace: str = NAMESPACE, chart: Path = CHART) -> list[Json]:
    """What the chart renders with these values, in a release of that namespace.

    Raises:
        AssertionError: helm refuses; the message carries what it said.
    """
    flags = [flag for value in values for flag in ("--set", value)]
    done = run_helm(helm, "template", RELEASE, str(chart), f"--namespace={namespace}", *flags)
    if done.returncode != 0:
        raise AssertionError(f"helm template {' '.join(flags)}: {done.stderr}")
    return read_documents(done.stdout)


def by_identity(documents: Iterable[Json]) -> dict[str, Json]:
    """The documents by what makes one the same object as another; none may come twice."""
    found: dict[str, Json] = {}
    for document in documents:
        metadata = document["metadata"]
        identity = "/".join((document["apiVersion"], document["kind"], metadata.get("namespace", ""), metadata["name"]))
        if identity in found:
            raise AssertionError(f"{identity} is rendered twice")
        found[identity] = document
    return found


def distinct(documents: Iterable[Json]) -> list[Json]:
    """The documents without those that are equal to an earlier one, in their order: every form of every object."""
    return list({json.dumps(document, sort_keys=True): document for document in documents}.values())


def path_of(client: Client, document: Json) -> str:
    """Where an object is, by what kube-apiserver says of its kind."""
    version = document["apiVersion"]
    prefix = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    (found,) = (
        each for each in client.get(prefix)["resources"] if each["kind"] == document["kind"] and "/" not in each["name"]
    )
    metadata = document["metadata"]
    inside = f"/namespaces/{metadata['namespace']}" if found["namespaced"] else ""
    return f"{prefix}{inside}/{found['name']}/{metadata['name']}"


def dry_run(client: Client, document: Json) -> Answer:
    """Have kube-apiserver apply an object without storing it; a field that it does not know is an error."""
    query = "dryRun=All&fieldManager=test&force=true&fieldValidation=Strict"
    return client.request("PATCH", f"{path_of(client, document)}?{query}", document, {"Content-Type": APPLY})


def require_admitted(client: Client, documents: list[Json]) -> None:
    """The kube-apiserver takes each object without a warning about it, and would not take a misspelt one."""
    for document in documents:
        answer = dry_run(client, document)
        assert answer.code in (200, 201), answer.body.decode()
        assert "warning" not in answer.headers
    (policy,) = (each for each in documents if each["kind"] == "NetworkPolicy")
    answer = dry_run(client, {**policy, "spec": {**policy["spec"], "policyType": ["Ingress"]}})
    assert answer.code >= 400
    assert "policyType" in answer.json()["message"]
