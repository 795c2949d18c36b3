"""What a run is told: read from the command line, all of it checked before anything starts."""

import argparse
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar

from apiserver.gpu.classes import MAX_CLASS_NAME, is_label_value
from apiserver.gpu.ownership import ResourceNames
from apiserver.gpu.quantity import MalformedQuantityError, parse_milli, whole
from apiserver.gpu.resources import is_dns_subdomain, is_qualified_name
from apiserver.gpu.tenants import CLASS_PLACEHOLDER, TenantRules
from apiserver.serving.durations import parse_duration

_MAX_PORT: Final = 65535
_MIN_STALENESS: Final = 120.0
_T = TypeVar("_T")


class SettingsError(ValueError):
    """Wrong settings, every one of them.

    Args:
        problems: one sentence each, naming the flag and the fix.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Input(Enum):
    """Where classes, nodes and pods come from.

    Attributes:
        CLUSTER: watched, with the credentials of the server itself.
        LOCAL: watched, with the person's own credentials.
        SNAPSHOT: read from a file.
    """

    CLUSTER = "cluster"
    LOCAL = "local"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one run.

    Attributes:
        input: where the objects come from.
        snapshot: the dump; "-" for standard input.
        kubeconfig: None for in-cluster credentials, or the person's own kubeconfig.
        bind_address: address to listen on; loopback unless the input is CLUSTER.
        secure_port: TLS port, when the input is CLUSTER.
        insecure_port: plain HTTP port otherwise.
        tls_cert_file: serving certificate; with tls_private_key_file, or neither for a self-signed one.
        tls_private_key_file: its key.
        always_allow_paths: paths answered without asking who may read them.
        node_selector: labels a node must carry to be counted.
        resource_names: how many classes may sell one resource name.
        max_staleness: age in seconds beyond which what is known of the cluster is not told any more.
        shutdown_delay: seconds for which everything is still answered after the end was asked for.
        max_requests_inflight: requests answered at once, watches apart; 0 for no limit.
        kubevirt: VMs are what is sold: KubeVirt's table of permitted devices is checked, and only nodes that take VMs
            are counted.
        tenant_offers: whether offers to tenants are served, for which namespaces and ResourceQuotas are watched.
        tenant_rules: the names that the platform has agreed on with its tenants.
        vm_memory_overhead: bytes of memory that a VM's launcher takes beyond what is asked for in `gpuclasses/fit`.
        verbosity: 0 quiet, 1 notable events, 2 everything.
        context: which context of the kubeconfig; empty for the current one.
        name: the one class to print, for `get` and `catalog`.
        output: how to print.
        watch: whether what is printed is followed.
    """

    input: Input = Input.CLUSTER
    snapshot: str = ""
    kubeconfig: Path | None = None
    bind_address: str = "0.0.0.0"  # noqa: S104 # a pod is reached on its own address; loopback inputs refuse it
    secure_port: int = 6443
    insecure_port: int = 8080
    tls_cert_file: Path | None = None
    tls_private_key_file: Path | None = None
    always_allow_paths: tuple[str, ...] = ("/healthz", "/readyz", "/livez")
    node_selector: Mapping[str, str] = field(default_factory=dict)
    resource_names: ResourceNames = ResourceNames.EXCLUSIVE
    max_staleness: float = 180
    shutdown_delay: float = 0
    max_requests_inflight: int = 400
    kubevirt: bool = False
    tenant_offers: bool = True
    tenant_rules: TenantRules = field(default_factory=TenantRules)
    vm_memory_overhead: int = 0
    verbosity: int = 1
    context: str = ""
    name: str = ""
    output: str = ""
    watch: bool = False


PROGRAM: Final = "gpuclass-catalog"
COMMANDS: Final[Mapping[str, str]] = {
    "serve": "serve the catalog API",
    "get": "print the classes, without a server",
    "catalog": "explain one class: what is free, where, and why not",
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
    _add_serving(parsers["serve"])
    _add_printing(parsers["get"], "one class; all without it", OUTPUTS["get"])
    _add_printing(parsers["catalog"], "the class", OUTPUTS["catalog"])
    return parser


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
    serve.add_argument("--insecure-port", metavar="PORT", help="plain HTTP port with --snapshot and --local (8080)")
    serve.add_argument(
        "--max-staleness", metavar="DURATION", help="answer 503 rather than figures that may be older (3m)"
    )
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
    command.add_argument("-v", metavar="LEVEL", dest="verbosity", help="log level: 0, 1 or 2 (serve 1, others 0)")


def read_settings(arguments: Sequence[str], program: str = PROGRAM) -> tuple[str, Settings]:
    """The command and its settings.

    Args:
        arguments: the command line.
        program: how the program was called.

    Raises:
        SettingsError: with every problem there is.
        SystemExit: help was asked for, or no command given.
    """
    parsed, unknown = make_parser(program).parse_known_args(arguments)
    reader = _Reader(vars(parsed), [f"{flag}: there is no such flag or argument" for flag in unknown])
    settings = reader.read()
    if reader.problems:
        raise SettingsError(reader.problems)
    return str(parsed.command), settings


class _Reader:
    """Reads texts into settings and collects what is wrong."""

    def __init__(self, texts: Mapping[str, str | bool | None], problems: list[str]) -> None:
        self._texts = texts
        self.problems = problems

    def read(self) -> Settings:
        defaults = Settings()
        command = str(self._texts["command"])
        input_ = self._input(local=command != "serve" or bool(self._texts.get("local")))
        settings = Settings(
            input=input_,
            snapshot=self._text("snapshot"),
            kubeconfig=self._value("kubeconfig", _file, defaults.kubeconfig),
            bind_address=self._value("bind_address", _address, self._default_address(input_)),
            secure_port=self._value("secure_port", _port, defaults.secure_port),
            insecure_port=self._value("insecure_port", _port, defaults.insecure_port),
            tls_cert_file=self._value("tls_cert_file", _file, None),
            tls_private_key_file=self._value("tls_private_key_file", _file, None),
            always_allow_paths=self._value("authorization_always_allow_paths", _paths, defaults.always_allow_paths),
            node_selector=self._value("node_selector", _selector, defaults.node_selector),
            resource_names=self._value("resource_names", ResourceNames, defaults.resource_names, "exclusive or shared"),
            max_staleness=self._value("max_staleness", _staleness, defaults.max_staleness),
            shutdown_delay=self._value("shutdown_delay_duration", _delay, defaults.shutdown_delay),
            max_requests_inflight=self._value("max_requests_inflight", _count, defaults.max_requests_inflight),
            kubevirt=bool(self._texts.get("kubevirt")),
            tenant_offers=self._value("tenant_offers", _boolean, defaults.tenant_offers),
            tenant_rules=TenantRules(
                self._value("vgpu_entitlement_label", _label, defaults.tenant_rules.entitlement),
                self._value("license_secret_name", _secret_name, defaults.tenant_rules.license_secret_name),
            ),
            vm_memory_overhead=self._value("vm_memory_overhead", _bytes, defaults.vm_memory_overhead),
            verbosity=self._value("verbosity", _verbosity, defaults.verbosity if command == "serve" else 0),
            context=self._text("context"),
            name=self._text("name"),
            output=self._output(OUTPUTS.get(command, (defaults.output,))),
            watch=bool(self._texts.get("watch")),
        )
        self._check_together(settings)
        if command == "catalog" and not settings.name:
            self.problems.append(f"NAME: say which class; `{PROGRAM} get` lists them")
        return settings

    def _input(self, *, local: bool) -> Input:
        if self._text("snapshot"):
            for flag in ("local", "kubeconfig", "context"):
                if self._texts.get(flag):
                    self.problems.append(f"--{flag}: leave it out with --snapshot, which needs no cluster")
            return Input.SNAPSHOT
        return Input.LOCAL if local else Input.CLUSTER

    @staticmethod
    def _default_address(input_: Input) -> str:
        return Settings().bind_address if input_ is Input.CLUSTER else "127.0.0.1"

    def _check_together(self, settings: Settings) -> None:
        if not settings.tenant_offers:
            self._refuse(
                "leave it out with --tenant-offers=false, which offers nothing to tenants",
                "vgpu_entitlement_label",
                "license_secret_name",
            )
        if settings.input is Input.SNAPSHOT:
            self._refuse("leave it out with --snapshot: a file is as old as it is", "max_staleness")
            if settings.watch and settings.snapshot == "-":
                self.problems.append("--watch: leave it out with --snapshot -, which is read once")
        if settings.input is Input.CLUSTER:
            if (settings.tls_cert_file is None) != (settings.tls_private_key_file is None):
                self.problems.append("--tls-cert-file, --tls-private-key-file: give both, or neither")
            self._refuse("needs --snapshot or --local: on a cluster only TLS is served", "insecure_port")
            return
        reason = "leave it out with --snapshot or --local, which serve plain HTTP on loopback to yourself"
        self._refuse(reason, "secure_port", "tls_cert_file", "tls_private_key_file", "authorization_always_allow_paths")
        if not ipaddress.ip_address(settings.bind_address).is_loopback:
            self.problems.append(
                f"--bind-address: {settings.bind_address} is not loopback; --snapshot and --local serve without "
                "authentication, so use 127.0.0.1 or ::1"
            )

    def _refuse(self, reason: str, *keys: str) -> None:
        self.problems += [f"{_flag(key)}: {reason}" for key in keys if self._texts.get(key) is not None]

    def _text(self, key: str) -> str:
        text = self._texts.get(key)
        return text if isinstance(text, str) else ""

    def _output(self, outputs: Sequence[str]) -> str:
        text = self._text("output") or outputs[0]
        if text not in outputs:
            self.problems.append(f"--output: {text!r} must be one of {', '.join(outputs)}")
        return text

    def _value(self, key: str, parse: Callable[[str], _T], default: _T, allowed: str = "") -> _T:
        text = self._texts.get(key)
        if not isinstance(text, str):
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.problems.append(f"{_flag(key)}: {text!r} must be {allowed or error}")
            return default


def _flag(key: str) -> str:
    return "-v" if key == "verbosity" else "--" + key.replace("_", "-")


def _file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ValueError("an existing file")
    return path


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        raise ValueError("an IP address") from None


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 <= int(text) <= _MAX_PORT:
        raise ValueError(f"a port between 0 and {_MAX_PORT}; 0 takes a free one")
    return int(text)


def _paths(text: str) -> tuple[str, ...]:
    paths = tuple(text.split(","))
    if not all(path.startswith("/") for path in paths):
        raise ValueError("comma-separated paths that begin with /")
    return paths


def _selector(text: str) -> dict[str, str]:
    pairs = {}
    for pair in text.split(","):
        key, equals, value = pair.replace("==", "=", 1).partition("=")
        if not equals or not is_qualified_name(key) or "=" in value:
            raise ValueError("comma-separated labels as key=value")
        pairs[key] = value
    return pairs


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("true or false")
    return text == "true"


def _label(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not is_qualified_name(key) or not is_label_value(value):
        raise ValueError("one label as key=value")
    return key, value


def _secret_name(text: str) -> str:
    longest = text.replace(CLASS_PLACEHOLDER, "c" * MAX_CLASS_NAME)
    if text.count(CLASS_PLACEHOLDER) != 1 or not is_dns_subdomain(longest):
        raise ValueError(f"a Secret's name with {CLASS_PLACEHOLDER} in it once, for the name of the class")
    return text


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("a number, or 0 for no limit")
    return int(text)


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise ValueError("a duration such as 90s, 3m or 1h30m") from None


def _staleness(text: str) -> float:
    seconds = _duration(text)
    if seconds < _MIN_STALENESS:
        raise ValueError(f"at least {_MIN_STALENESS:g} s, for a quiet cluster says only once a minute how new it is")
    return seconds


def _delay(text: str) -> float:
    seconds = _duration(text)
    if seconds < 0:
        raise ValueError("a duration of 0s or more")
    return seconds


def _bytes(text: str) -> int:
    try:
        number = whole(parse_milli(text))
    except MalformedQuantityError:
        number = -1
    if number < 0:
        raise ValueError("a quantity of memory such as 300Mi")
    return number


def _verbosity(text: str) -> int:
    if text not in ("0", "1", "2"):
        raise ValueError("0, 1 or 2")
    return int(text)
