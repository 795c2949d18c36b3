"""The model against the real kube-scheduler on random clusters, and deliberate faults of the model against both."""

from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.cleaning import left_as_found
from tests.cluster.control_plane import ControlPlane
from tests.cluster.oracle.drafting import PHASE, draft, draft_fit
from tests.cluster.oracle.fit_mutants import FIT_MUTANTS
from tests.cluster.oracle.judging import Observation, Verdict, judge
from tests.cluster.oracle.mutants import MUTANTS
from tests.cluster.oracle.observing import Crew, observe
from tests.cluster.oracle.reporting import KNOWN, describe, never_occurred, save

pytestmark = pytest.mark.timeout(600)

CLUSTERS = 25
SEED = 8
"""One with which so few clusters expose every mutant."""


FIT_SEED = 5
"""The same for clusters where cpu, memory and slots are scarce too."""


@pytest.fixture(scope="session")
def observations(control_plane: ControlPlane) -> list[Observation]:
    """What the scheduler did on 25 random clusters, each filled with probes of one device and of a few."""
    drafts = [each for index in range(CLUSTERS) for each in draft(SEED, index)]
    with left_as_found(control_plane.client), Crew(control_plane) as crew:
        return observe(crew, control_plane.client, drafts)


@pytest.fixture(scope="session")
def fit_observations(control_plane: ControlPlane) -> list[Observation]:
    """What the scheduler did on 25 random clusters, each filled with probes that ask for cpu and memory too."""
    drafts = [draft_fit(FIT_SEED, index) for index in range(CLUSTERS)]
    with left_as_found(control_plane.client), Crew(control_plane) as crew:
        return observe(crew, control_plane.client, drafts)


def test_fit_agrees_with_the_scheduler(fit_observations: list[Observation]) -> None:
    """On every node, and in all, as many pods of a shape are placed as `gpuclasses/fit` says."""
    assert [describe(each) for each in _judge_all(fit_observations).disagreements] == []
    assert sum(sum(each.placed.values()) for each in fit_observations) > CLUSTERS


@pytest.mark.parametrize("mutant", [pytest.param(name, id=name) for name in FIT_MUTANTS])
def test_fault_of_the_fit_is_noticed(
    fit_observations: list[Observation], monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    """A fit with one deliberate fault disagrees with the same scheduler."""
    FIT_MUTANTS[mutant](monkeypatch)
    assert _judge_all(fit_observations).disagreements


def test_model_agrees_with_the_scheduler(observations: list[Observation]) -> None:
    """On every node, and for the class as a whole, what the model calls free is what the scheduler places."""
    assert [describe(each) for each in _judge_all(observations).disagreements] == []


@pytest.mark.parametrize("mutant", [pytest.param(name, id=name) for name in MUTANTS])
def test_fault_of_the_model_is_noticed(
    observations: list[Observation], monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    """A model with one deliberate fault disagrees with the same scheduler."""
    MUTANTS[mutant](monkeypatch)
    assert _judge_all(observations).disagreements


def test_clusters_can_be_drawn_again() -> None:
    """A seed and a number give the same cluster, whatever was drawn before."""
    first = draft(SEED, 3)
    draft(SEED, 4)
    assert draft(SEED, 3) == first
    assert draft(SEED + 1, 3) != first


def test_probes_without_end_are_a_disagreement(observations: list[Observation]) -> None:
    """Where the scheduler refuses no probe, nobody knows how many more it would place."""
    endless = Observation("endless", 1, {}, observations[0].snapshot, observations[0].placed, refused=0)
    assert any("no probe was refused" in each.where for each in judge(endless).disagreements)


def test_disagreement_is_saved_as_a_snapshot(observations: list[Observation], tmp_path: Path) -> None:
    """What is saved can be asked again, and gives the same verdict."""
    wrong = Observation("wrong", 1, observations[0].selector, observations[0].snapshot, {"elsewhere": 1}, refused=1)
    before = judge(wrong)
    saved = save(tmp_path, SEED, wrong, before.disagreements)
    again = Observation("wrong", 1, wrong.selector, saved.read_text(), wrong.placed, refused=1)
    assert judge(again) == before
    assert saved.with_suffix(".placed.json").exists()


def test_what_never_occurred_is_named() -> None:
    """Of everything that can be drawn or said, whatever did not occur is listed; the rest is not."""
    everything = Counter({(group, name): 1 for group, names in KNOWN.items() for name in names})
    assert never_occurred(everything) == []
    del everything[PHASE, "Unknown"]
    assert never_occurred(everything) == [f"{PHASE}: Unknown"]


def _judge_all(observations: list[Observation]) -> Verdict:
    verdict = Verdict()
    for observation in observations:
        verdict.add(judge(observation))
    return verdict
