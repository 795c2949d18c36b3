"""Label and field selectors.

Source: apimachinery pkg/labels (selector.go) and pkg/fields (selector.go) of Kubernetes 1.37.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from apiserver.serving.status import BadRequest

Object = Mapping[str, Any]
FieldGetter = Callable[[Object], str]

_LABEL_NAME: Final = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
)
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?")
_TOKEN: Final = re.compile(r"\s*(==|!=|=|!|,|\(|\)|>|<|[^\s=!,()<>]+)")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_SYMBOLS: Final = frozenset(["==", "!=", "=", "!", ",", "(", ")", ">", "<"])


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term of a selector; all terms must hold.

    Attributes:
        key: label or field.
        operator: =, ==, !=, in, notin, exists, !, > or <.
        values: sorted; empty for exists and !.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, found: str | None) -> bool:
        """Whether the term holds for a value, or for its absence."""
        match self.operator:
            case "=" | "==" | "in":
                return found in self.values
            case "!=" | "notin":
                return found not in self.values
            case "exists":
                return found is not None
            case "!":
                return found is None
            case _:
                return self._compares(found)

    def _compares(self, found: str | None) -> bool:
        if found is None or not _INTEGER.fullmatch(found):
            return False
        bound = int(self.values[0])
        return int(found) > bound if self.operator == ">" else int(found) < bound


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """The objects a request is about. The same one is made use of by all who ask in the same words, as far as possible.

    Attributes:
        labels: terms about metadata.labels.
        fields: terms about fields.
        getters: where a field is found in an object, as text.
    """

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()
    getters: Mapping[str, FieldGetter] | None = None

    @property
    def selects_all(self) -> bool:
        """Whether nothing is left out."""
        return not self.labels and not self.fields

    def matches(self, item: Object) -> bool:
        """Whether the object is one of them."""
        if self.labels:
            found = item["metadata"].get("labels") or {}
            for term in self.labels:
                if not term.holds(found.get(term.key)):
                    return False
        getters = self.getters or {}
        for term in self.fields:  # noqa: SIM110 # a generator takes twice as long, and each watch asks for each event
            if not term.holds(getters[term.key](item)):
                return False
        return True


METADATA_FIELDS: Final[Mapping[str, FieldGetter]] = {
    "metadata.name": lambda item: str(item["metadata"]["name"]),
    "metadata.namespace": lambda item: str(item["metadata"].get("namespace", "")),
}
"""The fields every resource can be selected by."""


def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """The terms of a label selector.

    Raises:
        BadRequest: it is not one.
    """
    return _LabelParser(text).parse()


def parse_field_selector(text: str) -> tuple[Requirement, ...]:
    """The terms of a field selector; the same as a label selector's but for the operators and what a value may hold.

    Raises:
        BadRequest: it is not one.
    """
    terms = []
    for part in _split_terms(text):
        match = re.fullmatch(r"([^=!]*)(==|!=|=)(.*)", part, re.DOTALL)
        if match is None:
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{part}'")
        key, operator, value = match.groups()
        terms.append(Requirement(key, "=" if operator == "==" else operator, (_unescape(value),)))
    return tuple(terms)


EVERYTHING: Final = Selection()


def make_selection(labels: str, fields: str, getters: Mapping[str, FieldGetter]) -> Selection:
    """What two selectors select together.

    Raises:
        BadRequest: one of them is none, or names a field that cannot be selected by.
    """
    if not labels and not fields:
        return EVERYTHING
    field_terms = parse_field_selector(fields)
    for term in field_terms:
        if term.key not in getters:
            known = ", ".join(f'"{key}"' for key in getters)
            raise BadRequest(f'"{term.key}" is not a known field selector: only {known}')
    return Selection(parse_label_selector(labels), field_terms, getters)


def pinned_name(fields: Sequence[Requirement]) -> str:
    """The one name that the terms allow, or "" when they allow more, or one that is no part of a path."""
    name = next((term.values[0] for term in fields if term.key == "metadata.name" and term.operator == "="), "")
    return "" if name in (".", "..") or "/" in name or "%" in name else name


def _split_terms(text: str) -> Iterator[str]:
    """The terms between commas; a backslash keeps a comma in a value. Empty terms are passed over."""
    yield from re.findall(r"(?:[^,\\]|\\.)+|\\$", text, re.DOTALL)


def _unescape(value: str) -> str:
    def unescaped(match: re.Match[str]) -> str:
        if match[1] not in ("\\", ",", "="):
            raise BadRequest(f"invalid field selector: invalid escape sequence in '{value}'")
        return match[1]

    if re.fullmatch(r"(?:[^=\\]|\\.?)*", value, re.DOTALL) is None:
        raise BadRequest(f"invalid field selector: unescaped character in value: '{value}'")
    return re.sub(r"\\(.?)", unescaped, value, flags=re.DOTALL)


class _LabelParser:
    """Reads the grammar of label selectors, token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._at = 0

    def parse(self) -> tuple[Requirement, ...]:
        terms = []
        while self._peek():
            terms.append(self._term())
            if not self._peek():
                break
            self._expect(",")
            if not self._peek():
                raise self._error("found '', expected: identifier after ','")
        return tuple(terms)

    def _split(self, text: str) -> list[str]:
        tokens, at = [], 0
        stripped = text.rstrip()
        while at < len(stripped):
            match = _TOKEN.match(stripped, at)
            if match is None:
                raise self._error(f"unexpected '{stripped[at]}'")
            tokens.append(match[1])
            at = match.end()
        return tokens

    def _term(self) -> Requirement:
        if self._peek() == "!":
            self._next()
            return Requirement(self._key(), "!")
        key = self._key()
        operator = self._peek()
        if operator in ("", ","):
            return Requirement(key, "exists")
        self._next()
        if operator in ("in", "notin"):
            return Requirement(key, operator, self._set())
        if operator in ("=", "==", "!="):
            value = self._value() if self._peek() not in ("", ",") else ""
            return Requirement(key, "=" if operator == "==" else operator, (value,))
        if operator in (">", "<"):
            return Requirement(key, operator, (self._bound(),))
        raise self._error(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")

    def _key(self) -> str:
        key = self._next()
        if not _LABEL_NAME.fullmatch(key):
            raise self._error(f"invalid label key '{key}'")
        return key

    def _value(self) -> str:
        value = self._next()
        if value in _SYMBOLS:
            raise self._error(f"found '{value}', expected: identifier")
        if not _LABEL_VALUE.fullmatch(value):
            raise self._error(f"invalid label value '{value}'")
        return value

    def _bound(self) -> str:
        value = self._value()
        if not _INTEGER.fullmatch(value):
            raise self._error(f"for 'Gt', 'Lt' operators, the value must be an integer, not '{value}'")
        return value

    def _set(self) -> tuple[str, ...]:
        self._expect("(")
        values = {""} if self._peek() in (",", ")") else {self._value()}
        while self._peek() == ",":
            self._next()
            values.add("" if self._peek() in (",", ")") else self._value())
        self._expect(")")
        return tuple(sorted(values))

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._next()
        if found != token:
            raise self._error(f"found '{found}', expected: '{token}'")

    def _error(self, what: str) -> BadRequest:
        return BadRequest(f"unable to parse requirement: {what} in label selector '{self._text}'")
