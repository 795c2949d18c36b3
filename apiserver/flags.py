"""The command line: its commands, and the flags of each."""

import argparse
from collections.abc import Mapping, Sequence
from typing import Final

PROGRAM: Final = "gpuclass-catalog"
COMMANDS: Final[Mapping[str, str]] = {
    "serve": "serve the catalog API",
    "get": "print the classes, without a server",
    "catalog": "explain one class: what is free, where, and why not",
    "ui": "look at the classes in a browser",
}
OUTPUTS: Final[Mapping[str, Sequence[str]]] = {
    "get": ("table", "wide", "json", "yaml"),
    "catalog": ("page", "table", "json", "yaml"),
}
"""How a command can print; the first without being told."""


def make_parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    """The command line. Values are taken as text, so that read_settings can report every wrong one at once."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Which GPUs of each GPUClass are free now, where, and why not.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parsers = {name: commands.add_parser(name, help=text, allow_abbrev=False) for name, text in COMMANDS.items()}
    for command in parsers.values():
        _add_common(command)
    _add_local(parsers["serve"], "8080")
    _add_local(parsers["ui"], "a free one")
    _add_serving(parsers["serve"])
    _add_printing(parsers["get"], "one class; all without it", OUTPUTS["get"])
    _add_printing(parsers["catalog"], "the class", OUTPUTS["catalog"])
    parsers["ui"].add_argument("--no-browser", action="store_true", help="only print the address of the page")
    return parser


def _add_local(command: argparse.ArgumentParser, port: str) -> None:
    command.add_argument(
        "--insecure-port", metavar="PORT", help=f"plain HTTP port with --snapshot and --local ({port})"
    )
    command.add_argument(
        "--max-staleness", metavar="DURATION", help="answer 503 rather than figures that may be older (3m)"
    )


def _add_serving(serve: argparse.ArgumentParser) -> None:
    serve.add_argument(
        "--local", action="store_true", help="live from your own kubeconfig, plain HTTP on loopback only"
    )
    serve.add_argument(
        "--bind-address",
        metavar="IP",
        help="where to listen; with --snapshot and --local on loopback only (0.0.0.0 with TLS, else 127.0.0.1)",
    )
    serve.add_argument("--secure-port", metavar="PORT", help="TLS port on a cluster (6443)")
    serve.add_argument(
        "--shutdown-delay-duration",
        metavar="DURATION",
        help="after SIGTERM be unready, and serve for so long; a second signal ends at once (0s)",
    )
    serve.add_argument(
        "--max-requests-inflight",
        metavar="NUMBER",
        help="requests answered at once, more are 429; watches, system:masters, health do not count; 0: no limit (400)",
    )
    serve.add_argument(
        "--vm-memory-overhead",
        metavar="QUANTITY",
        help="memory that fit adds to each pod for the launcher of a VM, as 300Mi (0)",
    )
    serve.add_argument(
        "--tls-cert-file",
        metavar="FILE",
        help="serving certificate, read again every minute (a self-signed one is made)",
    )
    serve.add_argument(
        "--tracing-endpoint",
        metavar="URL",
        help="send traces there by OTLP over HTTP, for example http://collector:4318",
    )
    serve.add_argument("--tls-private-key-file", metavar="FILE", help="key of --tls-cert-file")
    serve.add_argument(
        "--authorization-always-allow-paths",
        metavar="PATHS",
        help="comma-separated, answered to all; a pod's probes need /readyz/serving too (/healthz,/readyz,/livez)",
    )
    serve.add_argument(
        "--tenant-offers",
        nargs="?",
        const="true",
        metavar="true|false",
        help="serve gpuoffers; without, nothing is watched for them (true)",
    )
    serve.add_argument(
        "--vgpu-entitlement-label",
        metavar="KEY=VALUE",
        help="namespaces with this label may order vGPUs (gpuclass.cozystack.io/vgpu=true)",
    )
    serve.add_argument(
        "--license-secret-name",
        metavar="NAME",
        help="Secret with a class's licence in a tenant's namespace (gpuclass-license-{class})",
    )


def _add_printing(command: argparse.ArgumentParser, what: str, outputs: Sequence[str]) -> None:
    command.add_argument("name", nargs="?", metavar="NAME", help=what)
    command.add_argument("-o", "--output", metavar="|".join(outputs), help=f"how to print ({outputs[0]})")
    command.add_argument("-w", "--watch", action="store_true", help="go on and show what changes, until Ctrl-C")


def _add_common(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--snapshot",
        metavar="FILE",
        help="read a dump instead of a cluster: JSON or YAML as kubectl get prints it; - is standard input",
    )
    command.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="credentials (serve: those of its pod; else your own kubeconfig)",
    )
    command.add_argument("--context", metavar="NAME", help="context of the kubeconfig (the current one)")
    command.add_argument("--node-selector", metavar="KEY=VALUE,…", help="count only nodes with these labels")
    command.add_argument(
        "--resource-names",
        metavar="exclusive|shared",
        help="a resource name belongs to one class, the recorded owner or else the oldest, or to any (exclusive)",
    )
    command.add_argument(
        "--kubevirt",
        action="store_true",
        help="what is sold goes to VMs: only what KubeVirt permits is offered, only nodes that take VMs are counted",
    )
    command.add_argument(
        "-v",
        "--v",
        metavar="LEVEL",
        dest="verbosity",
        help="log level, 0 to 10: 0 warnings, 1 notable events, 2 everything, 3 each request too (serve 1, others 0)",
    )
    command.add_argument("--logging-format", metavar="text|json", help="how the log is written (text)")
