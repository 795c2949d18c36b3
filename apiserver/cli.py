"""The command line: what was asked for is checked, run, and answered with an exit code."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

import orjson
import yaml

from apiserver.browsing import show_page
from apiserver.catalog.install import install
from apiserver.inputs import InputError, load_cluster, load_snapshot, make_view
from apiserver.logs import set_up
from apiserver.printing import format_table
from apiserver.serving.history import Stored
from apiserver.serving.pages import Page
from apiserver.serving.reading import list_body
from apiserver.serving.resources import Resource
from apiserver.serving.store import Listing
from apiserver.serving.tables import INCLUDE_NONE, make_table
from apiserver.serving.versions import ServerClock, VersionSource
from apiserver.settings import Input, Settings, SettingsError, read_settings

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2


def run(arguments: Sequence[str]) -> int:
    """Run one command.

    Returns:
        0 when all went well, 1 when it failed, 2 when the settings are wrong.
    """
    try:
        command, settings = read_settings(arguments)
    except SettingsError as error:
        for problem in error.problems:
            _complain(problem)
        return EXIT_USAGE
    set_up(settings.verbosity, settings.logging_format)
    try:
        if command == "get":
            return get(settings)
        from apiserver.serve import serve  # noqa: PLC0415 # cryptography and the server take long to import

        if command == "ui":
            serve(settings, partial(show_page, open_browser=settings.open_browser))
        else:
            serve(settings)
    except (InputError, OSError) as error:
        _complain(str(error))
        return EXIT_FAILED
    return EXIT_OK


def get(settings: Settings) -> int:
    """Print the catalog once."""
    view = make_view(settings)
    if settings.input is Input.SNAPSHOT:
        load_snapshot(settings.snapshot).fill(view, kubevirt=settings.kubevirt)
    else:
        asyncio.run(load_cluster(settings, view))
    versions = VersionSource(ServerClock(wall=datetime.now(UTC).timestamp()))
    served = install(view, versions, lambda: None)
    resource = served.resources[0]
    listing = asyncio.run(_list(resource))
    if not settings.name:
        tree = orjson.loads(list_body(served, resource, Page({"resourceVersion": listing.version}, listing.items)))
        _print(tree, listing.items, resource, settings.output)
        return EXIT_OK
    found = next((item for item in listing.items if item.object["metadata"]["name"] == settings.name), None)
    if found is None:
        _complain(f'{resource.plural}.{served.group} "{settings.name}" not found')
        return EXIT_FAILED
    _print(found.object, [found], resource, settings.output)
    return EXIT_OK


async def _list(resource: Resource) -> Listing:
    async with resource.store.open("") as store:
        return store.list()


def _print(tree: object, items: Sequence[Stored], resource: Resource, output: str) -> None:
    if output == "json":
        text = orjson.dumps(tree, option=orjson.OPT_INDENT_2).decode() + "\n"
    elif output == "yaml":
        text = yaml.safe_dump(tree, sort_keys=True, allow_unicode=True)
    else:
        objects = [item.object for item in items]
        now = datetime.now(UTC)
        table = make_table(resource.layout, objects, metadata={}, include=INCLUDE_NONE, version="v1", now=now)
        text = format_table(table, wide=output == "wide")
    sys.stdout.write(text)


def _complain(text: str) -> None:
    sys.stderr.write(f"gpuclass-catalog: {text}\n")
