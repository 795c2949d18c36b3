"""What `/metrics` is made from, and the text of it; what makes that is loaded when it is first asked for."""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from apiserver.cluster.reflector import Reflector
from apiserver.cluster.view import View
from apiserver.delegation import Reviews
from apiserver.serving.authentication import Authenticator
from apiserver.serving.authorization import Authorizer
from apiserver.serving.limits import Inflight
from apiserver.serving.resources import GroupVersion
from apiserver.serving.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Access:
    """What finds out who asks and whether they may."""

    authenticator: Authenticator
    authorizer: Authorizer
    reviews: Reviews


@dataclass(slots=True)
class Measured:
    """Everything that is measured.

    Attributes:
        served: what is declared.
        inflight: counts what is being answered.
        view: what is known of classes.
        untold: says why nothing true can be told of them now, or None when it can.
        reflectors: what follows the cluster, when asked.
        access: None where everybody may do everything.
        traffic: counts the requests.
    """

    served: GroupVersion
    inflight: Inflight
    view: View
    untold: Callable[[], str | None] = lambda: None
    reflectors: Callable[[], Iterable[Reflector[Any]]] = tuple
    access: Access | None = None
    traffic: Traffic = field(init=False)
    _text: Callable[[], Awaitable[bytes]] | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.traffic = Traffic(self.served)

    async def text(self) -> bytes:
        """Everything as it is now, for Prometheus.

        The library is imported here and not with the server, whose start it would make a tenth longer; and in a
        thread, so that nobody else waits for it.
        """
        if self._text is None:
            collectors = await asyncio.to_thread(importlib.import_module, "apiserver.collectors")
            self._text = collectors.make_metrics(self).text
        return await self._text()
