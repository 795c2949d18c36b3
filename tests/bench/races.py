"""Rows about requests: how many are answered in a second, against each other in the same rounds."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.bench.churn import churning
from tests.bench.rows import Row, alternating
from tests.bench.stage import BARE, LIST, ONE, PAGE, SAMPLE, SAMPLE_LIST, SAMPLE_ONE, Stage
from tests.cluster.catalog import API
from tests.cluster.workload import STORED

UNIT: Final = "/s"
SAMPLE_NAME: Final = "sample-apiserver"
CRD_NAME: Final = "the CRD in kube-apiserver"
BARE_NAME: Final = "bare aiohttp"


DIRECT: Final = "list of 100, direct"
THROUGH: Final = "list of 100, through kube-apiserver"
ONE_CLASS: Final = "get of one class, direct"
CATALOG: Final = "catalog page on 50 nodes, direct"
CHURN: Final = "list of 100 under 20 pods/s, direct"
ANEW: Final = "list of 100 in other words each time, direct"


def _name(what: str, other: str) -> str:
    return f"{what}, against {other}"


WORDS: Final = (
    *(_name(what, other) for what in (DIRECT, THROUGH) for other in (SAMPLE_NAME, CRD_NAME, BARE_NAME)),
    _name(ONE_CLASS, SAMPLE_NAME),
    _name(CATALOG, BARE_NAME),
    _name(CHURN, BARE_NAME),
    _name(ANEW, BARE_NAME),
)
"""The names of all rows here."""


@dataclass(frozen=True, slots=True)
class Race:
    """One of our answers and what it is compared with.

    Attributes:
        what: is asked for.
        ours: our URL.
        others: name, URL and the least ratio of each; None where it is only told.
        churn: whether GPU pods come and go meanwhile.
        anew: whether no two requests are the same bytes.
    """

    what: str
    ours: str
    others: tuple[tuple[str, str, float | None], ...]
    churn: bool = False
    anew: bool = False

    def names(self) -> list[str]:
        """What its rows are called."""
        return [_name(self.what, name) for name, _, _ in self.others]


def races(stage: Stage) -> list[Race]:
    """What is measured, with the goals."""
    through = stage.through
    bare_list = (BARE_NAME, stage.bare(LIST), 0.8)
    return [
        Race(
            DIRECT,
            stage.ours(LIST),
            ((SAMPLE_NAME, stage.sample(SAMPLE_LIST), 10), (CRD_NAME, through(STORED), 15), bare_list),
        ),
        Race(
            THROUGH,
            through(f"{API}/{LIST}"),
            (
                (SAMPLE_NAME, through(f"{SAMPLE}/{SAMPLE_LIST}"), 3.5),
                (CRD_NAME, through(STORED), 4),
                (BARE_NAME, through(f"{BARE}/{LIST}"), 0.85),
            ),
        ),
        Race(ONE_CLASS, stage.ours(ONE), ((SAMPLE_NAME, stage.sample(SAMPLE_ONE), 4),)),
        Race(CATALOG, stage.ours(PAGE), ((BARE_NAME, stage.bare(PAGE), 0.5),)),
        Race(CHURN, stage.ours(LIST), (bare_list,), churn=True),
        Race(ANEW, stage.ours(LIST), ((BARE_NAME, stage.bare(LIST), None),), anew=True),
    ]


def measure(stage: Stage, seconds: float, wanted: str) -> Iterator[Row]:
    """Run the races whose rows are wanted.

    Args:
        stage: the servers.
        seconds: for which each is loaded in each round.
        wanted: text in the names of the rows.
    """
    for race in races(stage):
        if not any(wanted in name for name in race.names()):
            continue
        urls = [race.ours, *(url for _, url, _ in race.others)]
        with _churn(stage, wanted=race.churn):
            ours, *others = alternating(
                [partial(stage.load.rate, url, seconds=seconds, anew=race.anew) for url in urls]
            )
        for name, rate, (_, _, goal) in zip(race.names(), others, race.others, strict=True):
            yield Row(name, ours, rate, goal, at_least=True, unit=UNIT)


@contextmanager
def _churn(stage: Stage, *, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    with churning(stage):
        yield
