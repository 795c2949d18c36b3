"""The dashboard as a picture in docs/: its own panels and queries, answered by Prometheus' engine about a real cluster.

Grafana itself cannot be had as a package, so the panels are drawn here, in their places, and the picture says so.
"""

import asyncio
import html
import random
import re
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.cluster.__main__ import add_examples
from tests.cluster.binaries import find_binaries
from tests.cluster.catalog import API, CatalogServer
from tests.cluster.client import Client
from tests.cluster.control_plane import ControlPlane
from tests.cluster.workload import create_pod, pod
from tests.monitoring import shipped
from tests.monitoring.judging import Promjudge, Scrape, find_promjudge
from tests.monitoring.shipped import Panel
from tests.page.chromium import find_chromium, opened, started

PICTURE: Final = shipped.ROOT / "docs" / "dashboard.png"
WIDTH: Final = 1280
STEPS: Final = 40
SEED: Final = 4
RATE_INTERVAL: Final = "15s"
"""As Grafana would choose it for scrapes a second apart."""

DEVICE: Final = "nvidia.com/NVIDIA_L40S-24C"
NODES: Final = ("gpu-03", "gpu-04")
COLOURS: Final = ("#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0")
Points = list[dict[tuple[str, ...], float]]
"""The answers to one query at each time, by the values of the labels."""

CAPTION: Final = (
    "Drawn from the dashboard's own panels and queries, answered by Prometheus' engine about the example cluster and "
    "two replicas over 40 seconds. Grafana draws them in its own style."
)
STYLE: Final = """
body { margin: 0; padding: 12px; width: 1256px; background: #111217; color: #ccccdc; font: 12px/1.4 sans-serif; }
main { display: grid; grid-template-columns: repeat(24, 1fr); grid-auto-rows: 26px; gap: 4px; }
section { background: #181b1f; border: 1px solid #25282e; border-radius: 3px; padding: 6px 10px; overflow: hidden;
          display: flex; flex-direction: column; }
h1 { font-size: 18px; margin: 0 0 8px; } h2 { font-size: 12px; margin: 0; font-weight: 600; }
h3 { font-size: 14px; margin: 4px 0 0; }
.stat { font-size: 34px; margin: auto; color: #7eb26d; } p { color: #9a9aab; margin: 8px 0 0; }
svg { flex: 1; width: 100%; min-height: 0; } td, th { text-align: right; padding: 2px 8px; font-weight: normal; }
th { color: #9a9aab; } td:first-child, th:first-child { text-align: left; } table { border-collapse: collapse; }
.legend span { margin-right: 12px; white-space: nowrap; } i { display: inline-block; width: 10px; height: 3px;
margin-right: 4px; vertical-align: middle; } .bar { height: 16px; background: #7eb26d; border-radius: 2px; }
"""


def observe(control_plane: ControlPlane, replicas: Sequence[CatalogServer]) -> list[Scrape]:
    """What both replicas say, second by second, while pods come and go and somebody reads."""
    chance, scrapes, held = random.Random(SEED), list[Scrape](), list[str]()  # noqa: S311 # pods, not secrets
    api = control_plane.client
    with ExitStack() as stack:
        clients = [stack.enter_context(each.client()) for each in replicas]
        watching = threading.Thread(target=_watch, args=(replicas[0],))
        watching.start()
        stack.callback(watching.join)
        for step in range(STEPS):
            if held and chance.random() < 0.4:
                api.delete(f"/api/v1/namespaces/default/pods/{held.pop(0)}")
            else:
                held.append(f"order-{step}")
                create_pod(api, pod(held[-1], node=chance.choice((*NODES, "")), requests={DEVICE: 1}))
            for number, client in enumerate(clients, 1):
                _read(client, chance.randrange(2, 9))
                text = client.request("GET", "/metrics").body.decode()
                target = {"job": "gpuclass-catalog", "instance": f"10.0.0.{number}:6443"}
                scrapes.append(Scrape(float(step), target, text))
            time.sleep(1)
    return scrapes


def draw(scrapes: list[Scrape], judge: Promjudge) -> str:
    """The page, every panel in its place."""
    panels = shipped.panels()
    queries = [query.replace("5m", RATE_INTERVAL) for panel in panels for query in panel.queries]
    answers = [judge.answers(scrapes, queries, float(step)) for step in range(2, STEPS)]
    points = iter(zip(*answers, strict=True))
    drawn = [_panel(panel, [list(next(points)) for _ in panel.queries]) for panel in panels]
    heads = (each for each in shipped.dashboard()["panels"] if each["type"] == "row")
    rows = [_placed(each, f"<h3>{each['title']}</h3>", "div") for each in heads]
    title = html.escape(shipped.dashboard()["title"])
    return (
        f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
        f"<main>{''.join([*drawn, *rows])}</main><p>{CAPTION}</p>"
    )


def _panel(panel: Panel, answered: list[Points]) -> str:
    kind = {"stat": _stat, "table": _table, "bargauge": _bars, "timeseries": _lines}[panel.kind]
    return _placed(panel.raw, f"<h2>{html.escape(panel.title)}</h2>{kind(panel, answered)}", "section")


def _placed(raw: dict[str, object], inside: str, tag: str) -> str:
    place = raw["gridPos"]
    assert isinstance(place, dict)
    where = f"grid-area: {place['y'] + 1} / {place['x'] + 1} / span {place['h']} / span {place['w']}"
    return f'<{tag} style="{where}">{inside}</{tag}>'


def _stat(panel: Panel, answered: list[Points]) -> str:
    return f'<div class="stat">{_number(next(iter(answered[0][-1].values())), panel.unit)}</div>'


def _table(panel: Panel, answered: list[Points]) -> str:
    names = [re.search(r"gpuclass_(?:devices_)?(\w+)", query) for query in panel.queries]
    head = "".join(f"<th>{name[1].replace('_', ' ')}" for name in names if name)
    reasons, *numbers = (each[-1] for each in answered)
    rows = "".join(
        f"<tr><td>{name}<td>{reason}" + "".join(f"<td>{_number(each.get((name,), 0), panel.unit)}" for each in numbers)
        for name, reason in sorted(reasons)
    )
    return f"<table><tr><th>class{head}</tr>{rows}</table>"


def _bars(panel: Panel, answered: list[Points]) -> str:
    now = answered[0][-1]
    most = max([*now.values(), 1])
    return "".join(
        f"<div>{html.escape(name)}: {_number(value, panel.unit)}"
        f'<div class="bar" style="width:{value / most:.0%}"></div></div>'
        for (name,), value in sorted(now.items())
    )


def _lines(panel: Panel, answered: list[Points]) -> str:
    series: dict[str, list[float | None]] = {}
    for legend, points in zip(panel.legends, answered, strict=True):
        names = sorted(re.findall(r"{{(\w+)}}", legend))
        for values in sorted({values for each in points for values in each}):
            name = legend
            for label, value in zip(names, values, strict=True):
                name = name.replace(f"{{{{{label}}}}}", value)
            series[name] = [each.get(values) for each in points]
    numbers = [value for line in series.values() for value in line if value is not None]
    top = max([*numbers, 0]) * 1.1 or 1
    lines = "".join(
        f'<polyline fill="none" stroke="{COLOURS[index % len(COLOURS)]}" stroke-width="1.5" '
        f'vector-effect="non-scaling-stroke" points="{_path(line, top)}"/>'
        for index, line in enumerate(series.values())
    )
    legend = "".join(
        f'<span><i style="background:{COLOURS[index % len(COLOURS)]}"></i>{html.escape(name)}</span>'
        for index, name in enumerate(series)
    )
    grid = "".join(
        f'<line x1="0" x2="100" y1="{y}" y2="{y}" stroke="#2c3035" stroke-width=".2"/>' for y in (1, 33, 66, 99)
    )
    svg = f'<svg viewBox="0 0 100 100" preserveAspectRatio="none">{grid}{lines}</svg>'
    return f'<div style="color:#9a9aab">0 to {_number(top, panel.unit)}</div>{svg}<div class="legend">{legend}</div>'


def _path(line: list[float | None], top: float) -> str:
    width = 100 / max(len(line) - 1, 1)
    return " ".join(
        f"{index * width:.2f},{100 - 98 * value / top:.2f}" for index, value in enumerate(line) if value is not None
    )


def _number(value: float, unit: str) -> str:
    if unit == "bytes":
        return f"{value / 2**20:.0f} MiB"
    if unit == "s":
        return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.1f} s"
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return f"{text}/s" if unit in ("ops", "reqps") else text


def _read(client: Client, times: int) -> None:
    for _ in range(times):
        client.request("GET", f"{API}/gpuclasses")
        client.request("GET", f"{API}/gpuclasses/l40s-24c")


def _watch(server: CatalogServer) -> None:
    with server.client() as client:
        client.request("GET", f"{API}/gpuclasses?watch=1&timeoutSeconds={STEPS}")


async def _photograph(page: Path) -> bytes:
    with started(find_chromium()) as devtools:
        async with opened(devtools) as tab:
            await tab.show_as(width=WIDTH)
            await tab.open(page.as_uri())
            return await tab.picture()


def main() -> None:
    """Draw it."""
    with tempfile.TemporaryDirectory(prefix="gpuclass-pictures-") as directory, ExitStack() as stack:
        control_plane = stack.enter_context(ControlPlane(find_binaries(print), Path(directory) / "cluster"))
        first, second = stack.enter_context(CatalogServer(control_plane)), CatalogServer(control_plane)
        stack.callback(second.stop)
        second.start(until="/readyz")
        add_examples(control_plane.client)
        page = Path(directory) / "dashboard.html"
        page.write_text(draw(observe(control_plane, (first, second)), Promjudge(find_promjudge(print))))
        PICTURE.write_bytes(asyncio.run(_photograph(page)))
    print(f"{PICTURE.relative_to(shipped.ROOT)}: {PICTURE.stat().st_size / 1000:.0f} kB")  # noqa: T201 # that it is done


if __name__ == "__main__":
    main()
