"""What `manifests/components/monitoring` holds, and what the program exports, in a shape to be compared."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
COMPONENT: Final = ROOT / "manifests/components/monitoring"
VARIABLES: Final = {"$__rate_interval": "5m", "$class": ".*", "$resource": ".*"}
"""What Grafana fills in, as it would for All."""


@dataclass(frozen=True, slots=True)
class Panel:
    """A panel of the dashboard.

    Attributes:
        title: its title.
        kind: Grafana's name for its type.
        unit: of its numbers, in Grafana's words.
        queries: its PromQL, with the variables filled in.
        legends: how each query's series are called, in Grafana's words.
        raw: the panel as it is written.
    """

    title: str
    kind: str
    unit: str
    queries: tuple[str, ...]
    legends: tuple[str, ...]
    raw: dict[str, Any]


def rules() -> str:
    """The rules as a rule file of Prometheus, which is what the operator makes of them."""
    return yaml.safe_dump(_rule_spec())


def alerts() -> list[dict[str, Any]]:
    """Every alerting rule."""
    return [rule for group in _rule_spec()["groups"] for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    board: dict[str, Any] = json.loads((COMPONENT / "gpuclass-catalog.json").read_text())
    return board


def panels() -> list[Panel]:
    """Its panels, without the rows they stand in."""
    return [
        Panel(
            each["title"],
            each["type"],
            each["fieldConfig"]["defaults"]["unit"],
            tuple(filled(target["expr"]) for target in each["targets"]),
            tuple(target["legendFormat"] for target in each["targets"]),
            each,
        )
        for each in dashboard()["panels"]
        if each["type"] != "row"
    ]


def filled(expression: str) -> str:
    """An expression of the dashboard as Grafana sends it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def anchors() -> Iterator[str]:
    """The anchors of the runbooks: one for each heading of the second level, in lower case as it is one word."""
    for heading in re.findall(r"^## (\S+)$", (ROOT / "docs/runbooks.md").read_text(), re.MULTILINE):
        yield heading.lower()


def _rule_spec() -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load((COMPONENT / "prometheusrule.yaml").read_text())["spec"]
    return spec
