"""Where `get` and `catalog` have their objects from: a snapshot file, or a cluster."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from apiserver.cluster.view import View
from apiserver.inputs import InputError, Source, load_snapshot, stamp
from apiserver.settings import Input, Settings
from apiserver.terminal.device import open_device
from apiserver.terminal.progress import Progress

_POLL_SECONDS: Final = 0.5


def fill_from_file(settings: Settings, view: View) -> None:
    """Read the snapshot.

    Raises:
        InputError: it cannot be read.
    """
    # Outside of an event loop, which would put a Ctrl-C off until the whole of the file is read.
    with Progress(open_device(sys.stderr, os.environ), lambda: f"reading {settings.snapshot} ..."):
        load_snapshot(settings.snapshot).fill(view, kubevirt=settings.kubevirt)


@asynccontextmanager
async def open_source(settings: Settings, view: View) -> AsyncIterator[Source]:
    """The source that the settings name; with `watch` the view is kept up to date while the block lasts.

    Raises:
        InputError: the cluster cannot be read.
    """
    if settings.input is not Input.SNAPSHOT:
        async with _cluster(settings, view) as source:
            yield source
    elif settings.watch:
        async with _changing_file(settings, view) as source:
            yield source
    else:
        yield Source(view)


class _ChangingFile(Source):
    """A snapshot file, read again when it changes."""

    def __init__(self, view: View, settings: Settings) -> None:
        super().__init__(view)
        self._settings = settings
        self._problem: str | None = None

    def lagging(self) -> str | None:
        return self._problem

    async def follow(self) -> None:
        """Take the file anew whenever it changes; while it is broken what was good before stays."""
        file = Path(self._settings.snapshot)
        seen = stamp(file)
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            now = stamp(file)
            if now == seen:
                continue
            seen = now
            try:
                load_snapshot(self._settings.snapshot).fill(self.view, kubevirt=self._settings.kubevirt)
            except InputError as error:
                self._problem = str(error)
            else:
                self._problem = None


@asynccontextmanager
async def _changing_file(settings: Settings, view: View) -> AsyncIterator[Source]:
    source = _ChangingFile(view, settings)
    following = asyncio.create_task(source.follow(), name="snapshot")
    try:
        yield source
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@asynccontextmanager
async def _cluster(settings: Settings, view: View) -> AsyncIterator[Source]:
    # What talks to a cluster takes long to import, and a file needs none of it.
    from apiserver.cluster.live import Live  # noqa: PLC0415
    from apiserver.printing.firstsync import Followed, following, reading  # noqa: PLC0415

    live = Live(view, kubevirt=settings.kubevirt)
    async with AsyncExitStack() as stack:
        with Progress(open_device(sys.stderr, os.environ), lambda: reading(live)):
            task = await stack.enter_async_context(following(settings, live))
        yield Followed(view, live, task)
