"""The server whose page is looked at."""

from collections.abc import AsyncIterator

import pytest

from tests.page.stage import Stage, staged


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    """A server of one class with 3 of 4 devices free."""
    async with staged() as stage:
        yield stage
