"""kube-apiserver's own OpenAPI documents stay whole with ours merged in."""

from typing import Final

from tests.cluster.waiting import wait_for
from tests.conformance.checks import Check, require_contains, require_equal
from tests.conformance.stage import Stage

PATH: Final = "/openapi/v2"
DEFINITION: Final = "io.cozystack.catalog.v1alpha1.GPUClass"
PROTOBUF: Final = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)
MERGE_SECONDS: Final = 100
"""kube-aggregator asks each minute, and a minute after a failure."""


def wait_until_merged(stage: Stage) -> None:
    """Wait until the cluster's document has our definitions; it must be there all the time."""

    def is_merged() -> bool:
        answer = stage.client.request("GET", PATH)
        require_equal(answer.code, 200, PATH)
        return DEFINITION.encode() in answer.body

    wait_for(is_merged, f"{DEFINITION} in {PATH}", timeout_seconds=MERGE_SECONDS, poll_seconds=1)


def _merged(stage: Stage) -> None:
    wait_until_merged(stage)
    whole = stage.client.get(PATH)
    require_equal([name for name in whole["definitions"] if name.endswith("_v2")], [], "definitions that clash")
    for accept in PROTOBUF:
        answer = stage.client.request("GET", PATH, headers={"Accept": accept})
        require_equal(answer.code, 200, f"{PATH} as {accept}")
        require_contains(answer.body.decode(errors="replace"), DEFINITION, f"{PATH} in protobuf")


CHECKS: Final = (Check("kube-apiserver's /openapi/v2 in JSON and protobuf", _merged),)
