"""Whom the page does not trust: the API's texts, and whoever would add to it."""

import asyncio
import json
from pathlib import Path

import pytest

from apiserver.gpu.nodes import Node
from apiserver.gpu.tolerations import Taint
from tests.page.chromium import Tab
from tests.page.reading import CARDS, L40S, STATE
from tests.page.stage import Stage

SOURCES = Path(__file__).parents[2] / "apiserver" / "ui"
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>"


async def test_hostile_text(tab: Tab, stage: Stage) -> None:
    """Whatever the API holds is text: names, terms, messages, labels and addresses."""
    names = [MARKUP, "../../metrics", "javascript:alert(1)", "__proto__", "ui\u202etxt", "x" * 300]
    for name in names:
        stage.add_class(name, model=MARKUP, profile=MARKUP, source={"devicePlugin": {"resourceName": f"{MARKUP}/x"}})
    stage.view.apply_node(Node(MARKUP, capacity={L40S: 1}, taints=(Taint(MARKUP, MARKUP, "NoSchedule"),)))
    await tab.show_as(width=360)
    await tab.open(f"{stage.page}#%E0%A4%A")
    await tab.wait(f"{CARDS}.length === 1 + {len(names)}")
    await tab.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    states = "[...document.querySelectorAll('.detail > p[role=status]')]"
    await tab.wait(f"{states}.every((each) => each.hidden || each.textContent !== 'Asking…')")
    await asyncio.sleep(0.5)
    shown = await tab.run(f"{CARDS}.map((card) => card.querySelector('h2').textContent)")
    assert sorted(shown) == sorted([*names, "l40s"])
    assert MARKUP in await tab.run("[...document.querySelectorAll('.terms')].map((each) => each.textContent).join()")
    assert await tab.run("document.images.length + document.querySelectorAll('main script').length") == 0
    assert all(url.startswith((stage.page.removesuffix("ui/"), "data:", "about:")) for url in tab.requests)
    assert not [url for url in tab.requests if url.endswith("/metrics")]
    assert [each for each in tab.complaints if each[0] != "network"] == []
    assert await tab.run("document.documentElement.scrollWidth") == 360


async def test_policy_holds(tab: Tab, stage: Stage) -> None:
    """What would run or load foreign code is refused by the browser, whoever tries."""
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    refused = "(() => {{ try {{ {} }} catch (error) {{ return error.name }} return 'done' }})()"
    assert await tab.run(refused.format("document.body.innerHTML = '<b>x</b>'")) == "TypeError"
    assert await tab.run(refused.format("Function('1')()")) in ("EvalError", "TypeError")
    await tab.run(
        "document.body.append(Object.assign(document.createElement('img'), {src: 'https://evil.example/x.png'}))"
    )
    await tab.run("fetch('https://evil.example/').catch(() => 0)")
    await tab.run("document.head.append(Object.assign(document.createElement('style'), {textContent: 'b {}'}))")
    for _ in range(100):
        if len([each for each in tab.complaints if each[0] == "policy"]) > 4:
            break
        await asyncio.sleep(0.05)
    told = [json.loads(text) for source, text in tab.complaints if source == "policy"]
    kinds = {each["contentSecurityPolicyIssueDetails"]["violatedDirective"] for each in told}
    assert kinds == {"img-src", "connect-src", "require-trusted-types-for", "style-src-elem"}


@pytest.mark.parametrize(
    "word", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("]
)
def test_no_markup_from_text(word: str) -> None:
    """No script of the page makes markup or code from text."""
    scripts = list(SOURCES.glob("*.js"))
    assert len(scripts) > 3
    assert [file.name for file in scripts if word in file.read_text()] == []
