#!/usr/bin/env python3
"""Follow what can be ordered, as a dashboard does: list once, then watch; nothing but the standard library.

It needs no credentials of its own. In another terminal run `kubectl proxy`, or `make serve` for the example cluster:

    python3 follow_offers.py                              # kubectl proxy, at http://127.0.0.1:8001
    python3 follow_offers.py http://127.0.0.1:8080        # make serve
"""

import argparse
import json
import sys
import time
import urllib.request
from http import HTTPStatus
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode

PATH = "/apis/catalog.cozystack.io/v1alpha1/gpuclasses"
RETRY_SECONDS = 2
SILENCE_SECONDS = 90  # a watch carries a bookmark each minute: a longer silence is a dead connection


def main() -> None:
    """Follow until Ctrl-C; whatever breaks is tried again."""
    parser = argparse.ArgumentParser(description="Follow what can be ordered of each GPU class.")
    parser.add_argument("server", nargs="?", default="http://127.0.0.1:8001")
    address = parser.parse_args().server.rstrip("/") + PATH
    version = ""
    while True:
        try:
            version = watch(address, version) if version else show_all(address)
        except HTTPError as error:
            if error.code not in (HTTPStatus.GONE, HTTPStatus.GATEWAY_TIMEOUT) and not error.headers.get("Retry-After"):
                sys.exit(f"{error.code}: {error.read().decode(errors='replace')}")
            version = ""
            time.sleep(RETRY_SECONDS)
        except (URLError, OSError, ValueError):
            time.sleep(RETRY_SECONDS)  # take the watch up where it broke


def show_all(address: str) -> str:
    """List the classes, and return the version to watch from."""
    with urllib.request.urlopen(address, timeout=SILENCE_SECONDS) as response:  # http on purpose
        listed = json.load(response)
    for item in listed["items"]:
        show("LISTED", item)
    version: str = listed["metadata"]["resourceVersion"]
    return version


def watch(address: str, version: str) -> str:
    """Follow the changes after a version until the stream ends, and return where to go on; "" is to list anew."""
    query = urlencode({"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version})
    with urllib.request.urlopen(f"{address}?{query}", timeout=SILENCE_SECONDS) as stream:  # the same
        for line in stream:
            event = json.loads(line)
            if event["type"] == "ERROR":
                return ""  # 410: too much has happened since
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                show(event["type"], event["object"])
    return version


def show(what: str, item: dict[str, Any]) -> None:
    """One line: what happened, the class, what can be ordered, and why not."""
    status = item["status"]
    line = f"{what:<9} {item['metadata']['name']:<24} {status['orderable']:>4}  {status['reason']}"
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit()
