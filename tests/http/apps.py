"""aiohttp's test client for what `make_app` makes."""

from typing import Any

from aiohttp import web
from aiohttp.test_utils import BaseTestServer, TestClient

from apiserver.serving.server import App

Client = TestClient[web.BaseRequest, None]


class AppServer(BaseTestServer):
    """Lets a test client ask an app."""

    def __init__(self, app: App) -> None:
        super().__init__()
        self._app = app

    async def _make_runner(self, **kwargs: Any) -> web.ServerRunner:  # noqa: ANN401 # as the base class has it
        return web.ServerRunner(self._app.make_server(), **kwargs)

    async def close(self) -> None:
        """End the watches, then the server."""
        self._app.close()
        await super().close()
