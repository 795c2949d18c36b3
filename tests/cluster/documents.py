"""The commands of a document, read out of it and run as a reader would.

A block of ```sh or ```bash is a script, run whole. In a block of ```console each line that begins with `$ ` is a
command, and what follows it, up to the next one, is what it prints. Other blocks (yaml, json, text) are no commands.
"""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
SCRIPTS: Final = ("sh", "bash")
CONSOLE: Final = "console"
PROMPT: Final = "$ "
CONTINUED: Final = "> "
ANYTHING: Final = "…"
TIMEOUT_SECONDS: Final = 180
_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING: Final = re.compile(r"^#+ (.+)$")


@dataclass(frozen=True, slots=True)
class Command:
    """Something to run.

    Attributes:
        script: for bash.
        output: what the document says it prints, with "…" for whatever it may be; empty if it says nothing.
        heading: the heading it stands under.
        place: file and line, for messages.
    """

    script: str
    output: str
    heading: str
    place: str


def commands(path: Path) -> list[Command]:
    """Every command of a Markdown document, in its order."""
    return list(_commands(path.name, path.read_text()))


def blocks(path: Path, language: str) -> list[str]:
    """The blocks of a Markdown document that are in a language."""
    return [body for found, body in _FENCE.findall(path.read_text()) if found == language]


def languages(path: Path) -> list[str]:
    """The language of each block of a Markdown document; a fence that is not read as one is "not read"."""
    text = path.read_text()
    found = [language for language, _ in _FENCE.findall(text)]
    fences = sum(line.lstrip(" >").startswith(("```", "~~~")) for line in text.splitlines())
    return [*found, *["not read"] * (fences - 2 * len(found))]


def alike(expected: str, printed: str) -> bool:
    """Whether what was printed is what the document says, however many spaces stand between the words."""
    parts = [re.escape(each) for each in " ".join(expected.split()).split(ANYTHING)]
    return re.fullmatch(".*".join(parts), " ".join(printed.split()), re.DOTALL) is not None


@dataclass(frozen=True, slots=True)
class Shell:
    """Where commands are run.

    Attributes:
        directory: what they stand in.
        programs: directories that are searched for programs before all others.
        environment: variables besides those we have.
    """

    directory: Path
    programs: tuple[Path, ...] = ()
    environment: Mapping[str, str] | None = None

    def run(self, command: Command, *, timeout_seconds: float = TIMEOUT_SECONDS) -> str:
        """Run a command and return what it printed.

        Raises:
            AssertionError: it failed, or printed something else than the document says.
        """
        path = os.pathsep.join([*map(str, self.programs), os.environ["PATH"]])
        done = subprocess.run(
            ("bash", "-euo", "pipefail", "-c", command.script),
            cwd=self.directory,
            env={**os.environ, **(self.environment or {}), "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{command.place} ended with {done.returncode}:\n{command.script}\n{done.stderr}")
        if command.output and not alike(command.output, done.stdout):
            raise AssertionError(f"{command.place} prints something else:\n{done.stdout}\nnot\n{command.output}")
        return done.stdout


def _commands(name: str, text: str) -> Iterator[Command]:
    for fence in _FENCE.finditer(text):
        language, body = fence.groups()
        before = text[: fence.start()]
        place = f"{name}:{before.count(chr(10)) + 1}"
        heading = _last_heading(before)
        if language in SCRIPTS:
            yield Command(body, "", heading, place)
        elif language == CONSOLE:
            for script, output in _dialogue(body, place):
                yield Command(script, output, heading, place)


def _last_heading(text: str) -> str:
    """The heading that holds at the end of a text; a comment in a script of it is none."""
    outside = _FENCE.sub("", text)
    found = [match[1] for line in outside.splitlines() if (match := _HEADING.match(line))]
    return found[-1] if found else ""


def _dialogue(body: str, place: str) -> Iterator[tuple[str, str]]:
    """What is typed and what it prints, in turn."""
    typed: list[str] = []
    printed: list[str] = []
    for line in body.splitlines():
        if line.startswith(PROMPT):
            if typed:
                yield "\n".join(typed), "\n".join(printed)
            typed, printed = [line.removeprefix(PROMPT)], []
        elif not typed:
            raise ValueError(f"{place}: a console block begins with {PROMPT!r}")
        elif not printed and (line.startswith(CONTINUED) or typed[-1].endswith("\\")):
            typed.append(line.removeprefix(CONTINUED))
        else:
            printed.append(line)
    if typed:
        yield "\n".join(typed), "\n".join(printed)
