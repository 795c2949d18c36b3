"""Stand-ins for the kinds of others that our manifests name and that a bare control plane lacks.

They take any fields: an object of them that is stored was well-formed, and no more is known of it.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.cluster.client import Client, Json
from tests.cluster.waiting import wait_for

CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class Kind:
    """A namespaced kind of somebody else."""

    group: str
    version: str
    kind: str

    @property
    def plural(self) -> str:
        """Its name in paths."""
        return f"{self.kind.lower()}s"

    @property
    def path(self) -> str:
        """Where all of them are listed."""
        return f"/apis/{self.group}/{self.version}/{self.plural}"


FOREIGN_KINDS: Final = (
    Kind("cert-manager.io", "v1", "Issuer"),
    Kind("cert-manager.io", "v1", "Certificate"),
    Kind("monitoring.coreos.com", "v1", "ServiceMonitor"),
    Kind("monitoring.coreos.com", "v1", "PrometheusRule"),
)


@contextlib.contextmanager
def foreign_kinds(client: Client) -> Iterator[None]:
    """Have the kinds served while the block lasts."""
    try:
        for each in FOREIGN_KINDS:
            client.post(CRDS, _definition(each))
        wait_for(lambda: all(client.request("GET", each.path).code == 200 for each in FOREIGN_KINDS), "their service")
        yield
    finally:
        for each in FOREIGN_KINDS:
            client.request("DELETE", f"{CRDS}/{each.plural}.{each.group}")


def _definition(kind: Kind) -> Json:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced",
            "names": {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()},
            "versions": [
                {"name": kind.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
            ],
        },
    }
