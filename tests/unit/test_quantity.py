"""Quantities: the grammar, the rounding, and what is out of range."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiserver.gpu.quantity import MAX_VALUE, MalformedQuantityError, parse_milli, whole


@pytest.mark.parametrize(
    ("raw", "milli"),
    [
        pytest.param("1", 1000, id="plain"),
        pytest.param(4, 4000, id="a bare JSON integer"),
        pytest.param(1.5, 1500, id="a bare JSON fraction"),
        pytest.param(None, 0, id="null is nothing"),
        pytest.param(" 2 ", 2000, id="blanks around are trimmed"),
        pytest.param("007", 7000, id="leading zeros"),
        pytest.param("+3", 3000, id="a plus sign"),
        pytest.param(".5", 500, id="no digit before the dot"),
        pytest.param("5.", 5000, id="no digit after the dot"),
        pytest.param("+", 0, id="a lone sign is 0, as the parser has it"),
        pytest.param("500m", 500, id="milli"),
        pytest.param("1500u", 2, id="micro rounds up to milli"),
        pytest.param("1n", 1, id="nano rounds up to milli"),
        pytest.param("-1n", -1, id="and away from zero"),
        pytest.param("1k", 1_000_000, id="kilo"),
        pytest.param("1E", 10**21, id="exa, not an exponent"),
        pytest.param("1e3", 1_000_000, id="an exponent"),
        pytest.param("1E3", 1_000_000, id="an exponent in capitals"),
        pytest.param("2e-3", 2, id="a negative exponent"),
        pytest.param("1e-999", 1, id="a far too small one still is not nothing"),
        pytest.param("0e999999", 0, id="nothing times anything"),
        pytest.param("1.5Gi", 1536 * 1024**2 * 1000, id="a fraction of a binary unit"),
        pytest.param("0.001Ki", 1024, id="a small fraction of a binary unit"),
        pytest.param(str(MAX_VALUE), MAX_VALUE * 1000, id="the largest"),
    ],
)
def test_parse(raw: object, milli: int) -> None:
    """A quantity is read to the milli-unit it is worth."""
    assert parse_milli(raw) == milli


@pytest.mark.parametrize(
    "raw",
    [
        *("", "K", "1K", "1KB", "GB", "B", "1gi", "1GI", "1kI", "1e", "1e+", "1 Gi", "1_000", "0x10", "Inf", "NaN"),
        *("1.2.3", "1e1.5", "1Gix", "--1", "1\n2", "\u0661", "9223372036854775808", "10E", "1e999999999", "9" * 65),
        *(True, [], {}),
    ],
)
def test_malformed(raw: object) -> None:
    """What is no quantity, or none Kubernetes can compute with, is refused and never guessed at."""
    with pytest.raises(MalformedQuantityError):
        parse_milli(raw)


@pytest.mark.parametrize(
    ("milli", "devices"), [(0, 0), (1, 1), (1000, 1), (1500, 2), (-1, -1), (-500, -1), (-1500, -2)]
)
def test_whole(milli: int, devices: int) -> None:
    """Whole units are rounded away from zero."""
    assert whole(milli) == devices


@given(st.integers(-(10**15), 10**15), st.sampled_from(["", "m", "u", "n", "k", "Ki", "Mi", "e2", "E-2"]))
def test_exact(number: int, suffix: str) -> None:
    """Whatever the suffix, the result is the exact value rounded away from zero to the milli-unit."""
    powers = {"": 0, "k": 3, "m": -3, "u": -6, "n": -9, "e2": 2, "E-2": -2}
    factors = {"Ki": Fraction(1024), "Mi": Fraction(1024**2)}
    factors |= {name: Fraction(10) ** power for name, power in powers.items()}
    if abs(number * factors[suffix]) > MAX_VALUE:
        return
    exact = Fraction(number) * factors[suffix] * 1000
    rounded = -(-abs(exact).numerator // abs(exact).denominator)
    assert parse_milli(f"{number}{suffix}") == (rounded if number >= 0 else -rounded)
