"""Keeping the collector of garbage from what is there to stay."""

import asyncio
import gc
from collections.abc import Callable
from typing import Final

_POLL_SECONDS: Final = 1


async def settle(unsynced: Callable[[], str | None]) -> None:
    """Once the first complete state is known, let the collector walk no more through what there is by then.

    Modules, types and the state of the cluster stay for good, and what of them goes is freed without the collector.
    Each of its full walks through them held every thread for 40 ms, in the middle of some request.

    Args:
        unsynced: why the state is not complete yet, or None.
    """
    while unsynced() is not None:  # noqa: ASYNC110 # it is asked once a second, and only during the start
        await asyncio.sleep(_POLL_SECONDS)
    gc.collect()
    gc.freeze()
