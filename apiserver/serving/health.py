"""Health endpoints: /healthz, /livez and /readyz, each a list of named checks.

Source: apiserver pkg/server/healthz (healthz.go) of Kubernetes 1.37.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Check = Callable[[], str | None]
"""Says what is wrong, or None."""

ENDPOINTS: Final = ("healthz", "livez", "readyz")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthAnswer:
    """What a health endpoint answers, as plain text."""

    code: int
    text: str


def _alive() -> str | None:
    return None


def is_health_path(path: str) -> bool:
    """Whether a path is a health endpoint, or one of its checks."""
    return path.strip("/").partition("/")[0] in ENDPOINTS


@dataclass(slots=True)
class Health:
    """The checks of a server.

    Attributes:
        live: what shows that the process must be started anew.
        ready: in addition, what shows that the server is not at its best.
        hidden: checks that answer on their own path only, as /readyz/NAME.
    """

    live: dict[str, Check] = field(default_factory=lambda: {"ping": _alive})
    ready: dict[str, Check] = field(default_factory=dict)
    hidden: dict[str, Check] = field(default_factory=dict)

    def answer(self, path: str, query: Mapping[str, str], excluded: Sequence[str] = ()) -> HealthAnswer | None:
        """The answer on a path, or None when the path is no health endpoint.

        Args:
            path: such as /readyz or /readyz/ping.
            query: `verbose` lists the checks that pass too.
            excluded: values of `exclude`.
        """
        endpoint, _, name = path.strip("/").partition("/")
        if endpoint not in ENDPOINTS:
            return None
        checks = self.live | self.ready if endpoint == "readyz" else self.live
        if name:
            check = checks.get(name) or (self.hidden.get(name) if endpoint == "readyz" else None)
            return None if check is None else _single(check)
        return _all(endpoint, checks, excluded, verbose="verbose" in query)


def _single(check: Check) -> HealthAnswer:
    problem = check()
    return HealthAnswer(200, "ok") if problem is None else HealthAnswer(500, f"internal server error: {problem}\n")


def _all(endpoint: str, checks: Mapping[str, Check], excluded: Collection[str], *, verbose: bool) -> HealthAnswer:
    lines, healthy = [], True
    for name, check in checks.items():
        problem = None if name in excluded else check()
        if name in excluded:
            lines.append(f"[+]{name} excluded: ok")
        elif problem is None:
            lines.append(f"[+]{name} ok")
        else:
            healthy = False
            lines.append(f"[-]{name} failed: reason withheld")
            _log.warning("%s check %s failed: %s", endpoint, name, problem)
    unknown = [name for name in excluded if name not in checks]
    if unknown:
        names = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    if not healthy:
        return HealthAnswer(500, "\n".join([*lines, f"{endpoint} check failed", ""]))
    return HealthAnswer(200, "\n".join([*lines, f"{endpoint} check passed", ""]) if verbose else "ok")
