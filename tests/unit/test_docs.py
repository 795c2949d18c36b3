"""The documents: the reference is what the code says, and no link leads nowhere."""

import re
from pathlib import Path

import pytest

from apiserver.flags import COMMANDS
from docs.reference.__main__ import HERE, pages
from docs.reference.flags import flags_of

ROOT = HERE.parents[1]
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)]*)?\)")


def test_reference_is_current() -> None:
    """`make docs` would change nothing."""
    for name, text in pages().items():
        assert (HERE / name).read_text(encoding="utf-8") == text, f"{name}: run `make docs`"


def test_every_flag_says_something() -> None:
    """Every flag has a meaning, and none is left out: the shortest command has ten."""
    for command in COMMANDS:
        flags = list(flags_of(command))
        assert len(flags) >= 10
        assert [flag.spelling for flag in flags if len(flag.meaning) < 5] == []


@pytest.mark.parametrize(
    "page", [*sorted(ROOT.glob("docs/**/*.md")), *sorted(ROOT.glob("*.md"))], ids=lambda page: page.name
)
def test_links(page: Path) -> None:
    """What a page links to is there, and so is the heading."""
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" in target:
            continue
        found = page.parent / target
        assert found.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor[1:] in [re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-") for each in headings]
