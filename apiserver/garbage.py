"""Keeping the collector of garbage from what is there to stay."""

import asyncio
import gc
from collections.abc import Callable
from typing import Final

_POLL_SECONDS: Final = 1
_SYNCING_THRESHOLDS: Final = (100_000, 50, 50)
"""A first list of many objects only adds to what is there: half of the time would be spent walking through it."""


async def settle(unsynced: Callable[[], str | None]) -> None:
    """Let the collector walk seldom until the first complete state is known, and no more through what is there by then.

    Modules, types and the state of the cluster stay for good, and what of them goes is freed without the collector.
    Each of its full walks through them held every thread for 40 ms, in the middle of some request.

    Args:
        unsynced: why the state is not complete yet, or None.
    """
    usual = gc.get_threshold()
    gc.set_threshold(*_SYNCING_THRESHOLDS)
    try:
        while unsynced() is not None:  # noqa: ASYNC110 # it is asked once a second, and only during the start
            await asyncio.sleep(_POLL_SECONDS)
    finally:
        gc.set_threshold(*usual)
    gc.freeze()  # what is garbage by now stays too: about a hundred objects, and to look for them takes long
