"""The table of `docs/metrics.md`, made from what the program exports: `python -m tests.monitoring.reference`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import Metric

from apiserver.catalog.install import install
from apiserver.cluster.view import View
from apiserver.collectors import collectors
from apiserver.delegation import Reviews
from apiserver.measured import Access, Measured
from apiserver.serving.authentication import Authenticator
from apiserver.serving.authorization import Authorizer
from apiserver.serving.limits import Inflight
from apiserver.serving.versions import VersionSource
from tests.monitoring.shipped import ROOT

PAGE: Final = ROOT / "docs/metrics.md"
BEGIN, END = "<!-- begin: metrics -->\n", "<!-- end: metrics -->"
WITHOUT_TOTAL: Final = "authentication_attempts"
SUFFIXES: Final = {"histogram": ("_bucket", "_sum", "_count")}


def names() -> list[str]:
    """Every metric's name as Prometheus has it."""
    return [_name(each) for each in _families()]


def samples() -> set[str]:
    """What can be asked for: of a histogram its parts."""
    return {_name(each) + suffix for each in _families() for suffix in SUFFIXES.get(each.type, ("",))}


def table() -> str:
    """One row for each metric: its name, type, labels and meaning."""
    rows = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
    for each in _families():
        labels = ", ".join(f"`{name}`" for name in getattr(each, "_labelnames", ()))
        rows.append(f"| `{_name(each)}` | {each.type} | {labels} | {each.documentation} |")
    return "\n".join(rows) + "\n"


def is_current() -> bool:
    """Whether the page has the table as it is now."""
    return BEGIN + table() + END in PAGE.read_text()


def write(page: Path) -> None:
    """Put the table where the page has it."""
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(before + BEGIN + table() + END + rest.partition(END)[2])


def _families() -> Iterator[Metric]:
    async def nobody(_: object) -> None:
        return None

    async def never(_: object) -> dict[str, object]:
        return {}

    view = View()
    served = install(view, VersionSource(lambda: 0.0), lambda: None)
    access = Access(Authenticator(token_reviewer=nobody), Authorizer(never), Reviews())
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    for each in collectors(Measured(served, Inflight(), view, access=access)):
        registry.register(each)
    yield from sorted(registry.collect(), key=_name)


def _name(family: Metric) -> str:
    is_plain = family.type != "counter" or family.name == WITHOUT_TOTAL
    return family.name if is_plain else f"{family.name}_total"


if __name__ == "__main__":
    write(PAGE)
