"""kube-controller-manager beside us: namespaces end in the normal time, and garbage is collected."""

import time
from typing import Final

from tests.cluster.catalog import API_SERVICE
from tests.cluster.client import Json, NotFoundError
from tests.cluster.waiting import wait_for
from tests.conformance.checks import Check, require_equal
from tests.conformance.stage import GROUP, Stage

CONTROLLERS: Final = ("namespace-controller", "garbage-collector-controller")
NAMESPACES: Final = "/api/v1/namespaces"
NORMAL_SECONDS: Final = 20
"""Without any aggregated server it takes 5 to 10."""


def _delete_namespace(stage: Stage, name: str) -> None:
    """A namespace with something in it is gone soon after it is deleted."""
    stage.client.post(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    stage.client.post(f"{NAMESPACES}/{name}/configmaps", _config_map("inside"))
    stage.client.delete(f"{NAMESPACES}/{name}")
    wait_for(
        lambda: _is_gone(stage, f"{NAMESPACES}/{name}"),
        f"the namespace {name} to end",
        timeout_seconds=NORMAL_SECONDS,
        poll_seconds=0.2,
    )


def _collect_garbage(stage: Stage) -> None:
    """What an object owned is collected when the object is gone."""
    path = f"{NAMESPACES}/default/configmaps"
    owner = stage.client.post(path, _config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = _config_map("owned")
    owned["metadata"]["ownerReferences"] = [reference]
    stage.client.post(path, owned)
    stage.client.delete(f"{path}/owner")
    wait_for(lambda: _is_gone(stage, f"{path}/owned"), "the garbage to be collected", timeout_seconds=NORMAL_SECONDS)


def _complaints(stage: Stage) -> None:
    """kube-controller-manager has not logged an error about us."""
    log = (stage.control_plane.directory / "kube-controller-manager.log").read_text()
    errors = [line for line in log.splitlines() if line.startswith(("E", "W")) and GROUP in line]
    require_equal(errors, [], "what kube-controller-manager complains of")


def _after_the_end(stage: Stage) -> None:
    """With both replicas stopped and the APIService removed the cluster is as before us."""
    for replica in stage.replicas:
        replica.stop()
    stage.client.delete(f"/apis/apiregistration.k8s.io/v1/apiservices/{API_SERVICE}")
    time.sleep(1)
    _delete_namespace(stage, "after-us")


def _config_map(name: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def _is_gone(stage: Stage, path: str) -> bool:
    try:
        stage.client.get(path)
    except NotFoundError:
        return True
    return False


CHECKS: Final = (
    Check("namespace deletion while we serve", lambda stage: _delete_namespace(stage, "beside-us")),
    Check("garbage collection while we serve", _collect_garbage),
    Check("kube-controller-manager complains of nothing", _complaints),
)
LAST: Final = (Check("namespace deletion after we are gone", _after_the_end),)
