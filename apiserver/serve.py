"""`serve`: the parts put together and kept running until a signal ends them."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from apiserver import __version__
from apiserver.catalog.gpuoffers import Offering
from apiserver.catalog.install import install
from apiserver.cluster.client import ClusterClient, ConfigurationError, connect
from apiserver.cluster.live import Live
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.delegation import Reviews, Trust
from apiserver.garbage import settle
from apiserver.inputs import STDIN, USER_AGENT, InputError, load_snapshot, make_tenancy, make_view, stamp
from apiserver.measured import Access, Measured
from apiserver.serving.authentication import Authenticator
from apiserver.serving.authorization import Authorizer, OpenPaths
from apiserver.serving.certificates import CertificateError, ServingContext, pair_from_files, self_signed
from apiserver.serving.documents import Documents
from apiserver.serving.filters import Filter, authenticating, authorizing, only_loopback
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Check, Health
from apiserver.serving.limits import Inflight, ending_in_time, limiting
from apiserver.serving.resources import GroupVersion
from apiserver.serving.server import listening, make_app
from apiserver.serving.shutdown import Shutdown
from apiserver.serving.versions import ServerClock, VersionSource
from apiserver.settings import Input, Settings
from apiserver.traces import tracing_filters
from apiserver.ui import PATH, make_page

_SNAPSHOT_POLL_SECONDS: Final = 1
_SWITCH_SECONDS: Final = 0.001
_CERTIFICATE_POLL_SECONDS: Final = 60
_SYNC_GRACE_SECONDS: Final = 60
"""After this the pod reports ready although it is not synced: were every replica unready, the APIService would be
unavailable, and with it the deletion of every namespace in the cluster."""


Work = Callable[[], Coroutine[Any, Any, None]]
"""What is done besides answering; begun when it is listened already, and ended last."""

Announce = Callable[[str], None]
"""Told the URL when it is listened there."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Run:
    """What every way to serve is given.

    Attributes:
        shutdown: says when to end.
        delay_seconds: for how long it is served on when told to end.
        traced: what comes once it is known who asks.
        announce: told where it is served.
    """

    shutdown: Shutdown
    delay_seconds: float
    traced: Sequence[Filter]
    announce: Announce


def serve(settings: Settings, announce: Announce = lambda _: None) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        settings: what to serve, and where.
        announce: told where that is, besides the log.

    Raises:
        InputError: the objects to serve cannot be had.
        OSError: the address or port cannot be had.
    """
    # A large Table is written in a thread of its own, and the loop waits so long for it at every call that gives way.
    sys.setswitchinterval(_SWITCH_SECONDS)
    with tracing_filters(settings) as traced, asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, _Run(Shutdown(), settings.shutdown_delay, traced, announce)))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The event loop of uvloop, where that is installed."""
    try:
        import uvloop  # noqa: PLC0415 # only Linux has it in the lock file
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _serve(settings: Settings, run: _Run) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, run.shutdown)
    way = {Input.SNAPSHOT: _serve_snapshot, Input.LOCAL: _serve_local, Input.CLUSTER: _serve_cluster}[settings.input]
    await way(settings, run)
    _log.info("stopped")


def _on_signal(shutdown: Shutdown) -> None:
    """Begin to end; who asks twice does not want to wait. Source: apiserver pkg/server/signal.go (1.37)."""
    if shutdown.problem() is not None:
        os._exit(1)
    _log.info("told to end: not ready any more, still serving")
    shutdown.begin()


async def _serve_until(run: _Run, server: AbstractAsyncContextManager[str], work: Work) -> None:
    """Listen, then work until told to end; the work goes on until the last request is answered.

    Raises:
        InputError: the work cannot be done.
    """
    working: asyncio.Task[None] | None = None
    try:
        async with server as url:
            _log.info("serving at %s", url)  # for the person or the harness that waits for it
            run.announce(url)
            working = asyncio.create_task(work(), name="work")
            told = asyncio.create_task(run.shutdown.wait(), name="shutdown")
            await asyncio.wait((working, told), return_when=asyncio.FIRST_COMPLETED)
            told.cancel()
            if working.done():
                return working.result()
            await asyncio.sleep(run.delay_seconds)
            _log.info("closing the listener, ending watches, answering what else is asked")
            run.shutdown.draining = True
    finally:
        if working is not None:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


# From a file.


async def _serve_snapshot(settings: Settings, run: _Run) -> None:
    view, tenancy = make_view(settings), make_tenancy(settings)
    load_snapshot(settings.snapshot).fill(view, tenancy, kubevirt=settings.kubevirt)
    versions = VersionSource(ServerClock(wall=datetime.now(UTC).timestamp()))
    health = Health(ready={"shutdown": run.shutdown.problem})
    inflight = Inflight(settings.max_requests_inflight)
    served = _install(settings, view, tenancy, versions, lambda: None, lambda: None)
    name = "standard input" if settings.snapshot == STDIN else Path(settings.snapshot).name
    handlers = _measured(Measured(served, inflight, view), health, {PATH: make_page(name)})
    app = make_app(handlers, [*run.traced, only_loopback, ending_in_time, limiting(inflight)], run.shutdown)
    server = listening(app, address=settings.bind_address, port=settings.insecure_port)

    async def work() -> None:
        if settings.snapshot == STDIN:
            await asyncio.Event().wait()
        await _reload_on_change(settings, view, tenancy, health)

    await _serve_until(run, server, work)


async def _reload_on_change(settings: Settings, view: View, tenancy: Tenancy | None, health: Health) -> None:
    """Take the file anew when it changes; a broken one is reported, and what was good before stays."""
    file = Path(settings.snapshot)
    problem: str | None = None
    health.ready["snapshot"] = lambda: problem
    seen = stamp(file)
    while True:
        await asyncio.sleep(_SNAPSHOT_POLL_SECONDS)
        now = stamp(file)
        if now == seen:
            continue
        seen = now
        try:
            load_snapshot(settings.snapshot).fill(view, tenancy, kubevirt=settings.kubevirt)
        except InputError as error:
            problem = str(error)
            _log.error("%s; still serving what was read before", error)
        else:
            problem = None
            _log.info("snapshot %s: read again", file)


# From a cluster.


async def _serve_local(settings: Settings, run: _Run) -> None:
    clock = ServerClock()
    view = make_view(settings)
    live, install_on = _make_live(settings, view)
    health = Health(ready={"shutdown": run.shutdown.problem, **_live_checks(live)})
    inflight = Inflight(settings.max_requests_inflight)
    served = install_on(VersionSource(clock))
    measured = Measured(served, inflight, view, live.untold, live.reflectors)
    handlers = _measured(measured, health, {PATH: make_page()})
    app = make_app(handlers, [*run.traced, only_loopback, ending_in_time, limiting(inflight)], run.shutdown)
    server = listening(app, address=settings.bind_address, port=settings.insecure_port)

    async def work() -> None:
        async with await _connect(settings, clock) as client:
            await _follow(live, client)

    await _serve_until(run, server, work)


async def _serve_cluster(settings: Settings, run: _Run) -> None:
    clock = ServerClock()
    view = make_view(settings)
    live, install_on = _make_live(settings, view)
    context = _serving_context(settings)
    reviews = Reviews()
    authenticator = Authenticator(token_reviewer=reviews.token)
    open_paths = OpenPaths(settings.always_allow_paths)
    authorizer = Authorizer(reviews.access, open_paths=open_paths)
    trust = Trust(authenticator, context)
    health = Health(
        ready={"shutdown": run.shutdown.problem, "authentication-config": trust.problem, **_live_checks(live)},
        hidden={"serving": _may_serve(run.shutdown, trust, live)},
    )
    inflight = Inflight(settings.max_requests_inflight)
    measured = Measured(
        install_on(VersionSource(clock)),
        inflight,
        view,
        untold=live.untold,
        reflectors=lambda: (*live.reflectors(), *trust.reflectors()),
        access=Access(authenticator, authorizer, reviews),
    )
    handlers = _measured(measured, health)
    authenticate = authenticating(authenticator, open_paths)
    filters = [ending_in_time, authenticate, *run.traced, limiting(inflight), authorizing(authorizer)]
    app = make_app(handlers, filters, run.shutdown)
    server = listening(app, address=settings.bind_address, port=settings.secure_port, tls=context.ssl_context)

    async def work() -> None:
        async with await _connect(settings, clock) as client, asyncio.TaskGroup() as group:
            reviews.client = client
            group.create_task(trust.follow(client), name="reflector authentication")
            group.create_task(_reload_certificate(context), name="certificate reload")
            group.create_task(_follow(live, client), name="live")

    await _serve_until(run, server, work)


async def _follow(live: Live, client: ClusterClient) -> None:
    """Follow the cluster until cancelled, and keep the collector of garbage from what is known of it."""
    async with asyncio.TaskGroup() as group:
        group.create_task(live.run(client), name="following")
        group.create_task(settle(live.unsynced), name="garbage")


def _measured(measured: Measured, health: Health, documents: Documents | None = None) -> Handlers:
    """What answers, and counts what it answers. Only on loopback there are documents: a page to look at."""
    return Handlers(
        measured.served,
        health,
        __version__,
        traffic=measured.traffic,
        metrics=measured.text,
        documents=documents,
    )


def _make_live(settings: Settings, view: View) -> tuple[Live, Callable[[VersionSource], GroupVersion]]:
    """What follows the cluster, and how what it knows is served."""
    tenancy = make_tenancy(settings)
    live = Live(view, tenancy=tenancy, kubevirt=settings.kubevirt, max_staleness=settings.max_staleness)
    return live, lambda versions: _install(settings, view, tenancy, versions, live.untold, live.tenants_untold)


def _install(
    settings: Settings, view: View, tenancy: Tenancy | None, versions: VersionSource, unsynced: Check, untold: Check
) -> GroupVersion:
    """What is served; the last two say why no true answer can be given yet, about classes and to tenants."""
    offering = None if tenancy is None else Offering(tenancy, settings.tenant_rules, untold)
    return install(view, versions, unsynced, offering, vm_memory_overhead=settings.vm_memory_overhead)


def _live_checks(live: Live) -> dict[str, Check]:
    """What people and alerts should know of the input; none of it takes the pod out of service."""
    return {
        "informer-sync": live.unsynced,
        "staleness": live.stale,
        "kubevirt": live.kubevirt_problem,
        "tenants": live.tenants_problem,
    }


def _may_serve(shutdown: Shutdown, trust: Trust, live: Live) -> Check:
    """The check behind a pod's readiness.

    The server is not about to end, callers can be told apart, and the first sync is done or was tried long.
    """
    started = time.monotonic()

    def check() -> str | None:
        in_grace = time.monotonic() - started < _SYNC_GRACE_SECONDS
        return shutdown.problem() or trust.problem() or (live.awaited() if in_grace else None)

    return check


def _serving_context(settings: Settings) -> ServingContext:
    """TLS from the files that are named, or from a certificate made for this run."""
    if settings.tls_cert_file and settings.tls_private_key_file:
        read_pair = pair_from_files(settings.tls_cert_file, settings.tls_private_key_file)
    else:
        pair = self_signed(["localhost", socket.gethostname()], ["127.0.0.1", "::1"])
        _log.warning("no --tls-cert-file: serving with a self-signed certificate that nobody can verify")
        read_pair = lambda: pair  # noqa: E731 # the constant counterpart of pair_from_files
    try:
        return ServingContext(read_pair)
    except CertificateError as error:
        raise InputError(f"--tls-cert-file, --tls-private-key-file: {error}") from error


async def _reload_certificate(context: ServingContext) -> None:
    while True:
        await asyncio.sleep(_CERTIFICATE_POLL_SECONDS)
        error = context.reload()
        if error is not None:
            _log.error("%s; still serving with the certificate read before", error)


async def _connect(settings: Settings, clock: ServerClock) -> ClusterClient:
    """The connection to the cluster; the clock learns the time from its answers."""
    try:
        return await connect(
            settings.kubeconfig,
            context=settings.context or None,
            user_agent=USER_AGENT,
            local=settings.input is Input.LOCAL,
            on_date=lambda date, _, received: clock.observe(date, received),
        )
    except ConfigurationError as error:
        raise InputError(str(error)) from error
