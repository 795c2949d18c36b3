"""What pods that hold no devices cost: microseconds for a watch line, and memory for so many of them.

`python -m tests.bench.pods [N]`. The memory is that of this process: reflectors, view and a list read page by page.
"""

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from apiserver.cluster.live import PODS, _Pods
from apiserver.cluster.reflector import Decoder, Listing
from apiserver.cluster.view import View

PODS_IN_ALL = 100_000
NODES = 2_000
LINES = 2_000


def raw_pod(number: int) -> dict[str, Any]:
    """A pod as a controller makes it and a kubelet runs it, of about 6 KB."""
    cpu, memory = f"{50 + 10 * (number % 40)}m", f"{64 + 8 * (number % 60)}Mi"
    requests = {"cpu": cpu, "memory": memory}
    env = [{"name": f"VARIABLE_{each}", "value": f"value of variable {each}"} for each in range(30)]
    containers = [
        {
            "name": name,
            "image": "registry.example/team/application:1.2.3",
            "env": env,
            "resources": {"requests": requests, "limits": requests},
            "terminationMessagePath": "/dev/termination-log",
            "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        }
        for name in ("main", "proxy")
    ]
    statuses = [
        {
            "name": name,
            "ready": True,
            "restartCount": 0,
            "image": "registry.example/team/application:1.2.3",
            "imageID": "registry.example/team/application@sha256:" + "0" * 64,
            "containerID": "containerd://" + "0" * 64,
            "allocatedResources": requests,
            "resources": {"requests": requests, "limits": requests},
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
        }
        for name in ("main", "proxy")
    ]
    return {
        "metadata": {
            "name": f"application-{number % 977:03}-7c9d8f6b5d-{number:06}",
            "namespace": f"team-{number % 300}",
            "uid": f"00000000-0000-0000-0000-{number:012}",
            "labels": {"app": "application", "pod-template-hash": "7c9d8f6b5d"},
            "managedFields": [{"manager": "kubelet", "fieldsV1": {f"f:field{each}": {} for each in range(40)}}],
        },
        "spec": {"nodeName": f"worker-{number % NODES:05}.example.internal", "containers": containers},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
            "containerStatuses": statuses,
        },
    }


def microseconds(work: Callable[[bytes], object], lines: list[bytes]) -> float:
    """Processor time of the best of ten, for one line."""
    best = float("inf")
    for _ in range(10):
        began = time.process_time()
        for line in lines:
            work(line)
        best = min(best, time.process_time() - began)
    return best / len(lines) * 1e6


def main() -> None:
    """Print the figures."""
    total = int(sys.argv[1]) if len(sys.argv) > 1 else PODS_IN_ALL
    decoder = Decoder(PODS.item_type, PODS.read)
    _report_memory(decoder, total)
    lines = [msgspec.json.encode({"type": "MODIFIED", "object": raw_pod(number)}) for number in range(LINES)]
    handler, plain = _Pods(View()), Decoder[Any](PODS.item_type)
    decode = microseconds(plain.change, lines)
    both = microseconds(lambda line: handler.apply("MODIFIED", decoder.change(line)), lines)
    sys.stdout.write(f"{len(lines[0])} bytes a line: decoding {decode:.1f} us, with the rest {both:.1f} us\n")


def _report_memory(decoder: Decoder[Any], total: int) -> None:
    before = _rss()
    listing: Listing[Any] = Listing()
    for first in range(0, total, PODS.page_size):
        items = [raw_pod(number) for number in range(first, min(total, first + PODS.page_size))]
        decoder.add_page(listing, msgspec.json.encode({"metadata": {"resourceVersion": "1"}, "items": items}))
    handler = _Pods(View())
    handler.replace(listing.objects)
    listed = _rss()
    del listing
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(
        f"{total} pods: {before:.0f} MB before, {listed:.0f} MB after the list, {_rss():.0f} MB kept, "
        f"{most:.0f} MB at most\n"
    )


def _rss() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


if __name__ == "__main__":
    main()
