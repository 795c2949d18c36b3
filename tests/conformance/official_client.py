"""The official Python client's dynamic client; run by a Python that has it, never imported.

It prints the list as names to figures, then the type of each event about a class until that is gone.
Arguments: a kubeconfig, and the name of that class.
"""

import json
import sys

from kubernetes import config, dynamic  # type: ignore[import-not-found] # in an environment of its own

API_VERSION = "catalog.cozystack.io/v1alpha1"
WATCH_SECONDS = 30


def main() -> None:
    """List, then watch from there."""
    client = dynamic.DynamicClient(config.new_client_from_config(sys.argv[1]))
    resource = client.resources.get(api_version=API_VERSION, kind="GPUClass")
    listed = resource.get()
    _say(json.dumps({item.metadata.name: item.status.free for item in listed.items}))
    last = ""
    for event in resource.watch(resource_version=listed.metadata.resourceVersion, timeout=WATCH_SECONDS):
        if event["object"].metadata.name == sys.argv[2] and event["type"] != last:
            last = event["type"]
            _say(last)
        if last == "DELETED":
            return


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
