"""What the page says when it may not show a figure as live."""

import asyncio
from pathlib import Path

from tests.http.running import running, write_snapshot
from tests.page.chromium import Tab
from tests.page.reading import BANNER, CARD, CARDS, HEADLINE, L40S, OPEN, ROWS, STATE, seconds_until
from tests.page.stage import Stage


async def test_empty(tab: Tab, stage: Stage) -> None:
    """Without any class it says what to do, and the first that comes takes the place of that."""
    stage.view.delete_class("l40s")
    await tab.open(stage.page)
    await tab.wait("document.body.innerText.includes('There are no GPU classes')")
    assert "kubectl apply -k manifests/crd" in await tab.text()
    stage.add_class("first")
    await tab.wait(f"{CARDS}.length === 1")
    assert "There are no" not in await tab.text()


async def test_stale(tab: Tab, stage: Stage) -> None:
    """When the server may not tell any more, the page says why and since when, without colour, until it may."""
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    colour = f"getComputedStyle({CARD}.querySelector('.left')).color"
    live = await tab.run(colour)
    stage.unsynced = "Nodes were last heard of 200 s ago"
    await tab.wait(f"{STATE} === 'old'", seconds=10)
    assert (await tab.run(BANNER)).startswith("Nodes were last heard of 200 s ago. What is shown is as of ")
    assert "Not live" in await tab.text()
    assert await tab.run(colour) != live
    stage.add_pod("vm-2", "n1", L40S, 1)
    stage.unsynced = None
    await tab.wait(f"{STATE} === 'live' && {HEADLINE}.startsWith('2 of 4')", seconds=10)
    assert await tab.run("document.querySelector('[role=alert]').hidden")
    assert await tab.run(colour) == live


async def test_not_yet(tab: Tab, stage: Stage) -> None:
    """Before the first list there are no figures, and no claim that there are no classes."""
    stage.unsynced = "Pods are not listed yet"
    await tab.open(stage.page)
    await tab.wait(f"{BANNER} === 'Pods are not listed yet. Trying again.'")
    assert await tab.run(f"{CARDS}.length") == 0
    assert "There are no" not in await tab.text()
    stage.unsynced = None
    await tab.wait(f"{CARDS}.length === 1")


async def test_server_gone_and_back(tab: Tab, stage: Stage) -> None:
    """It is said at once that nobody answers, of nodes too; what changed meanwhile is shown soon after the return."""
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    await tab.run(f"Nodes.AGAIN_MS = 500; {OPEN}")
    await tab.wait(f"{ROWS}.length === 1")
    await stage.stop()
    assert await seconds_until(tab, f"{STATE} === 'old'") < 2
    assert "The server does not answer. What is shown is as of" in await tab.run(BANNER)
    await tab.wait(f"{CARD}.querySelector('.detail').innerText.includes('Not live, as of')", seconds=10)
    stage.view.delete_class("l40s")
    stage.add_class("new")
    await stage.start()
    assert await seconds_until(tab, f"{STATE} === 'live'") < 7
    assert await tab.run(f"{CARDS}.map((card) => card.querySelector('h2').innerText)") == ["new"]


async def test_frozen_server(tab: Tab, stage: Stage) -> None:
    """A server that keeps its connections and answers nothing is noticed, and so is that it goes on."""
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    stage.going.clear()
    assert await seconds_until(tab, f"{STATE} === 'old'") < 9
    stage.going.set()
    await tab.wait(f"{STATE} === 'live'", seconds=15)


async def test_version_too_old(tab: Tab, stage: Stage) -> None:
    """Where the watch cannot be taken up (410) the page lists anew, and never says that anything was lost."""
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    await tab.run(
        f"new MutationObserver(() => (window.states ??= []).push({STATE})).observe(document.body, {{attributes: true}})"
    )
    stage.asked.clear()
    stage.now += 3600
    stage.replace()
    stage.add_pod("vm-2", "n1", L40S, 1)
    for _ in range(1000):
        if len([target for target in stage.asked if "watch=1" in target]) > 1:
            break
        await asyncio.sleep(0.02)
    await tab.wait(f"{HEADLINE}.startsWith('2 of 4')")
    asked = ["watch" if "watch=1" in target else "list" for target in stage.asked if "limit=1" not in target]
    assert asked == ["watch", "list", "watch"], "the first of them is told 410"
    assert await tab.run("window.states ?? []") == []


async def test_hidden(tab: Tab, stage: Stage) -> None:
    """While nobody looks nothing is asked; who looks again sees no old figure as live, and soon a new one."""
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    await tab.run(OPEN)
    await tab.wait(f"{ROWS}.length === 1")
    await tab.run("Nodes.AGAIN_MS = 500")
    await tab.hide()
    await tab.wait("document.hidden && !follower.live")
    await asyncio.sleep(0.5)
    asked = len(stage.asked)
    stage.add_pod("vm-2", "n1", L40S, 1)
    await asyncio.sleep(1.5)
    assert stage.asked[asked:] == []
    await tab.show()
    await tab.wait(f"{STATE} === 'live' && {HEADLINE}.startsWith('2 of 4')")
    await tab.wait(f"{ROWS}[0] === 'n1 2 2 4 4'", seconds=3)
    assert await tab.run(f"{BANNER}") == ""


async def test_broken_file(tab: Tab, tmp_path: Path) -> None:
    """A file that cannot be read any more is told of, beside what was read before."""
    file = write_snapshot(tmp_path / "cluster.json")
    text = file.read_text()
    async with running("--snapshot", file, "--insecure-port", "0") as server:
        await tab.open(f"{server.url}/ui/")
        await tab.wait(f"{CARDS}.length === 1")
        file.write_text("{")
        await tab.wait(f"{BANNER}.includes('cluster.json') && {BANNER}.endsWith('What is shown was read before.')")
        assert await tab.run(f"{CARDS}.length") == 1
        file.write_text(text.replace('"one"', '"two"'))
        await tab.wait(f"document.querySelector('[role=alert]').hidden && {CARD}.innerText.startsWith('two')")
