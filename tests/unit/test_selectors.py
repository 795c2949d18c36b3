"""Label and field selectors."""

import pytest

from apiserver.serving.selectors import (
    METADATA_FIELDS,
    Requirement,
    make_selection,
    parse_field_selector,
    parse_label_selector,
    pinned_name,
)
from apiserver.serving.status import BadRequest

LABELS = {"tier": "gold", "cards": "8", "empty": ""}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("tier=gold", True),
        ("tier==gold", True),
        ("tier = gold", True),
        ("tier=silver", False),
        ("none=gold", False),
        ("tier!=silver", True),
        ("tier!=gold", False),
        ("none!=gold", True),
        ("tier in (gold,silver)", True),
        ("tier in ( gold , silver )", True),
        ("tier in (silver)", False),
        ("none in (gold)", False),
        ("tier notin (silver, bronze)", True),
        ("tier notin (gold)", False),
        ("none notin (gold)", True),
        ("tier", True),
        ("none", False),
        ("!none", True),
        ("!tier", False),
        ("! none", True),
        ("cards>7", True),
        ("cards > 8", False),
        ("cards<9", True),
        ("tier>1", False),
        ("none<9", False),
        ("empty=", True),
        ("empty in ()", True),
        ("tier=", False),
        ("empty=,tier=gold", True),
        ("tier=gold,cards=9", False),
        ("tier in (gold),!none,cards", True),
        ("example.com/in=x", False),
        ("in=x", False),
    ],
)
def test_labels(selector: str, matches: bool) -> None:
    """Every operator means what it means in Kubernetes, for labels that are there and that are not."""
    item = {"metadata": {"name": "a", "labels": LABELS}}
    assert make_selection(selector, "", {}).matches(item) is matches


@pytest.mark.parametrize(
    "selector",
    [
        *(",", "a,", "a b", "a in b", "a in (b", "a in", "=b", "a>x", "a>", "-a", "a=-", "a==!", "!a=b", "a=b c"),
        *("a/b/c=d", "a in (b c)", "()", "A/x=1", "a=" + "x" * 64),
    ],
)
def test_wrong_labels(selector: str) -> None:
    """What is no label selector is 400."""
    with pytest.raises(BadRequest):
        parse_label_selector(selector)


@pytest.mark.parametrize(
    ("selector", "terms"),
    [
        ("", ()),
        ("metadata.name=a", (Requirement("metadata.name", "=", ("a",)),)),
        ("metadata.name==a", (Requirement("metadata.name", "=", ("a",)),)),
        ("metadata.name!=a,", (Requirement("metadata.name", "!=", ("a",)),)),
        ("a=1,b=2", (Requirement("a", "=", ("1",)), Requirement("b", "=", ("2",)))),
        ("a=", (Requirement("a", "=", ("",)),)),
        (r"a=x\,y\=z\\", (Requirement("a", "=", (r"x,y=z" + "\\",)),)),
    ],
)
def test_fields(selector: str, terms: tuple[Requirement, ...]) -> None:
    """Field selectors have three operators and escapes."""
    assert parse_field_selector(selector) == terms


@pytest.mark.parametrize("selector", ["a", "a>1", "metadata.name in (a)", r"a=\x"])
def test_wrong_fields(selector: str) -> None:
    """What is no field selector is 400."""
    with pytest.raises(BadRequest):
        parse_field_selector(selector)


def test_known_fields() -> None:
    """A field that is not declared cannot be selected by; declared ones are compared as text."""
    item = {"metadata": {"name": "a", "namespace": "ns"}}
    assert make_selection("", "metadata.name=a,metadata.namespace!=x", METADATA_FIELDS).matches(item)
    with pytest.raises(BadRequest, match=r'only "metadata\.name", "metadata\.namespace"'):
        make_selection("", "spec.x=1", METADATA_FIELDS)


@pytest.mark.parametrize(
    ("selector", "name"), [("metadata.name=a", "a"), ("metadata.name!=a", ""), ("a=b", ""), ("metadata.name=a/b", "")]
)
def test_pinned_name(selector: str, name: str) -> None:
    """A selector that allows one name stands for that name, if it can be part of a path."""
    assert pinned_name(parse_field_selector(selector)) == name
