"""What `/metrics` says of requests, under the names, labels and buckets of Kubernetes, and the text it is said in.

Nothing is made before it is asked for: the numbers lie where they are counted.

Source: apiserver pkg/endpoints/metrics/metrics.go, pkg/endpoints/filters/metrics.go of Kubernetes 1.37.
"""

import asyncio
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from apiserver.serving.authentication import Authenticator
from apiserver.serving.authorization import Authorizer
from apiserver.serving.limits import Inflight
from apiserver.serving.resources import GroupVersion
from apiserver.serving.traffic import DURATION_BUCKETS, Figures, Histogram, Route, Traffic, total

_ROUTE: Final = Route._fields
_WITH_DRY_RUN: Final = (_ROUTE[0], "dry_run", *_ROUTE[1:])
_RESOURCE: Final = ("group", "version", "resource")
_SLI_BUCKETS: Final = DURATION_BUCKETS[2:]
"""Nothing here waits for a webhook or in a queue, so these are the durations once more, without the finest bounds."""
_NAMED_WITHOUT_TOTAL: Final = re.compile(rb"^((?:# (?:HELP|TYPE) )?authentication_attempts)_total\b", re.MULTILINE)
"""The library ends the name of every counter in `_total`; Kubernetes has one without."""


class Metrics:
    """The text of everything that is measured.

    Args:
        collectors: what is measured, besides the process itself.
    """

    def __init__(self, *collectors: Collector) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        for collector in collectors:
            self._registry.register(collector)

    async def text(self) -> bytes:
        """Everything as it is now, in version 0.0.4 of Prometheus' text format.

        The numbers are taken at once; writing them down is most of the work, and done beside the answering of requests.
        """
        return await asyncio.to_thread(_written, _Taken(tuple(self._registry.collect())))


class _Taken(Collector):
    """Families as they were at one time."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def _written(taken: _Taken) -> bytes:
    return _NAMED_WITHOUT_TOTAL.sub(rb"\1", generate_latest(taken))


class RequestMetrics(Collector):
    """What was counted of requests.

    Args:
        served: what is declared.
        traffic: counts them.
        inflight: counts those that are being answered.
    """

    def __init__(self, served: GroupVersion, traffic: Traffic, inflight: Inflight) -> None:
        self._group = (served.group, served.version)
        self._traffic = traffic
        self._inflight = inflight

    def collect(self) -> Iterator[Metric]:
        """All families, those without a sample too."""
        routes = list(self._traffic.figures.items())
        yield counter(
            "apiserver_request_total",
            "Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, "
            "component, and HTTP response code.",
            (*_WITH_DRY_RUN, "code"),
            (
                ((*_with_dry_run(route, dry_run), str(code)), count)
                for route, figures in routes
                for (dry_run, code), count in figures.codes.items()
            ),
        )
        yield from self._histograms(routes)
        yield gauge(
            "apiserver_longrunning_requests",
            "Gauge of all active long-running apiserver requests broken out by verb, group, version, resource, scope "
            "and component. Not all requests are tracked this way.",
            _ROUTE,
            ((route, figures.open) for route, figures in routes if route.verb == "WATCH"),
        )
        yield counter(
            "apiserver_watch_events_total",
            "Number of events sent in watch clients",
            _RESOURCE,
            (((*self._group, resource), count) for resource, count in self._traffic.events.items()),
        )
        yield counter(
            "apiserver_request_terminations_total",
            "Number of requests which apiserver terminated in self-defense.",
            (*_ROUTE, "code"),
            (((*route, str(code)), count) for route, figures in routes for code, count in figures.terminations.items()),
        )
        yield gauge(
            "apiserver_current_inflight_requests",
            "Maximal number of currently used inflight request limit of this apiserver per request kind in last "
            "second.",
            ("request_kind",),
            (
                (("readOnly",), self._inflight.highest(reads=True)),
                (("mutating",), self._inflight.highest(reads=False)),
            ),
        )

    def _histograms(self, routes: Iterable[tuple[Route, Figures]]) -> Iterator[Metric]:
        durations = HistogramMetricFamily(
            "apiserver_request_duration_seconds",
            "Response latency distribution in seconds for each verb, dry run value, group, version, resource, "
            "subresource, scope and component.",
            labels=_WITH_DRY_RUN,
        )
        indicators = HistogramMetricFamily(
            "apiserver_request_sli_duration_seconds",
            "Response latency distribution (not counting webhook duration and priority & fairness queue wait times) in "
            "seconds for each verb, group, version, resource, subresource, scope and component.",
            labels=_ROUTE,
        )
        sizes = HistogramMetricFamily(
            "apiserver_response_sizes",
            "Response size distribution in bytes for each group, version, verb, resource, subresource, scope and "
            "component.",
            labels=_ROUTE,
        )
        for route, figures in routes:
            for dry_run, histogram in figures.durations.items():
                _add(durations, _with_dry_run(route, dry_run), histogram)
            _add(indicators, route, total(figures.durations.values(), _SLI_BUCKETS))
            if any(figures.sizes.counts):
                _add(sizes, route, figures.sizes)
        yield durations
        yield indicators
        yield sizes


class AccessMetrics(Collector):
    """How often it was found out who asks and whether they may.

    Args:
        authenticator: finds out who.
        authorizer: finds out whether.
    """

    def __init__(self, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._authenticator = authenticator
        self._authorizer = authorizer

    def collect(self) -> Iterator[Metric]:
        """Both families."""
        yield counter(
            "authentication_attempts",
            "Counter of authenticated attempts.",
            ("result",),
            _by_name(self._authenticator.attempts),
        )
        yield counter(
            "authorization_attempts_total",
            "Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', "
            "'no-opinion' or 'error'.",
            ("result",),
            _by_name(self._authorizer.attempts),
        )


# The families of the library.

Samples = Iterable[tuple[Sequence[str], float]]
"""Values of the labels, and the number."""


def counter(name: str, documentation: str, labels: Sequence[str], samples: Samples) -> Metric:
    """A family of numbers that only grow."""
    family = CounterMetricFamily(name, documentation, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def gauge(name: str, documentation: str, labels: Sequence[str], samples: Samples) -> Metric:
    """A family of numbers that come and go."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, value in samples:
        family.add_metric(values, value)
    return family


def _by_name(counts: Mapping[str, int]) -> Samples:
    return [((name,), count) for name, count in counts.items()]


def _with_dry_run(route: Route, dry_run: str) -> tuple[str, ...]:
    return (route[0], dry_run, *route[1:])


def _add(family: HistogramMetricFamily, labels: Sequence[str], histogram: Histogram) -> None:
    buckets = [(_bound(bound), count) for bound, count in histogram.buckets()]
    family.add_metric(labels, buckets=buckets, sum_value=histogram.sum)


def _bound(value: float) -> str:
    """As Go writes it, for the bound is a label: 1 and not 1.0."""
    return "+Inf" if math.isinf(value) else f"{value:g}"
