"""Discovery, columns, priorities and the answers of the example snapshot, as they were last agreed on."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp.pytest_plugin import AiohttpClient

from apiserver.catalog.gpuoffers import Offering
from apiserver.catalog.install import install
from apiserver.cluster.tenancy import Tenancy
from apiserver.cluster.view import View
from apiserver.gpu.tenants import TenantRules
from apiserver.inputs import load_snapshot
from apiserver.serving.handlers import Handlers
from apiserver.serving.health import Health
from apiserver.serving.resources import GroupVersion
from apiserver.serving.server import make_app
from apiserver.serving.versions import VersionSource
from tests.golden.conftest import HERE, Golden
from tests.http.apps import AppServer, Client

MANIFESTS = HERE.parents[1] / "manifests"
GROUP = "/apis/catalog.cozystack.io"
BASE = f"{GROUP}/v1alpha1"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
AGE = re.compile(r"<unknown>|([0-9]+[smhdy]){1,2}")


@pytest.fixture
def served() -> GroupVersion:
    """What is served of the example snapshot."""
    view, tenancy = View(), Tenancy()
    load_snapshot(str(MANIFESTS / "examples" / "snapshot.yaml")).fill(view, tenancy, kubevirt=False)
    offering = Offering(tenancy, TenantRules(), lambda: None)
    return install(view, VersionSource(lambda: 1.8e9), lambda: None, offering)


@pytest.fixture
async def client(served: GroupVersion, aiohttp_client: AiohttpClient) -> Client:
    """A client of the server."""
    return await aiohttp_client(AppServer(make_app(Handlers(served, Health(), "0.1.0"), [])))


@pytest.mark.parametrize(
    ("name", "path", "accept"),
    [
        ("apis", "/apis", "application/json"),
        ("apis-group", GROUP, "application/json"),
        ("apis-group-version", BASE, "application/json"),
        ("apis-aggregated", "/apis", AGGREGATED),
        ("snapshot-list", f"{BASE}/gpuclasses", "application/json"),
        ("snapshot-table", f"{BASE}/gpuclasses", TABLE),
        ("snapshot-offers", f"{BASE}/gpuoffers", "application/json"),
    ],
)
async def test_answers(client: Client, golden: Golden, name: str, path: str, accept: str) -> None:
    """Answers stay as they are, but for versions, ages and addresses."""
    async with client.get(path, headers={"Accept": accept}) as response:
        assert response.status == 200
        golden(name, _normal(await response.json(content_type=None)))


def test_columns(served: GroupVersion, golden: Golden) -> None:
    """The columns of every resource and subresource: name, type, format, priority."""
    layouts = {each.plural: each.layout for each in served.resources}
    for resource in served.resources:
        layouts |= {f"{resource.plural}/{each.name}": each.layout for each in resource.subresources}
    golden("columns", {name: [each.definition() for each in layout.columns] for name, layout in layouts.items()})


def test_names(served: GroupVersion, golden: Golden) -> None:
    """What kubectl calls each resource by."""
    names = {
        each.plural: {"singular": each.singular, "shortNames": each.short_names, "categories": each.categories}
        for each in served.resources
    }
    golden("names", names)


def test_priorities(golden: Golden) -> None:
    """The priorities decide which kind a bare `kubectl get gpuclasses` means."""
    document = yaml.safe_load((MANIFESTS / "base" / "apiservice.yaml").read_text())
    golden("priorities", {key: document["spec"][key] for key in ("groupPriorityMinimum", "versionPriority")})


def test_no_file_is_left_over() -> None:
    """Every golden file is one that a test here compares with."""
    source = Path(__file__).read_text()
    assert [file.name for file in HERE.glob("*.json") if f'"{file.stem}"' not in source] == []


def _normal(value: Any) -> Any:  # noqa: ANN401 # JSON
    """The same without what changes from run to run."""
    if isinstance(value, dict):
        changing = {"resourceVersion": "N", "serverAddress": "HOST:PORT"}
        return {key: changing.get(key) or _normal(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_normal(each) for each in value]
    return "AGE" if isinstance(value, str) and AGE.fullmatch(value) else value
