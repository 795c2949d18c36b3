"""What a run is told: read from the command line, all of it checked before anything starts."""

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

from apiserver.flags import OUTPUTS, PROGRAM, make_parser
from apiserver.gpu.classes import MAX_CLASS_NAME, is_label_value
from apiserver.gpu.ownership import ResourceNames
from apiserver.gpu.quantity import MalformedQuantityError, parse_milli, whole
from apiserver.gpu.resources import is_dns_subdomain, is_qualified_name
from apiserver.gpu.tenants import CLASS_PLACEHOLDER, TenantRules
from apiserver.serving.durations import parse_duration

_MAX_PORT: Final = 65535
_MAX_VERBOSITY: Final = 10
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
        verbosity: 0 quiet, 1 notable events, 2 everything, 3 and more each request too.
        logging_format: of the log, "text" or "json".
        tracing_endpoint: URL of the OTLP collector that traces go to; "" for that of the environment, or none.
        context: which context of the kubeconfig; empty for the current one.
        name: the one class to print, for `get` and `catalog`.
        output: how to print.
        watch: whether what is printed is followed.
        open_browser: whether to open the page in a browser, for `ui`.
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
    logging_format: str = "text"
    tracing_endpoint: str = ""
    context: str = ""
    name: str = ""
    output: str = ""
    watch: bool = False
    open_browser: bool = True


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
        port = 0 if command == "ui" else defaults.insecure_port
        settings = Settings(
            input=input_,
            snapshot=self._text("snapshot"),
            kubeconfig=self._value("kubeconfig", _file, defaults.kubeconfig),
            bind_address=self._value("bind_address", _address, self._default_address(input_)),
            secure_port=self._value("secure_port", _port, defaults.secure_port),
            insecure_port=self._value("insecure_port", _port, port),
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
            logging_format=self._value("logging_format", _logging_format, defaults.logging_format),
            tracing_endpoint=self._value("tracing_endpoint", _endpoint, defaults.tracing_endpoint),
            context=self._text("context"),
            name=self._text("name"),
            output=self._output(OUTPUTS.get(command, (defaults.output,))),
            watch=bool(self._texts.get("watch")),
            open_browser=not self._texts.get("no_browser"),
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
    if not text.isascii() or not text.isdigit() or int(text) > _MAX_VERBOSITY:
        raise ValueError(f"a level from 0 to {_MAX_VERBOSITY}; 3 and more write a line for each request")
    return int(text)


def _logging_format(text: str) -> str:
    if text not in ("text", "json"):
        raise ValueError("text or json")
    return text


def _endpoint(text: str) -> str:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
        raise ValueError("the URL of an OTLP collector, such as http://collector:4318")
    return text
