"""The page over a server that changes: what it shows."""

import asyncio
import json

from apiserver.gpu.nodes import Node
from apiserver.gpu.tolerations import Taint
from tests.http.running import running
from tests.page.chromium import Tab
from tests.page.pictures import EXAMPLE
from tests.page.reading import CARD, CARDS, FOCUSED, HEADLINE, L40S, OPEN, ROWS, STATE, legend, seconds_until
from tests.page.stage import Stage


async def test_example(tab: Tab) -> None:
    """The example shows the figures that its header works out by hand, node by node, and calls itself a file."""
    async with running("--snapshot", EXAMPLE, "--insecure-port", "0") as server:
        await tab.open(f"{server.url}/ui/#l40s-24c")
        await tab.wait(f"{CARDS}.length === 3 && document.querySelectorAll('tbody tr').length === 4")
        shown = await tab.run(f"{CARDS}.map((card) => {legend('card')})")
        assert shown == [
            [["Requested", "7"], ["Free", "9"], ["Unavailable", "0"]],
            [["Requested", "7"], ["Free", "5"], ["Unavailable", "12"]],
            [["Requested", "7"], ["Free", "1"], ["Unavailable", "1"], ["Overcommitted", "1"]],
        ]
        shares = await tab.run(
            f"{CARDS}.map((card) => [...card.querySelector('.bar').children].map((part) => +part.style.flexGrow))"
        )
        assert shares == [[7, 9, 0], [7, 5, 12], [6, 1, 1]]
        rows = await tab.run("[...document.querySelectorAll('tbody tr')].map((row) => row.innerText)")
        assert "gpu-05 left out" in rows[2]
        assert "Cordoned The node is cordoned" in rows[2]
        assert "gpu.example.org/reserved=workstations:NoSchedule" in rows[3]
        assert "from snapshot.yaml" in await tab.text()
        assert (await tab.run(STATE), await tab.run("document.querySelector('.state').innerText")) == (
            "file",
            "From a file",
        )
        assert await tab.run("document.activeElement.innerText") == "l40s-24c", "who followed a link is taken there"
        await asyncio.sleep(0.5)
        assert tab.complaints == []
        assert [url for url in tab.requests if not url.startswith((server.url, "data:", "about:"))] == []


async def test_a_class_that_is_not_offered(tab: Tab, stage: Stage) -> None:
    """The reason and its message stand there, in words, and nothing counts as free to order."""
    stage.add_class("rival", source={"devicePlugin": {"resourceName": L40S}})
    await tab.open(f"{stage.page}#rival")
    await tab.wait(f"{CARDS}.length === 2")
    rival = f"{CARDS}[1]"
    assert await tab.run(f"{rival}.querySelector('.headline').innerText.trim()") == "Not offered"
    verdict = await tab.run(f"{rival}.querySelector('.verdict').innerText")
    assert verdict == f"ResourceNameConflict: {L40S} is owned by l40s."


async def test_live(tab: Tab, stage: Stage) -> None:
    """A change is on the page within a second, nodes too, and neither focus, typing nor scrolling is lost to it."""
    for index in range(30):
        stage.add_class(f"other-{index:02}")
    await tab.show_as(width=1280)
    await tab.open(stage.page)
    await tab.wait(f"{HEADLINE} === '3 of 4 free up to 2 in one instance'")
    await tab.run(OPEN)
    await tab.wait(f"{ROWS}.length === 1")
    await tab.run("document.querySelectorAll('summary')[9].focus(); scrollTo(0, 900)")
    before = await tab.run(f"[scrollY, {FOCUSED}]")
    assert before[0] == 900
    stage.add_pod("vm-2", "n1", L40S, 2)
    assert await seconds_until(tab, f"{HEADLINE} === '1 of 4 free up to 1 in one instance'") < 1
    assert await seconds_until(tab, f"{ROWS}[0] === 'n1 1 3 4 4'") < 1.5
    await tab.wait("document.querySelector('[aria-live]').innerText === 'l40s: 1 free'")
    stage.view.delete_pod(("ns", "vm-2"))
    await tab.wait(f"{HEADLINE}.startsWith('3 of 4')")
    assert await tab.run(f"[scrollY, {FOCUSED}]") == before
    assert await tab.run(f"{CARD}.querySelector('details').open")
    assert tab.complaints == []


async def test_classes_come_and_go(tab: Tab, stage: Stage) -> None:
    """A new class takes the place of its name; one that goes leaves, and leaves the focus on the page."""
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    for name in ("zulu", "alpha", "mike"):
        stage.add_class(name)
        await tab.wait(f"document.body.innerText.includes({json.dumps(name)})")
    names = f"{CARDS}.map((card) => card.querySelector('h2').innerText)"
    assert await tab.run(names) == ["alpha", "l40s", "mike", "zulu"]
    await tab.run("document.querySelector('h2 a').focus()")
    stage.view.delete_class("alpha")
    await tab.wait(f"{CARDS}.length === 3")
    assert await tab.run("document.activeElement.tagName") == "MAIN"
    assert await tab.run(names) == ["l40s", "mike", "zulu"]


async def test_nodes_are_asked_for_while_open(tab: Tab, stage: Stage) -> None:
    """Again and again, since a node may change where no figure of the class does; and not any more once closed."""
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    assert await tab.run("Nodes.AGAIN_MS") == 5000
    await tab.run(f"Nodes.AGAIN_MS = 500; {OPEN}")
    await tab.wait(f"{ROWS}.length === 1")
    stage.view.apply_node(Node("n2", capacity={L40S: 2}, taints=(Taint("a.b/c", "", "NoSchedule"),)))
    await tab.wait(f"{ROWS}.length === 2")
    stage.view.apply_node(Node("n2", capacity={L40S: 2}, unschedulable=True))
    await tab.wait(f"{ROWS}[1].includes('n2 left out') && {ROWS}[1].includes('Cordoned')")
    await tab.run(f"{CARD}.querySelector('details').open = false")
    await asyncio.sleep(0.3)
    asked = len(stage.asked)
    await asyncio.sleep(1.2)
    assert not [target for target in stage.asked[asked:] if target.endswith("/catalog")]


async def test_filter(tab: Tab, stage: Stage) -> None:
    """Every word must occur; what is hidden is counted, and a way back is offered."""
    stage.add_class("a100", model="A100", mode="vgpu", profile="A100-4C")
    await tab.open(stage.page)
    await tab.wait(f"{CARDS}.length === 2")
    search = (
        "document.querySelector('input').value = {}; document.querySelector('input').dispatchEvent(new Event('input'))"
    )
    await tab.run(search.format("'VGPU nvidia'"))
    assert await tab.run(f"{CARDS}.map((card) => card.querySelector('h2').innerText)") == ["a100"]
    assert await tab.run("document.querySelector('.count').innerText") == "1 of 2 classes"
    await tab.run(search.format("'none such'"))
    assert "No class matches" in await tab.text()
    await tab.run("document.querySelector('.empty button').click()")
    assert await tab.run(f"{CARDS}.length") == 2
    assert await tab.run("document.activeElement.type") == "search"
