"""The commands that are read out of documents."""

from pathlib import Path

import pytest

from tests.cluster.documents import Command, Shell, alike, commands

DOCUMENT = """# Title

```sh
cat > file <<'EOF'
# no heading
EOF
```

## Second

```console
$ cat file
# no heading
$ echo one \\
  two
one two
$ true
```

```yaml
a: b
```
"""


@pytest.fixture
def found(tmp_path: Path) -> list[Command]:
    """The commands of the document."""
    path = tmp_path / "page.md"
    path.write_text(DOCUMENT)
    return commands(path)


def test_commands_are_found(found: list[Command]) -> None:
    """A script is one command, a dialogue one for each prompt, and yaml none; a comment is no heading."""
    assert [(each.heading, each.place, each.output) for each in found] == [
        ("Title", "page.md:3", ""),
        ("Second", "page.md:11", "# no heading"),
        ("Second", "page.md:11", "one two"),
        ("Second", "page.md:11", ""),
    ]
    assert found[0].script.startswith("cat > file")
    assert found[2].script == "echo one \\\n  two"


def test_commands_are_run(found: list[Command], tmp_path: Path) -> None:
    """They run one after another in one directory, and print what the document says."""
    shell = Shell(tmp_path)
    assert [shell.run(each) for each in found] == ["", "# no heading\n", "one two\n", ""]


@pytest.mark.parametrize(
    ("script", "output", "complaint"),
    [
        pytest.param("false\ntrue", "", "page.md:1 ended with 1", id="a failure in the middle"),
        pytest.param("false | true", "", "page.md:1 ended with 1", id="a failure in a pipe"),
        pytest.param("echo $UNSET_BY_ALL", "", "ended with", id="a variable that nobody sets"),
        pytest.param("echo one", "two", "prints something else", id="another output"),
    ],
)
def test_failures_are_told(tmp_path: Path, script: str, output: str, complaint: str) -> None:
    """A command that fails in any part, or prints something else, is an error that says where it stands."""
    with pytest.raises(AssertionError, match=complaint):
        Shell(tmp_path).run(Command(script, output, "", "page.md:1"))


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        pytest.param("NAME   FREE", "NAME FREE\n", True, id="other spaces"),
        pytest.param("a … c", "a b c", True, id="anything in between"),
        pytest.param("a … c", "a b d", False, id="another end"),
        pytest.param("a.c", "abc", False, id="a dot is a dot"),
    ],
)
def test_outputs_are_compared(expected: str, printed: str, *, same: bool) -> None:
    """Words count, spaces do not, and an ellipsis stands for anything."""
    assert alike(expected, printed) is same


def test_console_without_prompt(tmp_path: Path) -> None:
    """A console block that begins with output is a mistake of the document."""
    path = tmp_path / "page.md"
    path.write_text("```console\nNAME\n```\n")
    with pytest.raises(ValueError, match=r"page.md:1: a console block begins"):
        commands(path)
