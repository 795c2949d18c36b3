"""The short form of the fuzzing, against a server of the example snapshot; tests/cluster/test_fuzz.py has the rest."""

from tests.fuzz import run
from tests.fuzz.running import ANSWER_SECONDS

SECONDS = 20


def test_snapshot_server() -> None:
    """Nothing that is sent makes the server fail, end, forget a well-formed request, or hold on to memory."""
    result = run(SECONDS, seed=1)
    assert result.faults == []
    assert result.attempts > SECONDS / ANSWER_SECONDS / 2
    assert {200, 400, 404, 405, 406} <= result.codes.keys()
