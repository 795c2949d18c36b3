"""What `/metrics` says besides requests: how the cluster is followed, what it is asked for, and the figures of classes.

Everything is read when it is asked for, so that following and counting cost nothing for it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from apiserver.catalog.gpuclasses import figures, int64
from apiserver.cluster.reflector import Reflector
from apiserver.cluster.view import ClassReport, View
from apiserver.delegation import AUTHN_REVIEWS, AUTHZ_REVIEWS, Reviews
from apiserver.gpu.capacity import Tally
from apiserver.measured import Measured
from apiserver.serving.metrics import AccessMetrics, Metrics, RequestMetrics, counter, gauge

_COLLECTION: Final = ("collection",)
_CLASS: Final = ("class",)
_RESOURCE: Final = ("resource",)
_SHARED: Final = "Classes that sell the same resource name each count all of its devices."
_ONCE: Final = "On nodes eligible for any class that sells it; each device counts once."
_DELEGATED: Final = (
    ("apiserver_delegated_authn_request_total", AUTHN_REVIEWS),
    ("apiserver_delegated_authz_request_total", AUTHZ_REVIEWS),
)
_NO_ANSWER: Final = "<error>"
"""The code of a request that was not answered, as upstream writes it."""


def make_metrics(measured: Measured) -> Metrics:
    """The metrics of a server."""
    return Metrics(*collectors(measured))


def collectors(measured: Measured) -> list[Collector]:
    """What is measured of a server, besides its process."""
    found: list[Collector] = [RequestMetrics(measured.served, measured.traffic, measured.inflight)]
    if measured.access is not None:
        access = measured.access
        found += AccessMetrics(access.authenticator, access.authorizer), ReviewMetrics(access.reviews)
    found += ReflectorMetrics(measured.reflectors), ClassMetrics(measured.view, measured.untold)
    return found


class ReflectorMetrics(Collector):
    """How each collection is followed.

    Args:
        reflectors: those there are, when asked.
    """

    def __init__(self, reflectors: Callable[[], Iterable[Reflector[Any]]]) -> None:
        self._reflectors = reflectors

    def collect(self) -> Iterator[Metric]:
        """One sample for each collection; no age before the first complete list."""
        each = {reflector.collection.path.rpartition("/")[2]: reflector for reflector in self._reflectors()}
        yield gauge(
            "gpuclass_catalog_reflector_age_seconds",
            "Seconds since the latest time up to which everything in the collection is known to have been told.",
            _COLLECTION,
            [((name,), reflector.age) for name, reflector in each.items() if reflector.age is not None],
        )
        yield gauge(
            "gpuclass_catalog_reflector_synced",
            "Whether the collection was listed completely at least once.",
            _COLLECTION,
            [((name,), reflector.synced) for name, reflector in each.items()],
        )
        for name, documentation in (
            ("events", "Changes that watches of the collection brought."),
            ("lists", "Lists of the collection that were begun."),
            ("watches", "Watches of the collection that were begun."),
            ("failures", "Lists and watches of the collection that failed."),
        ):
            samples = [((label,), getattr(reflector.counters, name)) for label, reflector in each.items()]
            yield counter(f"gpuclass_catalog_reflector_{name}_total", documentation, _COLLECTION, samples)


class ReviewMetrics(Collector):
    """What kube-apiserver was asked about callers.

    Args:
        reviews: asks it.
    """

    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews

    def collect(self) -> Iterator[Metric]:
        """One sample for each HTTP status."""
        client = self._reviews.client
        posts = client.posts if client is not None else {}
        for name, asked in _DELEGATED:
            samples = [((str(code or _NO_ANSWER),), count) for (path, code), count in posts.items() if path == asked]
            yield counter(name, "Number of HTTP requests partitioned by status code.", ("code",), samples)


class ClassMetrics(Collector):
    """The figures of classes and resource names. While no true one can be told, there is none.

    Args:
        view: what is known.
        untold: says why no true answer can be given now, or None when one can.
    """

    def __init__(self, view: View, untold: Callable[[], str | None]) -> None:
        self._view = view
        self._untold = untold

    def collect(self) -> Iterator[Metric]:
        """One sample for each class, and for each resource name that is sold."""
        is_told = self._untold() is None
        yield gauge(
            "gpuclass_catalog_view_current",
            "1 while the figures of classes are told, 0 while reading them is refused with 503.",
            (),
            [((), is_told)],
        )
        if is_told:
            reports = [(name, report) for name in sorted(self._view.names()) if (report := self._view.report(name))]
            pending = {name: int64(self._view.waiting(name).pending) for name, _ in reports}
            yield from self._of_classes(reports, pending)
            yield from self._of_resources({each.gpu_class.resource_name: pending[name] for name, each in reports})

    def _of_classes(self, reports: list[tuple[str, ClassReport]], pending: Mapping[str, int]) -> Iterator[Metric]:
        status = [((name,), figures(report)) for name, report in reports]
        for key, documentation in (
            ("allocatable", "Devices that the nodes eligible for the class offer."),
            ("requested", "Devices held by pods on nodes eligible for the class."),
            ("free", "Devices free now on nodes eligible for the class."),
            ("overcommitted", "Devices that pods hold beyond what their node offers, on nodes eligible for the class."),
            ("unavailable", "Devices that are sick, or on nodes not eligible for the class."),
        ):
            samples = [(labels, each[key]) for labels, each in status]
            yield gauge(f"gpuclass_devices_{key}", f"{documentation} {_SHARED}", _CLASS, samples)
        waiting = [((name,), count) for name, count in pending.items()]
        documentation = f"Devices that pods without a node ask for. {_SHARED}"
        yield gauge("gpuclass_devices_pending", documentation, _CLASS, waiting)
        largest = [(labels, each["maxFreePerNode"]) for labels, each in status]
        yield gauge(
            "gpuclass_max_free_per_node", "The most devices of the class free on any one node.", _CLASS, largest
        )
        offered = [((name, str(report.offer.reason)), report.offer.offered) for name, report in reports]
        yield gauge("gpuclass_offered", "Whether the class can be ordered, and why.", ("class", "reason"), offered)

    def _of_resources(self, pending: Mapping[str, int]) -> Iterator[Metric]:
        tallies = [((name,), tally) for name, tally in self._view.resources()]
        for key, documentation in (
            ("allocatable", "Devices of the resource name that nodes offer."),
            ("requested", "Devices of the resource name held by pods."),
            ("free", "Devices of the resource name free now."),
            ("overcommitted", "Devices of the resource name that pods hold beyond what their node offers."),
        ):
            yield self._of_resource(key, f"{documentation} {_ONCE}", tallies)
        for key, documentation in (
            ("unavailable", "Devices of the resource name that are sick, or on nodes eligible for no class."),
            (
                "unhealthy",
                "Devices of the resource name that a node has and does not offer, eligible or not: the sick.",
            ),
        ):
            yield self._of_resource(key, documentation, tallies)
        waiting = [(labels, pending[labels[0]]) for labels, _ in tallies]
        documentation = "Devices of the resource name that pods without a node ask for."
        yield gauge("gpuclass_resource_devices_pending", documentation, _RESOURCE, waiting)

    def _of_resource(self, key: str, documentation: str, tallies: list[tuple[tuple[str], Tally]]) -> Metric:
        samples = [(labels, int64(getattr(tally, key))) for labels, tally in tallies]
        return gauge(f"gpuclass_resource_devices_{key}", documentation, _RESOURCE, samples)
