#!/usr/bin/env python3
"""A tenant's dashboard in 20 lines: what a namespace can order now, line by line as it changes.

python3 tenant_dashboard.py NAMESPACE                             # through `kubectl proxy`, with your own rights
python3 tenant_dashboard.py tenant-aurora http://127.0.0.1:8080   # make serve
"""

import http.client
import json
import sys
import time
import urllib.request


def main(namespace: str, server: str = "http://127.0.0.1:8001") -> None:
    """Follow until Ctrl-C. A watch without a version begins with everything there is, so no list is needed."""
    path = f"/apis/catalog.cozystack.io/v1alpha1/namespaces/{namespace}/gpuoffers?watch=1&allowWatchBookmarks=true"
    while True:
        try:
            with urllib.request.urlopen(server + path, timeout=90) as stream:  # a bookmark comes every minute
                for event in map(json.loads, stream):
                    if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                        show(event["type"], event["object"])
        except (OSError, ValueError, http.client.HTTPException) as error:
            print(error, file=sys.stderr)
        time.sleep(2)


def show(what: str, offer: dict) -> None:
    """One line: the class, how many can be ordered now, and why not more."""
    orderable = offer.get("orderable", f"<={offer['orderableAtMost']}")
    print(
        f"{what:<8}  {offer['metadata']['name']:<20} {orderable:>4}  {offer['reason']}: {offer['message']}", flush=True
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
