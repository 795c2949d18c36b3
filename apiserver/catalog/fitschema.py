"""What is served of `gpuclasses/fit`, field by field; read on from schema.py, which says how."""

from typing import Final

from apiserver.catalog.schema import (
    API_VERSION,
    BOOLEAN,
    INT32,
    INT64,
    KIND,
    METADATA,
    STRING,
    VERDICT,
    Field,
    ListOf,
    Object,
    Parameter,
)
from apiserver.gpu.fit import DEFAULT_COUNT, MAX_COUNT, MAX_DEVICES

_FIT_REQUEST: Final = Object(
    "GPUFitRequest",
    "What was asked: the shape of one pod, and how many of them.",
    (
        Field("devices", INT32, "Devices of the class that each pod asks for.", required=True),
        Field("cpu", STRING, "Cpu that each pod requests, as a quantity.", required=True),
        Field("memory", STRING, "Memory that each pod requests, as a quantity.", required=True),
        Field("count", INT32, "How many pods are wanted.", required=True),
        Field(
            "memoryOverhead",
            STRING,
            "Memory that the server adds to that of a pod for the launcher of a VM, as it was told to. Left out for 0.",
        ),
    ),
)

_FIT_NODE: Final = Object(
    "GPUFitNode",
    "A node that would take such pods.",
    (
        Field("name", STRING, "Name of the node.", required=True),
        Field(
            "count",
            INT64,
            "The most such pods that this node would take. When fewer are placed than all nodes would take together, "
            "which node gets how many is for kube-scheduler to choose.",
            required=True,
        ),
    ),
)

GPU_FIT: Final = Object(
    "GPUFit",
    "How many pods of one shape kube-scheduler would place now, one after another, by devices, cpu, memory and pod "
    "slots. Affinity, ports, volumes and other resources can still keep it from that. For the hoster: it names nodes. "
    "Computed whenever it is asked for.",
    (
        API_VERSION,
        KIND,
        METADATA,
        Field("request", _FIT_REQUEST, "What was asked.", required=True),
        *VERDICT,
        Field("fits", INT32, "How many such pods would be placed now; not more than request.count.", required=True),
        Field(
            "countReached",
            BOOLEAN,
            "Whether all of request.count would be placed. There may be room for more then.",
            required=True,
        ),
        Field("notes", ListOf(STRING), "What a reader should know besides the figures, in sentences.", required=True),
        Field("nodes", ListOf(_FIT_NODE), "The nodes that would take at least one such pod, by name.", required=True),
    ),
    is_kind=True,
)

FIT_PARAMETERS: Final = (
    Parameter("devices", INT32, f"Devices that each pod asks for, 1 to {MAX_DEVICES}.", required=True),
    Parameter("cpu", STRING, "Cpu that each pod requests, as a quantity such as 8 or 500m; 0 for none.", required=True),
    Parameter(
        "memory", STRING, "Memory that each pod requests, as a quantity such as 64Gi; 0 for none.", required=True
    ),
    Parameter("count", INT32, f"How many pods are wanted, 1 to {MAX_COUNT}; {DEFAULT_COUNT} without it."),
)
