"""Our server where clocks are wrong: `python -m tests.cluster.clocks --wall SECONDS --server SECONDS serve …`.

`--wall` sets off the wall clock of the process, as a bad NTP step would: all that Python code can ask it by. The
monotonic clock goes on as it is. `--server` sets off what kube-apiserver's Date headers are read as, as if its clock
were wrong.
"""

import argparse
import datetime as dt
import sys
import time
from typing import Self

MODULE = "tests.cluster.clocks"


def program(*, wall_seconds: float = 0, server_seconds: float = 0) -> tuple[str, ...]:
    """The command that the options of `serve` follow."""
    return (sys.executable, "-m", MODULE, f"--wall={wall_seconds}", f"--server={server_seconds}", "serve")


def main() -> None:
    """Set the clocks off, and run the program."""
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}")
    parser.add_argument("--wall", type=float, default=0)
    parser.add_argument("--server", type=float, default=0)
    arguments, options = parser.parse_known_args()
    _set_off_wall_clock(arguments.wall)
    # Imported only now: a module that takes `datetime` by name shall have the one that is set off.
    from apiserver import cli  # noqa: PLC0415
    from apiserver.cluster import client  # noqa: PLC0415

    parse_date = client.parse_date
    offset = dt.timedelta(seconds=arguments.server)

    def read_date(value: str) -> dt.datetime | None:
        date = parse_date(value)
        return None if date is None else date + offset

    client.parse_date = read_date
    sys.exit(cli.run(options))


def _set_off_wall_clock(seconds: float) -> None:
    true_time, true_time_ns = time.time, time.time_ns
    offset = dt.timedelta(seconds=seconds)

    class SetOff(dt.datetime):
        """The class of instants, with another now."""

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Self:
            return super().now(tz) + offset

    time.time = lambda: true_time() + seconds
    time.time_ns = lambda: true_time_ns() + int(seconds * 1e9)
    dt.datetime = SetOff  # type: ignore[misc]


if __name__ == "__main__":
    main()
