"""Bare aiohttp with prepared bytes: the most that any program on this server can do.

Run as `python -m tests.bench.yardstick FILE PORT CERTIFICATE KEY AUTHORITY…`; the file holds a JSON object of paths
below /apis/GROUP/VERSION/ and what is answered there. Any other path is answered with an empty object.
"""

import asyncio
import json
import ssl
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvloop
from aiohttp import web

PARTS_OF_GROUP_VERSION = 4


async def serve(
    answers: Mapping[str, bytes], port: str, certificate: str, key: str, authorities: Sequence[str]
) -> None:
    """Serve until killed."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    for authority in authorities:
        context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    headers = {"Content-Type": "application/json"}

    async def answer(request: web.Request) -> web.Response:
        path = "/".join(request.path.split("/")[PARTS_OF_GROUP_VERSION:])
        return web.Response(body=answers.get(path, b"{}"), headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, keepalive_timeout=300)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", int(port), ssl_context=context).start()
    await asyncio.Event().wait()


def main() -> None:
    """Serve with the event loop that the catalog has too."""
    file, port, certificate, key, *authorities = sys.argv[1:]
    answers = {path: body.encode() for path, body in json.loads(Path(file).read_text()).items()}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(answers, port, certificate, key, authorities))


if __name__ == "__main__":
    main()
