"""Durations as Go reads them."""

import pytest

from apiserver.serving.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("+0", 0),
        ("30s", 30),
        ("1h30m", 5400),
        ("1.5s", 1.5),
        (".5s", 0.5),
        ("1.s", 1),
        ("2m1.5s", 121.5),
        ("100ms", 0.1),
        ("5us", 5e-6),
        ("5µs", 5e-6),
        ("7ns", 7e-9),
        ("-1m", -60),
        ("1s1s", 2),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """Any number of parts, each with its unit."""
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "1", "s", ".s", "1 s", " 1s", "1s ", "--1s", "1d", "\u0661s", "1e3s", "inf", "9999999999h", "1S", "1s\n"],
)
def test_no_durations(text: str) -> None:
    """What Go refuses is refused."""
    with pytest.raises(ValueError, match="time: "):
        parse_duration(text)
