"""What was worked out once and is worth keeping, as long as it is not too much."""

from typing import TypeVar

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Remembered(dict[_Key, _Value]):
    """A dictionary that forgets everything when it is full: who fills it on purpose makes others slower, never more.

    Args:
        size: entries at most.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __setitem__(self, key: _Key, value: _Value) -> None:
        """Remember one more."""
        if len(self) >= self._size:
            self.clear()
        super().__setitem__(key, value)
