"""Who uses the page without a mouse, without eyes, or on a telephone."""

import asyncio
from pathlib import Path

import pytest

from tests.page.chromium import Tab
from tests.page.reading import CARD, FOCUSED, HEADLINE, L40S, OPEN, ROWS, STATE
from tests.page.stage import Stage


async def test_keyboard(tab: Tab, stage: Stage) -> None:
    """Everything is reached by Tab in the order it is read, is visibly focused, and works by key."""
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    walk = []
    for _ in range(4):
        await tab.press("Tab")
        walk.append(await tab.run(FOCUSED))
        outline = await tab.run("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none", walk
    assert walk[:3] == ["Skip to the classes", "filter", "l40s"]
    assert walk[3].startswith("Nodes and reasons")
    await tab.press("Enter", text="\r")
    await tab.wait(f"{ROWS}.length === 1")
    await tab.press(" ", text=" ")
    assert not await tab.run(f"{CARD}.querySelector('details').open")
    for _ in range(3):
        await tab.press("Tab", shift=True)
    await tab.press("Enter", text="\r")
    assert await tab.run("document.activeElement.tagName") == "MAIN"


async def test_accessibility_tree(tab: Tab, stage: Stage) -> None:
    """Landmarks, headings, lists, table and figures have their roles and names, on a narrow screen too."""
    await tab.show_as(width=360)
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    await tab.run(OPEN)
    await tab.wait(f"{ROWS}.length === 1")
    tree = (await tab.send("Accessibility.getFullAXTree"))["nodes"]
    found = {
        (node["role"]["value"], " ".join(str(node.get("name", {}).get("value", "")).split()))
        for node in tree
        if not node["ignored"]
    }
    assert found >= {
        ("RootWebArea", "GPU classes"),
        ("banner", ""),
        ("main", "Classes"),
        ("search", ""),
        ("contentinfo", ""),
        ("searchbox", "Filter"),
        ("heading", "GPU classes"),
        ("heading", "l40s"),
        ("link", "l40s"),
        ("list", ""),
        ("listitem", ""),
        ("DisclosureTriangle", "Nodes and reasons of l40s"),
        ("table", "Nodes of l40s"),
        ("rowheader", "n1"),
        *(("columnheader", name) for name in ("Node", "Free", "Requested", "Allocatable", "Capacity", "Why not free")),
        ("DescriptionList", ""),
        *(("term", name) for name in ("Requested", "Free", "Unavailable", "Instances of 1 device")),
    }
    # Chromium sees a table in blocks too; not every browser does, without its roles said.
    assert await tab.run("document.querySelectorAll('table *:is(thead, tbody, tr, th, td):not([role])').length") == 0


CONTRAST = Path(__file__).with_name("contrast.js")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_contrast(tab: Tab, stage: Stage, scheme: str) -> None:
    """Text has 4.5:1 to its ground (WCAG AA), and the parts of a bar 3:1, live or not."""
    stage.add_class("rival", source={"devicePlugin": {"resourceName": L40S}})
    await tab.show_as(width=1280, features={"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"})
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    await tab.run(OPEN)
    await tab.wait(f"{ROWS}.length === 1")
    grounds = await tab.run("getComputedStyle(document.body).backgroundColor")
    assert grounds == {"light": "rgb(245, 246, 248)", "dark": "rgb(14, 18, 23)"}[scheme]
    for state in ("live", "old"):
        await tab.wait(f"{STATE} === '{state}'")
        found = await tab.run(CONTRAST.read_text())
        assert len(found["texts"]) > 30
        assert len(found["bars"]) > 3
        assert [each for each in found["texts"] if each[1] < 4.5] == []
        assert [each for each in found["bars"] if each[1] < 3] == []
        await stage.stop()


@pytest.mark.parametrize("width", [360, 1280])
async def test_width(tab: Tab, stage: Stage, width: int) -> None:
    """Nothing is wider than the screen, whatever is open."""
    stage.add_class("a-class-of-a-name-as-long-as-names-of-kubernetes-may-be-which-is-a-lot", model="L40S " * 20)
    await tab.show_as(width=width)
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    await tab.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    await tab.wait("document.querySelectorAll('tbody tr').length > 0")
    assert await tab.run("document.documentElement.scrollWidth") == width
    wide = "each.checkVisibility() && each.getBoundingClientRect().right > innerWidth + 1"
    beyond = f"[...document.querySelectorAll('main *')].filter((each) => {wide}).map((each) => each.outerHTML)"
    assert await tab.run(beyond) == []


async def test_reduced_motion(tab: Tab, stage: Stage) -> None:
    """Who wants no motion gets none."""
    await tab.show_as(width=1280, features={"prefers-reduced-motion": "reduce"})
    await tab.open(stage.page)
    await tab.wait(f"{STATE} === 'live'")
    stage.add_pod("vm-2", "n1", L40S, 1)
    await tab.wait(f"{HEADLINE}.startsWith('2 of 4')")
    await asyncio.sleep(0.1)
    assert await tab.run("document.getAnimations().length") == 0
