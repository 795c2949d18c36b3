"""The collector of garbage is kept from what is there to stay."""

import gc
from collections.abc import Iterator

import pytest

from apiserver import garbage


@pytest.fixture
def thawed() -> Iterator[None]:
    """Whatever a test freezes is the collector's again."""
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
async def test_settles_once_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first complete state nothing is frozen, afterwards everything there is."""
    monkeypatch.setattr(garbage, "_POLL_SECONDS", 0)
    answers = ["not listed yet", "not listed yet", None]
    frozen = []

    def unsynced() -> str | None:
        frozen.append(gc.get_freeze_count())
        return answers.pop(0)

    await garbage.settle(unsynced)
    assert frozen == [0, 0, 0]
    assert gc.get_freeze_count() > 1000
