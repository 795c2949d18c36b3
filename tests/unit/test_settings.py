"""Settings: what is taken, and that everything wrong is reported at once."""

from pathlib import Path

import pytest

from apiserver.flags import COMMANDS
from apiserver.gpu.ownership import ResourceNames
from apiserver.gpu.tenants import TenantRules
from apiserver.settings import Input, Settings, SettingsError, read_settings
from docs.reference.flags import flags_of


def test_defaults() -> None:
    """Without flags it is served on a cluster, over TLS, with in-cluster credentials."""
    assert read_settings(["serve"]) == ("serve", Settings())


def test_every_flag(tmp_path: Path) -> None:
    """Every flag reaches its setting."""
    file = tmp_path / "f"
    file.touch()
    arguments = ["serve", "--kubeconfig", str(file), "--bind-address", "::1", "--secure-port", "0", "-v", "2"]
    arguments += ["--tls-cert-file", str(file), "--tls-private-key-file", str(file), "--resource-names", "shared"]
    arguments += ["--authorization-always-allow-paths", "/livez,/x", "--node-selector", "a.b/c=d,e==", "--kubevirt"]
    arguments += ["--max-staleness", "2m1.5s", "--shutdown-delay-duration", "15s"]
    arguments += ["--vgpu-entitlement-label", "a.b/c="]
    arguments += ["--license-secret-name", "x-{class}", "--tenant-offers"]
    arguments += ["--max-requests-inflight", "7", "--logging-format", "json"]
    arguments += ["--tracing-endpoint", "http://c:4318"]
    _, settings = read_settings(arguments)
    assert settings == Settings(
        kubeconfig=file,
        bind_address="::1",
        secure_port=0,
        tls_cert_file=file,
        tls_private_key_file=file,
        always_allow_paths=("/livez", "/x"),
        node_selector={"a.b/c": "d", "e": ""},
        resource_names=ResourceNames.SHARED,
        kubevirt=True,
        max_staleness=121.5,
        shutdown_delay=15,
        tenant_rules=TenantRules(("a.b/c", ""), "x-{class}"),
        max_requests_inflight=7,
        verbosity=2,
        logging_format="json",
        tracing_endpoint="http://c:4318",
    )


@pytest.mark.parametrize("mode", [["--local"], ["--snapshot", "-"]])
def test_loopback_inputs(mode: list[str]) -> None:
    """Without TLS only loopback is bound, by default too."""
    _, settings = read_settings(["serve", *mode, "--insecure-port", "9"])
    assert (settings.bind_address, settings.insecure_port) == ("127.0.0.1", 9)
    with pytest.raises(SettingsError, match="--bind-address"):
        read_settings(["serve", *mode, "--bind-address", "0.0.0.0"])


@pytest.mark.parametrize(
    ("arguments", "is_on"),
    [([], True), (["--tenant-offers"], True), (["--tenant-offers=true"], True), (["--tenant-offers=false"], False)],
)
def test_tenant_offers(arguments: list[str], is_on: bool) -> None:
    """Offers to tenants are switched as Kubernetes switches: on by default, off by =false."""
    assert read_settings(["serve", *arguments])[1].tenant_offers is is_on


def test_get() -> None:
    """`get` reads from the person's own cluster unless a snapshot is named, and is quiet."""
    assert read_settings(["get"])[1].input is Input.LOCAL
    settings = read_settings(["get", "a", "--snapshot", "-", "-o", "json"])[1]
    assert (settings.input, settings.name, settings.output, settings.verbosity) == (Input.SNAPSHOT, "a", "json", 0)


def test_ui() -> None:
    """`ui` looks at the person's own cluster unless a snapshot is named, at a port that is free, and is quiet."""
    settings = read_settings(["ui"])[1]
    assert (settings.input, settings.bind_address, settings.insecure_port) == (Input.LOCAL, "127.0.0.1", 0)
    assert (settings.verbosity, settings.open_browser) == (0, True)
    settings = read_settings(["ui", "--snapshot", "-", "--no-browser", "--insecure-port", "9"])[1]
    assert (settings.input, settings.open_browser, settings.insecure_port) == (Input.SNAPSHOT, False, 9)


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        pytest.param(["--secure-port", "70000"], ["--secure-port"], id="a port out of range"),
        pytest.param(["--secure-port", "-1"], ["--secure-port"], id="a negative port"),
        pytest.param(["--bind-address", "localhost"], ["--bind-address"], id="a name instead of an address"),
        pytest.param(["--kubeconfig", "/nowhere"], ["--kubeconfig"], id="no such file"),
        pytest.param(["--tls-cert-file", __file__], ["--tls-cert-file, --tls-private-key-file"], id="half a pair"),
        pytest.param(["--node-selector", "a"], ["--node-selector"], id="a label without a value"),
        pytest.param(["--resource-names", "both"], ["--resource-names"], id="an unknown mode"),
        pytest.param(["--authorization-always-allow-paths", "x"], ["--authorization-always-allow-paths"], id="a path"),
        pytest.param(["--v", "11"], ["-v"], id="a level there is not"),
        pytest.param(["--logging-format", "yaml"], ["--logging-format"], id="a format there is not"),
        pytest.param(["--tracing-endpoint", "c:4318"], ["--tracing-endpoint"], id="an address without a scheme"),
        pytest.param(["--insecure-port", "1"], ["--insecure-port"], id="plain HTTP on a cluster"),
        pytest.param(["--local", "--secure-port", "1"], ["--secure-port"], id="TLS on loopback"),
        pytest.param(["--snapshot", "x", "--local", "--kubeconfig", __file__], ["--local", "--kubeconfig"], id="both"),
        pytest.param(["--max-staleness", "3"], ["--max-staleness"], id="a duration without a unit"),
        pytest.param(["--max-staleness", "10s"], ["--max-staleness"], id="too short for a quiet cluster"),
        pytest.param(["--snapshot", "-", "--max-staleness", "3m"], ["--max-staleness"], id="the age of a file"),
        pytest.param(["--shutdown-delay-duration=-1s"], ["--shutdown-delay-duration"], id="a negative delay"),
        pytest.param(["--shutdown-delay-duration", "15"], ["--shutdown-delay-duration"], id="a delay without a unit"),
        pytest.param(["--tenant-offers=no"], ["--tenant-offers"], id="neither true nor false"),
        pytest.param(["--vgpu-entitlement-label", "a"], ["--vgpu-entitlement-label"], id="a label of any value"),
        pytest.param(["--vgpu-entitlement-label", "a=b=c"], ["--vgpu-entitlement-label"], id="no label value"),
        pytest.param(["--vgpu-entitlement-label", "=b"], ["--vgpu-entitlement-label"], id="no label key"),
        pytest.param(["--license-secret-name", "x"], ["--license-secret-name"], id="one Secret for all classes"),
        pytest.param(["--license-secret-name", "{class}{class}"], ["--license-secret-name"], id="the class twice"),
        pytest.param(["--license-secret-name", "X-{class}"], ["--license-secret-name"], id="no name of a Secret"),
        pytest.param(["--license-secret-name", "x" * 200 + "{class}"], ["--license-secret-name"], id="too long"),
        pytest.param(
            ["--tenant-offers=false", "--license-secret-name", "{class}", "--vgpu-entitlement-label", "a=b"],
            ["--vgpu-entitlement-label", "--license-secret-name"],
            id="rules of offers that are not made",
        ),
        pytest.param(["--max-requests-inflight=-1"], ["--max-requests-inflight"], id="a negative number"),
        pytest.param(["--colour", "x"], ["--colour", "x"], id="no such flag"),
        pytest.param(["--secure", "1"], ["--secure", "1"], id="flags are not abbreviated"),
        pytest.param(
            ["--secure-port", "x", "--node-selector", "=", "--oops", "-v", "-2"],
            ["--oops", "--secure-port", "--node-selector", "-v"],
            id="all at once",
        ),
    ],
)
def test_wrong(arguments: list[str], flags: list[str]) -> None:
    """Each wrong setting is named with its flag, all of them in one go."""
    with pytest.raises(SettingsError) as caught:
        read_settings(["serve", *arguments])
    assert [problem.partition(":")[0] for problem in caught.value.problems] == flags


def test_wrong_output() -> None:
    """`get` says which outputs there are."""
    with pytest.raises(SettingsError, match="table, wide, json, yaml"):
        read_settings(["get", "-o", "xml"])


@pytest.mark.parametrize("command", COMMANDS)
def test_told_defaults_are_true(command: str) -> None:
    """What the help tells as a default changes nothing when it is given."""
    told = 0
    for flag in flags_of(command):
        spelling = flag.spelling.rpartition(", ")[2]
        if not spelling.startswith("--") or not flag.default or " " in flag.default:
            continue
        needed = ["name"] if command == "catalog" else ["--local"] if spelling == "--insecure-port" else []
        assert read_settings([command, *needed, f"{spelling}={flag.default}"]) == read_settings([command, *needed])
        told += 1
    assert told >= (9 if command == "serve" else 2)
