"""How the log is written: as text for people, or as JSON, one object a line, with the keys of Kubernetes.

Only what this program says itself becomes more with `-v`. Libraries tell what they send and receive when asked for
more, the token of a TokenReview among it, and are heard from warnings upwards.

Source: component-base logs/json/json.go and klog (Kubernetes 1.37).
"""

import json
import logging
import sys
from collections.abc import Mapping
from typing import Final

import orjson

from apiserver.serving.httplog import REQUESTS, VALUES

_PROGRAM: Final = "apiserver"
_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG, REQUESTS)


def set_up(verbosity: int, logging_format: str) -> None:
    """Write the log to standard error.

    Args:
        verbosity: 0 for warnings and errors, 1 for notable events too, 2 for everything, 3 and more for each request.
        logging_format: "text" or "json".
    """
    logging.addLevelName(REQUESTS, "TRACE")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JSONFormatter() if logging_format == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger(_PROGRAM).setLevel(_LEVELS[min(verbosity, len(_LEVELS) - 1)])


class TextFormatter(logging.Formatter):
    """One line for a record, a traceback aside: what a client sent cannot begin another."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 # logging names it
        """The record without its traceback."""
        line = super().formatMessage(record)
        line = "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in line)
        values = "".join(f" {key}={json.dumps(value)}" for key, value in _values(record).items())
        return line + values


class JSONFormatter(logging.Formatter):
    """A JSON object with `ts` (milliseconds), `caller`, `msg`, `level`, and what belongs to it (`audit-ID`, …).

    As upstream has it, `v` is the `-v` from which on a record is written; errors lack it. `err` is a traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, object] = {
            "ts": record.created * 1000,
            "caller": f"{record.filename}:{record.lineno}",
            "logger": record.name,
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
        }
        if record.levelno < logging.ERROR:
            entry["v"] = next((v for v, level in enumerate(_LEVELS) if record.levelno >= level), len(_LEVELS))
        if record.exc_info:
            entry["err"] = self.formatException(record.exc_info)
        entry.update(_values(record))
        return orjson.dumps(entry, default=str).decode()


def _values(record: logging.LogRecord) -> Mapping[str, object]:
    values = getattr(record, VALUES, None)
    return values if isinstance(values, Mapping) else {}
