"""Which representation a client gets: media type, Table or metadata only, pretty or not.

Source: apiserver pkg/endpoints/handlers/negotiation (negotiate.go, errors.go) and munnerz/goautoneg, Kubernetes 1.37.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from apiserver.serving.request_info import is_true_like
from apiserver.serving.status import NotAcceptable

JSON: Final = "application/json"
YAML: Final = "application/yaml"
TABLE: Final = "Table"
PARTIAL: Final = "PartialObjectMetadata"
PARTIAL_LIST: Final = "PartialObjectMetadataList"
META_GROUP: Final = "meta.k8s.io"

_CONVERSIONS: Final = frozenset({TABLE, PARTIAL, PARTIAL_LIST})
_CONVERSION_VERSIONS: Final = frozenset({"v1", "v1beta1"})
_PRETTY_AGENTS: Final = ("curl", "Wget", "Mozilla/5.0")


@dataclass(frozen=True, slots=True)
class Clause:
    """One media range of an Accept header."""

    type: str
    subtype: str
    quality: float = 1.0
    parameters: Mapping[str, str] = field(default_factory=dict)

    def matches(self, media_type: str) -> bool:
        """Whether the media type lies in the range."""
        type_, _, subtype = media_type.partition("/")
        return self.type in ("*", type_) and self.subtype in ("*", subtype)


@dataclass(frozen=True, slots=True)
class Representation:
    """What was agreed on.

    Attributes:
        media_type: JSON or YAML.
        convert_to: TABLE, PARTIAL, PARTIAL_LIST, or "" for the object itself.
        convert_version: version of meta.k8s.io, when converted.
        pretty: indented for a person, as a parameter of the media type asks.
    """

    media_type: str = JSON
    convert_to: str = ""
    convert_version: str = ""
    pretty: bool = False


@lru_cache(maxsize=512)
def parse_accept(header: str) -> tuple[Clause, ...]:
    """The clauses of an Accept header, most wanted first; those of equal worth keep their order."""
    clauses = [clause for part in header.split(",") if (clause := _parse_clause(part)) is not None]
    return tuple(sorted(clauses, key=lambda clause: (-clause.quality, clause.type == "*", clause.subtype == "*")))


@lru_cache(maxsize=512)
def negotiate(accept: str, *, stream: bool = False) -> Representation:
    """The first clause that can be served. A clause with a conversion that is not known is passed over.

    Args:
        accept: the header.
        stream: for a watch, which comes in JSON only.

    Raises:
        NotAcceptable: none can be served.
    """
    offers = (JSON,) if stream else (JSON, YAML)
    for clause in parse_accept(accept or "*/*"):
        media_type = next((offered for offered in offers if clause.matches(offered)), None)
        if media_type is None or not _is_known_form(clause):
            continue
        parameters = clause.parameters
        return Representation(
            media_type, parameters.get("as", ""), parameters.get("v", ""), parameters.get("pretty") == "1"
        )
    accepted = ", ".join(f"{offered};stream=watch" if stream else offered for offered in offers)
    raise NotAcceptable(f"only the following media types are accepted: {accepted}")


def wants_pretty(representation: Representation, query: Mapping[str, str], user_agent: str) -> bool:
    """Whether to indent: as the query says, else as the media type says, else for people's own clients."""
    if "pretty" in query:
        return is_true_like(query["pretty"])
    return representation.pretty or user_agent.startswith(_PRETTY_AGENTS)


def _is_known_form(clause: Clause) -> bool:
    """Whether the parameters ask for nothing, or for what can be made; those that mean nothing here are ignored."""
    parameters = clause.parameters
    if parameters.get("stream", "") not in ("", "watch") or parameters.get("sv"):
        return False
    asked = [parameters.get(key) for key in ("as", "g", "v")]
    if asked == [None, None, None]:
        return True
    kind, group, version = asked
    return kind in _CONVERSIONS and group == META_GROUP and version in _CONVERSION_VERSIONS


def _parse_clause(text: str) -> Clause | None:
    range_, *rest = (part.strip() for part in text.split(";"))
    type_, slash, subtype = range_.partition("/")
    if not type_ or (not slash and type_ != "*"):
        return None
    parameters = {key.strip(): value.strip().strip('"') for key, _, value in (part.partition("=") for part in rest)}
    try:
        quality = float(parameters.pop("q", "1"))
    except ValueError:
        quality = 1.0
    return Clause(type_, subtype or "*", quality, parameters)
