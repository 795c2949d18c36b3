"""`--watch`: a picture that is drawn anew on a terminal, and lines that say what changed everywhere else."""

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from apiserver.inputs import Source
from apiserver.printing.answers import DOCUMENTS, Classes, Object, Question, document, ink_of, table_of
from apiserver.serving.history import ADDED, DELETED, MODIFIED
from apiserver.serving.status import StatusError
from apiserver.serving.tables import Column, Layout
from apiserver.terminal.device import Device
from apiserver.terminal.screen import Screen
from apiserver.terminal.text import Style, plain

_EVERY_SECONDS: Final = 1.0
"""Between two looks without a change: ages go on, and what only a page tells changes without being told."""

_TOGETHER_SECONDS: Final = 0.05
"""Changes that come this close together are shown as one."""

_GONE: Final = "The class is gone.\n"


async def watch(question: Question, source: Source, output: Device) -> None:
    """Show what changes until cancelled."""
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    is_document = question.settings.output in DOCUMENTS
    if output.redraws and not is_document:
        await _redraw(question, source, output)
    elif isinstance(question, Classes):
        await _tell_changes(question, source, output)
    else:
        await _tell_states(question, source, output)


async def _looks(question: Question, source: Source) -> AsyncIterator[tuple[Object | None, str | None]]:
    """The answer, again and again: soon after each change, and every second. With it, why it may not be of now.

    There is no answer while none may be given, and when the class is gone; only the first has a reason.
    """
    wake = asyncio.Event()
    changes = source.view.follow(wake.set)
    while True:
        wake.clear()
        changes.take()
        try:
            answer, problem = await question.look(), source.lagging()
        except StatusError as error:
            answer, problem = None, error.message
        yield answer, None if problem is None else plain(" ".join(problem.split()))
        with suppress(TimeoutError):
            async with asyncio.timeout(_EVERY_SECONDS):
                await wake.wait()
                await asyncio.sleep(_TOGETHER_SECONDS)


async def _redraw(question: Question, source: Source, output: Device) -> None:
    ink = ink_of(output)
    since = ""
    logging.disable(logging.ERROR)  # a line of the log would stand in the midst of the picture, which says it itself
    with Screen(output) as screen:
        async for answer, problem in _looks(question, source):
            now = f"{datetime.now().astimezone():%H:%M:%S}"
            since = (since or now) if problem else ""
            if problem:
                footer = ink.paint(f"not up to date since {since}: {problem}", Style.RED)
            else:
                footer = ink.paint(f"live, {now}; Ctrl-C ends", Style.FAINT)
            if answer is None:
                screen.draw(f"{problem}\n" if problem else _GONE, footer)
            else:
                screen.draw(question.text(answer, output), footer)


async def _tell_states(question: Question, source: Source, output: Device) -> None:
    """Print every state of the answer, one after another."""
    last: Object | None = None
    notices = Notices()
    async for answer, problem in _looks(question, source):
        notices.tell(problem or (None if answer else _GONE.strip()))
        if answer is None or answer == last:
            continue
        if question.settings.output in DOCUMENTS:
            output.write(document(answer, question.settings.output, one_of_many=True))
        else:
            output.write(("\n" if last else "") + question.text(answer, output))
        last = answer


async def _tell_changes(question: Classes, source: Source, output: Device) -> None:
    """Print every change as a line, as `kubectl get --watch --output-watch-events` does."""
    differ, notices, writer = Differ(), Notices(), question.writer(output)
    layout = _with_event(question.resource.layout)
    heads = True
    async for answer, problem in _looks(question, source):
        notices.tell(problem)
        if answer is None and problem is not None:
            continue
        items = [] if answer is None else answer.get("items", [answer])
        events = list(differ.events(items))
        if question.settings.output in DOCUMENTS:
            for event in events:
                output.write(document(event, question.settings.output, one_of_many=True))
        elif events:
            output.write(writer.text(table_of(layout, *events), heads=heads))
            heads = False


def _with_event(layout: Layout) -> Layout:
    """The columns of events about objects that have these columns."""
    event = Column("Event", lambda event, _: event["type"], "What happened.")
    return Layout([event, *(_of_object(column) for column in layout.columns)])


def _of_object(column: Column) -> Column:
    return Column(
        column.name,
        lambda event, now: column.cell(event["object"], now),
        column.description,
        type=column.type,
        wide=column.wide,
        format=column.format,
    )


class Differ:
    """Tells what happened between two lists."""

    def __init__(self) -> None:
        self._known: dict[str, Object] = {}

    def events(self, items: Iterable[Object]) -> Iterator[Mapping[str, Any]]:
        """What happened since the last list, as the events of a watch; an object of another uid is another object."""
        now = {item["metadata"]["name"]: item for item in items}
        for name, old in self._known.items():
            if name not in now or now[name]["metadata"].get("uid") != old["metadata"].get("uid"):
                yield {"type": DELETED, "object": old}
        for name, item in now.items():
            known = self._known.get(name)
            if known is None or known["metadata"].get("uid") != item["metadata"].get("uid"):
                yield {"type": ADDED, "object": item}
            elif known["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                yield {"type": MODIFIED, "object": item}
        self._known = now


class Notices:
    """Says on standard error when what is printed is no longer of now, and when it is again."""

    def __init__(self) -> None:
        self._last: str | None = None

    def tell(self, problem: str | None) -> None:
        """Say it if it is news."""
        if problem != self._last:
            sys.stderr.write(f"not up to date: {problem}\n" if problem else "up to date again\n")
            sys.stderr.flush()
            self._last = problem
