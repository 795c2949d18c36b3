"""Prometheus' and Grafana's own packages as judges of metrics, rules and the dashboard: `promjudge`, built once."""

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.cluster.binaries import Module, find_program

MODULE: Final = Module("promjudge", Path(__file__).parent)
JUDGING_SECONDS: Final = 60


def find_promjudge(announce: Callable[[str], None]) -> Path:
    """Find the judge, and build it if it is missing: a minute of two processors.

    Raises:
        UnavailableError: it cannot be built.
    """
    return find_program("promjudge", MODULE, ".", announce)


@dataclass(frozen=True, slots=True)
class Scrape:
    """One visit of Prometheus to one target.

    Attributes:
        time: seconds.
        target: the labels that Prometheus gives it.
        text: what it said; empty when it could not be reached.
    """

    time: float
    target: Mapping[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert that fires, with its texts filled in."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def name(self) -> str:
        """Its name."""
        return self.labels["alertname"]


@dataclass(frozen=True, slots=True)
class Expression:
    """A PromQL expression as it was parsed.

    Attributes:
        error: why it cannot be, or empty.
        metrics: the names it selects.
        by: the labels by which it aggregates.
    """

    error: str
    metrics: tuple[str, ...]
    by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Promjudge:
    """The judge.

    Attributes:
        program: its executable.
    """

    program: Path

    def lint(self, exposition: str) -> list[str]:
        """What `promtool check metrics` would object to."""
        return self._ask(exposition=exposition)["lint"] or []

    def check_rules(self, rules: str) -> list[str]:
        """What `promtool check rules` would object to in the text of a rule file."""
        return self._ask(rules=rules)["rules"] or []

    def check_dashboard(self, dashboard: object) -> list[str]:
        """What in the dashboard Grafana's model does not have."""
        return self._ask(dashboard=dashboard)["dashboard"] or []

    def parse(self, *expressions: str) -> list[Expression]:
        """Each of the expressions."""
        found = self._ask(expressions=expressions)["expressions"] or []
        return [Expression(each["error"], tuple(each["metrics"] or ()), tuple(each["by"] or ())) for each in found]

    def answer(self, scrapes: list[Scrape], expression: str, time: float) -> dict[tuple[str, ...], float]:
        """What a query yields at a time: the number by the values of the labels, which are sorted by their names.

        What is no number is left out, as a panel does.
        """
        return self.answers(scrapes, [expression], time)[0]

    def answers(self, scrapes: list[Scrape], expressions: list[str], time: float) -> list[dict[tuple[str, ...], float]]:
        """The same for several queries."""
        queries = [{"expr": each, "time": time} for each in expressions]
        results = self._ask(scrapes=_wire(scrapes), queries=queries)["results"] or []
        return [
            {_values(each["labels"]): each["value"] for each in points if each["value"] is not None}
            for points in results
        ]

    def firing(self, scrapes: list[Scrape], rules: str, times: list[float]) -> list[Alert]:
        """The alerts that fire at the last of the times at which the rules are evaluated."""
        found = self._ask(scrapes=_wire(scrapes), rules=rules, evaluate=times)["alerts"] or []
        return [Alert(each["labels"], each["annotations"]) for each in found]

    def _ask(self, **request: object) -> dict[str, Any]:
        process = subprocess.run(
            [self.program],
            input=json.dumps(request),
            capture_output=True,
            check=False,
            text=True,
            timeout=JUDGING_SECONDS,
        )
        if process.returncode:
            raise AssertionError(process.stderr)
        answer: dict[str, Any] = json.loads(process.stdout)
        return answer


def _wire(scrapes: list[Scrape]) -> list[dict[str, object]]:
    return [{"time": each.time, "target": dict(each.target), "text": each.text} for each in scrapes]


def _values(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels[name] for name in sorted(labels))
