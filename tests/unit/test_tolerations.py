"""Tolerations: what matches, and which one decides."""

import pytest

from apiserver.gpu.tolerations import (
    NO_EXECUTE,
    NO_SCHEDULE,
    PREFER_NO_SCHEDULE,
    Taint,
    Toleration,
    temporarily_tolerated,
    untolerated,
)

MAINTENANCE = Taint("maint", "", NO_EXECUTE)
GPU = Taint("nvidia.com/gpu", "present", NO_SCHEDULE)
FOR_A_WHILE = Toleration(operator="Exists", effect=NO_EXECUTE, toleration_seconds=300)
FOR_EVER = Toleration("maint", "Exists", effect=NO_EXECUTE)


@pytest.mark.parametrize(
    ("toleration", "matches"),
    [
        pytest.param(Toleration("nvidia.com/gpu", "Exists"), True, id="Exists takes any value"),
        pytest.param(Toleration("nvidia.com/gpu", "Equal", "present"), True, id="Equal with the value"),
        pytest.param(Toleration("nvidia.com/gpu", "", "present"), True, id="no operator is Equal"),
        pytest.param(Toleration("nvidia.com/gpu", "Equal"), False, id="Equal without the value"),
        pytest.param(Toleration("nvidia.com/gpu", "Exists", effect=NO_EXECUTE), False, id="another effect"),
        pytest.param(Toleration("nvidia.com/GPU", "Exists"), False, id="another case"),
        pytest.param(Toleration(operator="Exists"), True, id="everything"),
        pytest.param(Toleration("", "Equal", "present"), True, id="an empty key with Equal, as the matcher has it"),
        pytest.param(Toleration("nvidia.com/gpu", "Gt", "1"), False, id="Gt matches nothing"),
        pytest.param(Toleration("nvidia.com/gpu", "Lt", "1"), False, id="Lt matches nothing"),
        pytest.param(Toleration("nvidia.com/gpu", "exists"), False, id="an unknown operator"),
    ],
)
def test_tolerates(toleration: Toleration, matches: bool) -> None:
    """A toleration matches as Kubernetes' own does."""
    assert toleration.tolerates(GPU) is matches


def test_prefer_no_schedule_never_blocks() -> None:
    """PreferNoSchedule excludes nobody, other effects exclude who tolerates nothing."""
    taints = [Taint("soft", "", PREFER_NO_SCHEDULE), GPU, MAINTENANCE]
    assert untolerated(taints, []) == [GPU, MAINTENANCE]


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        pytest.param([FOR_A_WHILE, FOR_EVER], [300], id="the first match ends, a later endless one does not help"),
        pytest.param([FOR_EVER, FOR_A_WHILE], [], id="the first match is endless"),
        pytest.param([], [], id="not tolerated at all is another reason"),
    ],
)
def test_first_match_decides(tolerations: list[Toleration], seconds: list[int]) -> None:
    """For NoExecute the first toleration in list order decides whether it ends."""
    assert [each for _, each in temporarily_tolerated([MAINTENANCE], tolerations)] == seconds
