"""Whether requests are traced: nothing of OpenTelemetry is imported, and no request costs more, unless they are."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from apiserver import __version__
from apiserver.inputs import InputError
from apiserver.serving.filters import Filter
from apiserver.settings import Settings


@contextmanager
def tracing_filters(settings: Settings) -> Iterator[Sequence[Filter]]:
    """The filter that traces requests, or none.

    On with `--tracing-endpoint`, or the variables of the OpenTelemetry SDK that name a collector.

    Raises:
        InputError: they are to be traced, and the extra `tracing` is not installed.
    """
    if not (settings.tracing_endpoint or _is_on_by_environment()):
        yield ()
        return
    try:
        from apiserver.serving.tracing import exporting, tracing  # noqa: PLC0415 # an extra, and seldom wanted
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("opentelemetry"):
            raise
        raise InputError(
            "--tracing-endpoint, or OTEL_EXPORTER_OTLP_ENDPOINT: traces need the extra: "
            "pip install 'gpuclass-catalog[tracing]'"
        ) from error
    with exporting(settings.tracing_endpoint, service="gpuclass-catalog", version=__version__) as tracer:
        yield (tracing(tracer),)


def _is_on_by_environment() -> bool:
    names = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    is_off = (
        os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or os.environ.get("OTEL_TRACES_EXPORTER") == "none"
    )
    return not is_off and any(os.environ.get(name) for name in names)
