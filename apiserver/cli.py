"""The command line: what was asked for is checked, run, and answered with an exit code."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from apiserver.flags import COMMANDS, PROGRAM
from apiserver.inputs import InputError
from apiserver.logs import set_up
from apiserver.settings import Settings, SettingsError, read_settings

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_INTERRUPTED: Final = 130
"""As a shell has it for what SIGINT ended; SIGPIPE, below, is the same for a reader who has gone."""

EXIT_NO_READER: Final = 141

_PLUGIN: Final = "kubectl gpuclasses"
_HELP: Final = ("-h", "--help")


def run(arguments: Sequence[str], program: str = PROGRAM) -> int:
    """Run one command.

    Args:
        arguments: the command line.
        program: how the program was called.

    Returns:
        0 when all went well, 1 when it failed, 2 when the settings are wrong, 130 when it was interrupted.
    """
    try:
        command, settings = read_settings(arguments, program)
    except SettingsError as error:
        for problem in error.problems:
            _complain(program, problem)
        return EXIT_USAGE
    set_up(settings.verbosity, settings.logging_format)
    _have_a_home()
    try:
        _RUN[command](settings)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to be flushed goes nowhere
        return EXIT_NO_READER
    except (InputError, OSError) as error:
        _complain(program, str(error))
        return EXIT_FAILED
    return EXIT_OK


def run_plugin(arguments: Sequence[str]) -> int:
    """Run as `kubectl gpuclasses`; without a command it is `get`."""
    named = bool(arguments) and (arguments[0] in COMMANDS or arguments[0] in _HELP)
    return run(arguments if named else ["get", *arguments], _PLUGIN)


def _have_a_home() -> None:
    """Take "/" for the home of a user who has none: kubernetes_asyncio cannot be imported without.

    Neither HOME nor an entry among the users happens in containers and units that run as a bare number. Container
    runtimes give these the same home.
    """
    if os.path.expanduser("~") == "~":  # noqa: PTH111 # Path.home() would raise
        os.environ["HOME"] = "/"


def _serve(settings: Settings) -> None:
    from apiserver.serve import serve  # noqa: PLC0415 # cryptography and the server take long to import

    serve(settings)


def _get(settings: Settings) -> None:
    from apiserver.printing.show import show_classes  # noqa: PLC0415 # the server needs none of it

    show_classes(settings)


def _catalog(settings: Settings) -> None:
    from apiserver.printing.show import show_catalog  # noqa: PLC0415 # the server needs none of it

    show_catalog(settings)


def _ui(settings: Settings) -> None:
    from apiserver.browsing import show_page  # noqa: PLC0415 # the server needs none of it
    from apiserver.serve import serve  # noqa: PLC0415 # as above

    serve(settings, partial(show_page, open_browser=settings.open_browser))


_RUN: Final[Mapping[str, Callable[[Settings], None]]] = {
    "serve": _serve,
    "get": _get,
    "catalog": _catalog,
    "ui": _ui,
}


def _complain(program: str, text: str) -> None:
    sys.stderr.write(f"{program}: {text}\n")
