"""An event loop that ends when its connections have."""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

GOODBYE_SECONDS: Final = 5
POLL_SECONDS: Final = 0.01


class PatientLoop(asyncio.SelectorEventLoop):
    """Closes only when no socket is left open, or after some seconds.

    aiohttp's session does not wait for the TLS goodbye of a connection that was not to be kept, such as a WebSocket's.
    A server too busy to say goodbye before the loop closes leaves an open socket, which is then collected, with a
    warning, in whatever test comes next. What a test itself forgot to close is still told of, once the time is over.
    """

    def __init__(self) -> None:
        self._watched = selectors.DefaultSelector()
        super().__init__(self._watched)
        self._own = len(self._watched.get_map())

    def close(self) -> None:
        """Wait, and close."""
        deadline = time.monotonic() + GOODBYE_SECONDS
        while not self.is_closed() and len(self._watched.get_map()) > self._own and time.monotonic() < deadline:
            self.run_until_complete(asyncio.sleep(POLL_SECONDS))
        super().close()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in such a loop, as asyncio.run does in another."""
    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        return runner.run(main)
