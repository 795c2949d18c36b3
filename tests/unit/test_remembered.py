"""What is remembered stays within its bound."""

from apiserver.serving.remembered import Remembered


def test_forgets_when_full() -> None:
    """One more than there is room for leaves only that one, and never more than there is room for are kept."""
    kept: Remembered[int, str] = Remembered(3)
    for number in range(4):
        kept[number] = str(number)
        assert len(kept) <= 3
    assert kept == {3: "3"}
