"""What a test reads on the page, as expressions."""

import time

from tests.page.chromium import Tab
from tests.page.stage import resource_of

L40S = resource_of("l40s")
STATE = "document.body.dataset.state"
BANNER = "document.querySelector('[role=alert]').innerText"
CARD = "document.querySelector('.class')"
CARDS = "[...document.querySelectorAll('.class:not([hidden])')]"
HEADLINE = f"{CARD}.querySelector('.headline').innerText.replace(/\\s+/g, ' ').trim()"
OPEN = f"{CARD}.querySelector('details').open = true"
ROWS = f"[...{CARD}.querySelectorAll('tbody tr')].map((row) => row.innerText.replace(/\\s+/g, ' ').trim())"
FOCUSED = "document.activeElement.innerText || document.activeElement.dataset.part || document.activeElement.tagName"


def legend(card: str) -> str:
    """An expression for the figures of a class, as they are written."""
    return f"[...{card}.querySelectorAll('.legend div:not([hidden])')].map((each) => each.innerText.split(/\\s+/))"


async def seconds_until(tab: Tab, condition: str) -> float:
    """How long it takes until an expression is true."""
    began = time.monotonic()
    await tab.wait(condition)
    return time.monotonic() - began
