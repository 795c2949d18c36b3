"""`get` and `catalog`: the objects are had, and the answer is printed, once or as it changes."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from apiserver.catalog.install import install
from apiserver.cluster.view import View
from apiserver.inputs import InputError, make_view
from apiserver.printing.answers import DOCUMENTS, Catalog, Classes, Question, document
from apiserver.printing.sources import fill_from_file, open_source
from apiserver.serving.resources import GroupVersion, Resource
from apiserver.serving.versions import ServerClock, VersionSource
from apiserver.settings import Input, Settings
from apiserver.terminal.device import open_device

_EXIT_TERMINATED: Final = 128 + signal.SIGTERM
_MATCHES: Final = 3
_NAMED: Final = 10

Ask = Callable[[GroupVersion, Resource, Settings], Question]


def show_classes(settings: Settings) -> None:
    """Print the classes.

    Raises:
        InputError: there is nothing to be printed; the message says why.
    """
    _show(settings, Classes)


def show_catalog(settings: Settings) -> None:
    """Print the page of a class.

    Raises:
        InputError: there is nothing to be printed; the message says why.
    """
    _show(settings, Catalog)


def _show(settings: Settings, ask: Ask) -> None:
    view = make_view(settings)
    if settings.input is Input.SNAPSHOT:
        fill_from_file(settings, view)
    try:
        asyncio.run(_answer(settings, view, ask))
    except asyncio.CancelledError:  # a SIGTERM while it was watched
        raise SystemExit(_EXIT_TERMINATED) from None


async def _answer(settings: Settings, view: View, ask: Ask) -> None:
    async with open_source(settings, view) as source:
        clock = ServerClock(wall=datetime.now(UTC).timestamp())
        served = install(view, VersionSource(clock), source.untold)
        question = ask(served, served.resources[0], settings)
        answer = await question.look()
        if answer is None:
            raise InputError(not_found(settings.name, view, served))
        output = open_device(sys.stdout, os.environ)
        if settings.watch:
            from apiserver.printing.watch import watch  # noqa: PLC0415 # only a watch needs it

            await watch(question, source, output)
        elif settings.output in DOCUMENTS:
            output.write(document(answer, settings.output))
        else:
            output.write(question.text(answer, output))


def not_found(name: str, view: View, served: GroupVersion) -> str:
    """That there is no such class, and which there are: those of a similar name, or else the first few."""
    from difflib import get_close_matches  # noqa: PLC0415 # only a mistake needs it

    names = sorted(view.names())
    near = get_close_matches(name, names, _MATCHES)
    if near:
        hint = f"did you mean {' or '.join(near)}?"
    elif names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        hint = f"there is {', '.join(names[:_NAMED])}{more}"
    else:
        hint = "there are no classes"
    return f'{served.resources[0].plural}.{served.group} "{name}" not found; {hint}'
