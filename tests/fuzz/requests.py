"""Requests to throw at the server: drawn from its own OpenAPI document, and bytes that are hardly requests at all.

Everything comes from one `random.Random`, so that a seed names a run.
"""

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

OPENAPI: Final = Path(__file__).parents[2] / "openapi" / "v3.json"
GROUP_PATH: Final = "/apis/catalog.cozystack.io/v1alpha1"
LIST: Final = f"{GROUP_PATH}/gpuclasses"
DIGITS: Final = "9" * 400
MANY: Final = 60_000
"""Bytes in a long line; the server takes lines of 64 KiB."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One thing to send on a connection of its own.

    Attributes:
        content: the bytes.
        kind: what generated it, for the report.
    """

    content: bytes
    kind: str


def request(target: str | bytes, *headers: str | bytes, method: str = "GET", body: bytes = b"") -> bytes:
    """An HTTP/1.1 request that asks for the connection to be closed, each part as it is given."""
    lines = [method.encode() + b" " + _bytes(target) + b" HTTP/1.1", b"Host: localhost", b"Connection: close"]
    if body:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join([*lines, *map(_bytes, headers), b"", body])


def _bytes(part: str | bytes) -> bytes:
    return part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape")


def _documented() -> list[tuple[str, list[str]]]:
    """Each path of the OpenAPI document with the names of its query parameters."""
    paths: dict[str, Any] = json.loads(OPENAPI.read_text())["paths"]
    return [
        (
            path,
            [
                each["name"]
                for each in (*item.get("parameters", ()), *item["get"].get("parameters", ()))
                if each["in"] == "query"
            ],
        )
        for path, item in paths.items()
    ]


DOCUMENTED: Final = _documented()


def _forged_token(rng: random.Random) -> str:
    """A continue token that is one, nearly, or not at all."""
    fields: dict[str, object] = {
        "v": rng.choice(["meta.k8s.io/v1", "x", 1, None]),
        "rv": rng.choice([1, -1, 0, 2**63, 2**70, "7", 10**400, 1.5]),
        "start": rng.choice(["/a", "a/b", "", "/", "\x00", "/" + "z" * 5000, "/\ud800", 5]),
    }
    raw = json.dumps(fields).encode()
    raw = rng.choice([raw, raw[:-1], b"[" * 5000, b"\xff\xfe", b"null", rng.randbytes(20)])
    return base64.urlsafe_b64encode(raw).decode().rstrip(rng.choice(["=", ""]))


NUMBERS: Final = (
    *("0", "1", "-1", "+1", "1.5", "1e3", "0x10", str(2**31), str(2**63), str(2**64), DIGITS, "9" * 5000),
    *("NaN", "", " 1", "\u0661", "9223372036854775807", "-9223372036854775808", "1_0", "null"),
)
SELECTORS: Final = (
    *("a=b", "a==b", "a!=b", "a in (b,c)", "a notin ()", "!a", "a", "a>1", "a<" + "9" * 63, "a>b", "in in (in)"),
    *("metadata.name=l40s-24c", "metadata.name=..", "metadata.name=a/b", "spec.mode=vgpu", "status.offered=true"),
    *("metadata.name=\\", "metadata.name=a\\,b", "metadata.name!=\\x", "=", "==", ",", "((", ")", "a in (", "\x00"),
    *("a" * 50_000, "a," * 20_000, "(" * 20_000, "!" * 20_000, "\\" * 20_000, "a.-" * 20_000 + "/"),
    *("a=" + "-" * 20_000, " " * 20_000, "a in (" + "b," * 20_000 + ")", "=".join("a" * 20_000)),
    *("\u00e4=\u00f6", "a=\U0001f600"),
)


def _number(rng: random.Random) -> str:
    return rng.choice(NUMBERS)


def _selector(rng: random.Random) -> str:
    return ",".join([rng.choice(SELECTORS)] * rng.choice([1, 1, 1, 2, 3]))


def _quantity(rng: random.Random) -> str:
    return rng.choice([*NUMBERS, "500m", "64Gi", "1n", "-1", "1e999999999", "1Zi", "9" * 50_000, "\x00", "\u2603"])


def _flag(rng: random.Random) -> str:
    return rng.choice(["true", "false", "1", "0", "", "yes", "TRUE", "null", "\x00", "\u2603"])


VALUES: Final[dict[str, Callable[[random.Random], str]]] = {
    "continue": _forged_token,
    "fieldSelector": _selector,
    "labelSelector": _selector,
    "limit": _number,
    "timeoutSeconds": _number,
    "timeout": lambda rng: rng.choice(["1s", "-1s", "1h", "x", DIGITS + "h", "", "1", "0s", "9" * 30 + "ns"]),
    "resourceVersion": _number,
    "resourceVersionMatch": lambda rng: rng.choice(["Exact", "NotOlderThan", "exact", "", "\x00"]),
    "includeObject": lambda rng: rng.choice(["None", "Metadata", "Object", "all", ""]),
    "export": _flag,
    "exclude": lambda rng: rng.choice(["ping", "informer-sync", "\r\n", "x" * 1000, ""]),
    "verbose": _flag,
    "devices": _number,
    "count": _number,
    "cpu": _quantity,
    "memory": _quantity,
}
PARAMETERS: Final = (*VALUES, "allowWatchBookmarks", "sendInitialEvents", "watch", "pretty", "unknown")
ACCEPTS: Final = (
    "application/json",
    "application/yaml",
    "*/*",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/json;q=nan",
    "application/json;q=inf, */*;q=-1",
    "application/json;q=" + DIGITS,
    "text/html",
    ";;;,,,===",
    "," * 5000,
    "application/json;" + "a=b;" * 5000,
    "application/json;pretty=1;stream=watch",
    "\udcff\udcfe/json",
    "*",
    "/",
)
PATHS: Final = (
    "/",
    "/apis",
    "/apis/",
    "/apis/catalog.cozystack.io",
    GROUP_PATH,
    f"{GROUP_PATH}/",
    "/openapi/v2",
    "/openapi/v3",
    "/openapi/v3/apis/catalog.cozystack.io/v1alpha1",
    "/openapi/v3/../../etc/passwd",
    "/openapi/v9",
    "/version",
    "/healthz",
    "/livez/ping",
    "/readyz?exclude=ping&verbose",
    "/readyz/serving",
    "/metrics",
    "/api/v1/nodes",
    "/debug/pprof/profile?seconds=60",
    f"{GROUP_PATH}/namespaces/a/gpuclasses",
    f"{GROUP_PATH}/watch/gpuclasses",
    f"{GROUP_PATH}/gpuclasses/l40s-24c/catalog/more/and/more",
    f"{GROUP_PATH}/gpuclasses/l40s-24c/status",
)
TRICKS: Final[tuple[Callable[[str], str], ...]] = (
    lambda path: path.replace("/", "//"),
    lambda path: path + "/",
    lambda path: path + "/..",
    lambda path: path + "/../gpuclasses",
    lambda path: path + "/.",
    lambda path: path.replace("gpuclasses", "gpuclasses%2f"),
    lambda path: path.replace("/", "%2F"),
    lambda path: path.replace("gpuclasses", "gpuclasse%73"),
    lambda path: path.replace("gpuclasses", "GPUCLASSES"),
    lambda path: "/livez/.." + path,
    lambda path: "/readyz/%2e%2e" + path,
    lambda path: "/livez;" + path,
    lambda path: path + ";a=b",
    lambda path: path + "%00",
    lambda path: path + "%",
    lambda path: path + "%zz",
    lambda path: path + "%ff%fe",
    lambda path: path + "\udcff",
    lambda path: path + "%ed%a0%80",
    lambda path: path + "/\U0001f600",
    lambda path: path + "#/livez",
    lambda path: path + "?" * 100,
    lambda path: path + "/" + "a" * MANY,
    lambda path: path + "/a" * 10_000,
    lambda path: "http://localhost" + path,
    lambda path: "https://evil.example:99999999" + path,
    lambda path: "http://[::1" + path,
    lambda path: "//evil.example" + path,
    lambda path: "\\" + path,
    lambda path: path.replace("/", "\\"),
    lambda path: path.replace("/", "%5c"),
    lambda path: path[1:],
    lambda _: "*",
    lambda _: "localhost:443",
    lambda _: "file:///etc/passwd",
    lambda _: "",
)
METHODS: Final = (
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get", "G\xcbT"),
    *("M" * 100, "", "GET\x00"),
)
HEADERS: Final = (
    "Audit-Id: \udcff\udcfe",
    "Audit-Id: " + "a" * MANY,
    "Audit-Id: a\tb",
    "Audit-Id:",
    "Authorization: Bearer \udcff",
    "Authorization: Bearer " + "a" * MANY,
    "Authorization: Bearer  two",
    "Authorization: Basic Og==",
    "Authorization:",
    "Accept-Encoding: gzip, gzip, br;q=nan",
    "Accept-Encoding: \udcff",
    "If-None-Match: \udcff",
    "If-None-Match: *",
    "User-Agent: Mozilla/5.0",
    "User-Agent: \udcff",
    "Expect: 100-continue",
    "Expect: everything",
    "Expect: \udcff",
    "Range: bytes=0-" + DIGITS,
    "Content-Type: \udcff",
    "Content-Encoding: br",
    "Content-Encoding: gzip",
    "Cookie: " + "a=b;" * 5000,
    "X-Remote-User: admin",
    "X-Remote-Group: system:masters",
    "X-Remote-Extra-%zz: a",
    "Impersonate-User: admin",
    "Host: evil.example",
    "Host: localhost:" + DIGITS,
    "Origin: http://evil.example",
    "Upgrade: h2c",
    "Upgrade: websocket",
    "Connection: Upgrade\r\nUpgrade: websocket",
    f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {'A' * 22}==",
    "Sec-WebSocket-Key: x",
    "Sec-WebSocket-Version: 99",
    "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.////",
    "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io._w, a",
    "Forwarded: for=127.0.0.1",
    "X-HTTP-Method-Override: DELETE",
    "Transfer-Encoding: gzip",
)


def documented(rng: random.Random) -> Attempt:
    """A well-formed request to a documented path, with documented parameters of any value."""
    path, parameters = rng.choice(DOCUMENTED)
    path = path.replace("{name}", quote(rng.choice(["l40s-24c", "no", "a" * 300, "%", "\u00e4", "a b", ".."]), safe=""))
    chosen = rng.sample(parameters, rng.randint(0, len(parameters)))
    chosen += rng.choices(PARAMETERS, k=rng.choice([0, 0, 1, 2]))
    return Attempt(request(_target(rng, path, chosen), *_accept(rng)), "documented")


def odd(rng: random.Random) -> Attempt:
    """A request of any method to a path with a trick in it, and headers nobody asked for."""
    path = rng.choice([*PATHS, *(path.replace("{name}", "l40s-24c") for path, _ in DOCUMENTED)])
    for trick in rng.sample(TRICKS, rng.choice([0, 1, 1, 2])):
        path = trick(path)
    if "?" not in path and rng.random() < 0.3:
        path = _target(rng, path, rng.choices(PARAMETERS, k=2))
    method = rng.choice([*METHODS, *["GET"] * 20])
    headers = rng.sample(HEADERS, rng.choice([0, 1, 2, 5]))
    body = rng.choice([b"", b"", b"{}", b"x" * 100_000, b"[" * 10_000])
    return Attempt(request(path, *_accept(rng), *headers, method=method, body=body), "odd")


def _target(rng: random.Random, path: str, parameters: list[str]) -> str:
    pairs = []
    for name in parameters:
        value = VALUES.get(name, _flag)(rng)
        pairs.append(f"{name}={quote(value.encode('utf-8', 'replace'), safe=rng.choice(['', '=,()!']))}")
    target = path + "?" + rng.choice(["&", "&", ";"]).join(pairs)
    return target[: MANY + 1000] if rng.random() < 0.9 else target


def _accept(rng: random.Random) -> list[str]:
    return [f"Accept: {rng.choice(ACCEPTS)}"] if rng.random() < 0.5 else []


GOOD: Final = request(LIST)
CHUNKED: Final = b"POST /apis HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
BYTES: Final = (
    b"",
    b"\x00",
    b"\r\n" * 1000,
    b"\n\n\n",
    b"GET",
    b"GET /",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.0\r\n\r\n",
    b"GET /livez\r\n\r\n",
    b"GET  /  HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost\r\n\r\n",
    b"GET / HTTP/1.1\r\n: x\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
    b"GET / HTTP/1.1\r\nA: b\r\n folded\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
    b"GET / HTTP/1.1\nHost: localhost\n\n",
    b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 600,
    b"\x16\x03\x01\xff\xff",
    b"\x80\x2e\x01\x00\x02",
    b"SSH-2.0-x\r\n",
    CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",
    CHUNKED + b"-5\r\nhello\r\n0\r\n\r\n",
    CHUNKED + b"ffffffffffffffff\r\nhello",
    CHUNKED + b"f" * 5000 + b"\r\n",
    CHUNKED + b"5;" + b"a" * 50_000 + b"\r\nhello\r\n0\r\n\r\n",
    CHUNKED + b"0\r\nX: y\r\nHost: evil\r\n\r\n",
    CHUNKED + b"xyz\r\n",
    b"POST /apis HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    b"POST /apis HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 400 + b"\r\n\r\n",
    b"POST /apis HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
    b"POST /apis HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /apis HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\nx",
    b"POST /apis HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
    GOOD.replace(b"Connection: close\r\n", b"") * 20 + GOOD,
    GOOD.replace(b"Connection: close\r\n", b"") + b"\x00" * 100,
)


def raw(rng: random.Random) -> Attempt:
    """Bytes that are no request, or one with a few bytes changed, cut or doubled."""
    content = bytearray(rng.choice([*BYTES, *[GOOD] * 5, rng.randbytes(rng.randint(1, 2000))]))
    for _ in range(rng.choice([0, 0, 1, 3, 10])):
        if not content:
            break
        at = rng.randrange(len(content))
        change = rng.randrange(4)
        if change == 0:
            content[at] = rng.randrange(256)
        elif change == 1:
            del content[at : at + rng.randint(1, 8)]
        elif change == 2:
            content[at:at] = rng.randbytes(rng.randint(1, 8))
        else:
            content[at:at] = content[at : at + 50]
    return Attempt(bytes(content), "raw")


GENERATORS: Final = (documented, documented, odd, odd, raw)


def attempt(rng: random.Random) -> Attempt:
    """The next attempt."""
    return rng.choice(GENERATORS)(rng)
