"""What is counted of requests while they are answered. It is done for each of them, so it only adds to plain numbers.

Values of labels come from what is declared or from short lists, never from a client: who asks for what does not exist
cannot make this grow.

Source: apiserver pkg/endpoints/metrics/metrics.go of Kubernetes 1.37.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from apiserver.serving.answers import Answer
from apiserver.serving.health import ENDPOINTS
from apiserver.serving.request_info import RequestInfo
from apiserver.serving.resources import GroupVersion

if TYPE_CHECKING:
    from apiserver.serving.requests import Request, Response

ABANDONED: Final = 0
"""The code of a request whose client left before there was an answer."""

# fmt: off
DURATION_BUCKETS: Final = (
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
)
# fmt: on
SIZE_BUCKETS: Final = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)

_COMPONENT: Final = "apiserver"
_METHODS: Final = frozenset(
    "APPLY CONNECT CREATE DELETE DELETECOLLECTION GET LIST PATCH POST PROXY PUT UPDATE WATCH".split()  # noqa: SIM905
)
_SIZED: Final = ("GET", "LIST")
_OTHER: Final = "other"
_NAMED_PATHS: Final = frozenset(("/apis", *(f"/{endpoint}" for endpoint in ENDPOINTS)))
"""What is no resource and yet stands in the label `subresource`, as upstream has it."""


class Route(NamedTuple):
    """What requests have in common that are counted together, in the words of the labels."""

    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    scope: str
    component: str


class Histogram:
    """How many values fell below each bound.

    Args:
        bounds: inclusive upper bounds, ascending; one without a bound follows.

    Attributes:
        counts: how many fell between a bound and the one before it.
        sum: of all values.
    """

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value

    def buckets(self) -> list[tuple[float, int]]:
        """Each bound with how many values do not exceed it; the last bound is infinity."""
        total, found = 0, []
        for bound, count in zip((*self._bounds, float("inf")), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


def total(parts: Iterable[Histogram], bounds: Sequence[float]) -> Histogram:
    """All values of these histograms in one.

    Args:
        parts: of the same bounds.
        bounds: what remains of those, without the lowest.
    """
    whole = Histogram(bounds)
    for part in parts:
        spare = len(part.counts) - len(whole.counts)
        merged = [sum(part.counts[: spare + 1]), *part.counts[spare + 1 :]]
        whole.counts = [one + other for one, other in zip(whole.counts, merged, strict=True)]
        whole.sum += part.sum
    return whole


class Figures:
    """What was counted of one route.

    Attributes:
        codes: answers, by `dryRun` and HTTP status.
        durations: seconds until the answer was made, by `dryRun`.
        sizes: bytes of the answers to GET and LIST.
        terminations: what was ended in self-defence, by HTTP status.
        open: watches now.
    """

    __slots__ = ("codes", "durations", "open", "sizes", "terminations")

    def __init__(self) -> None:
        self.codes: Counter[tuple[str, int]] = Counter()
        self.durations: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(DURATION_BUCKETS))
        self.sizes = Histogram(SIZE_BUCKETS)
        self.terminations: Counter[int] = Counter()
        self.open = 0


class Traffic:
    """Counts for one group and version.

    Args:
        served: what is declared; nothing else is named.

    Attributes:
        figures: what was counted, by route.
        events: sent to watches, by resource.
    """

    def __init__(self, served: GroupVersion) -> None:
        self._served = served
        self._known: dict[tuple[str, ...], tuple[Route, Figures]] = {}
        self.figures: dict[Route, Figures] = {}
        self.events: Counter[str] = Counter()

    def of(self, method: str, info: RequestInfo) -> tuple[Route, Figures]:
        """Where a request is counted."""
        path = "" if info.is_resource_request else info.path
        scope = _scope(info)
        key = (method, info.verb, info.group, info.version, info.resource, info.subresource, scope, path)
        known = self._known.get(key)
        if known is not None:
            return known
        route = self._route(method, info, scope)
        figures = self.figures.setdefault(route, Figures())
        if method in _METHODS and route[1:5] == (info.group, info.version, info.resource, info.subresource or path):
            self._known[key] = route, figures
        return route, figures

    def count(self, request: "Request", info: RequestInfo, response: "Response | None", took: float) -> None:
        """Count one request that is over.

        Args:
            request: the request.
            info: what it asked for.
            response: the answer, or None when the client left before there was one, or left a watch.
            took: seconds.
        """
        method = request.method
        if method == "PATCH" and request.headers.get("Content-Type") == "application/apply-patch+yaml":
            method = "APPLY"
        route, figures = self.of(method, info)
        dry_run = _dry_run(request) if "dryRun" in request.raw_path else ""
        code = (request.begun or ABANDONED) if response is None else response.status
        figures.codes[dry_run, code] += 1
        figures.durations[dry_run].observe(took)
        if isinstance(response, Answer) and route.verb in _SIZED:
            figures.sizes.observe(len(response.body))
        if request.terminated is not None:
            figures.terminations[request.terminated] += 1

    def counter(self, request: "Request", info: RequestInfo) -> Callable[[Answer, float], None]:
        """What counts further answers to the same request, which asks for no dry run: the answer, and its seconds."""
        route, figures = self.of(request.method, info)
        codes, observe = figures.codes, figures.durations[""].observe
        observe_size = figures.sizes.observe if route.verb in _SIZED else None

        def count(answer: Answer, took: float) -> None:
            codes["", answer.status] += 1
            observe(took)
            if observe_size is not None:
                observe_size(len(answer.body))

        return count

    def watch(self, request: "Request", info: RequestInfo) -> "WatchCount":
        """What counts a watch that is about to begin."""
        return WatchCount(self, request, info)

    def _route(self, method: str, info: RequestInfo, scope: str) -> Route:
        """The labels of a request, cleaned of everything a client can make up."""
        if not info.is_resource_request:
            subresource = info.path if info.path in _NAMED_PATHS else ""
            component = _COMPONENT if info.path.startswith("/api") else ""
            return Route(_verb(method, info, scope), "", "", "", subresource, scope, component)
        group = version = resource = subresource = ""
        if (info.group, info.version) == (self._served.group, self._served.version):
            group, version = info.group, info.version
            declared = self._served.resource(info.resource)
            if declared is not None:
                resource = declared.plural
                known = declared.subresource(info.subresource)
                subresource = known.name if known is not None else ""
        return Route(_verb(method, info, scope), group, version, resource, subresource, scope, _COMPONENT)


class WatchCount:
    """Counts one watch and its events.

    Args:
        traffic: where.
        request: the request for it.
        info: what it asks for.
    """

    def __init__(self, traffic: Traffic, request: "Request", info: RequestInfo) -> None:
        self._events = traffic.events
        self._request = request
        self._route, self._figures = traffic.of(request.method, info)

    @contextmanager
    def open(self, status: int) -> Iterator[None]:
        """Count it as open; the head of the answer is sent, with this HTTP status."""
        self._request.begun = status
        self._figures.open += 1
        try:
            yield
        finally:
            self._figures.open -= 1

    def sent(self, events: int) -> None:
        """Count events that were sent."""
        self._events[self._route.resource] += events


def _scope(info: RequestInfo) -> str:
    """Source: CleanScope."""
    if info.name or info.verb == "create":
        return "resource"
    if info.namespace:
        return "namespace"
    return "cluster" if info.is_resource_request else ""


def _verb(method: str, info: RequestInfo, scope: str) -> str:
    """Source: CanonicalVerb and cleanVerb."""
    if info.verb == "watch":
        return "WATCH"
    if method in ("GET", "HEAD"):
        return "LIST" if scope in ("namespace", "cluster") else "GET"
    return method if method in _METHODS else _OTHER


def _dry_run(request: "Request") -> str:
    """Source: cleanDryRun; `All` is the one value there is."""
    values = request.query.getall("dryRun", [])
    return ",".join(sorted(set(values))) if all(value == "All" for value in values) else "invalid"
