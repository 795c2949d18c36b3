"""`flags.md`: what the command line takes, from what parses it."""

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from apiserver.flags import COMMANDS, PROGRAM, make_parser

_DEFAULT: Final = re.compile(r"(.*) \(([^()]*)\)")
"""A help text ends with the default in parentheses, if there is one worth telling."""

_HEAD: Final = """# Flags

Written by `make docs` from the command line itself; `gpuclass-catalog COMMAND --help` says the same.

Wrong settings are reported all at once, each with its flag, and the program ends with exit code 2. It ends with 1 when
it failed, 130 after Ctrl-C, and 0 otherwise. Flags cannot be abbreviated. As a plugin, `kubectl gpuclasses` takes the
same commands, and without one it is `get`.
"""


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag or argument of a command.

    Attributes:
        spelling: as it is typed, short form first.
        value: what follows it; empty for a switch.
        meaning: what it does.
        default: what holds without it; empty if that goes without saying.
    """

    spelling: str
    value: str
    meaning: str
    default: str


def flags_of(command: str) -> Iterator[Flag]:
    """What a command takes, in the order of its help."""
    for action in _parsers()[command]._actions:  # noqa: SLF001 # argparse has no public way to list them
        if isinstance(action, argparse._HelpAction):  # noqa: SLF001 # the same
            continue
        match = _DEFAULT.fullmatch(action.help or "")
        meaning, default = match.groups() if match else (action.help or "", "")
        value = "" if action.nargs == 0 else str(action.metavar or "")
        spelling = ", ".join(action.option_strings) or value
        yield Flag(spelling, value if action.option_strings else "", meaning, default)


def write_flags() -> str:
    """The page."""
    return "\n".join([_HEAD, *(_section(command) for command in COMMANDS)]).rstrip("\n") + "\n"


def _section(command: str) -> str:
    rows = [f"| {_spelling(flag)} | {_cell(flag.default)} | {_cell(flag.meaning)} |" for flag in flags_of(command)]
    head = f"## {PROGRAM} {command}\n\n{COMMANDS[command][:1].upper()}{COMMANDS[command][1:]}.\n"
    return "\n".join([head, "| flag | default | meaning |", "|---|---|---|", *rows, ""])


def _spelling(flag: Flag) -> str:
    return f"`{_cell(flag.spelling)}" + (f" {_cell(flag.value)}`" if flag.value else "`")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _parsers() -> Mapping[str, argparse.ArgumentParser]:
    actions = make_parser()._actions  # noqa: SLF001 # argparse has no public way to list them
    commands = next(each for each in actions if isinstance(each, argparse._SubParsersAction))  # noqa: SLF001 # the same
    return dict(commands.choices)
