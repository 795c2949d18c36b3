"""The group this server serves, put together from the live view."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from apiserver.catalog import gpuclasscatalog, gpuclasses, gpufit, gpuoffers
from apiserver.catalog.gpuoffers import Offering
from apiserver.cluster.view import View
from apiserver.serving.openapi import OpenAPI, without_resource
from apiserver.serving.resources import Document, GroupVersion, Parameters, Resource, Subresource
from apiserver.serving.status import ServiceUnavailable
from apiserver.serving.store import ResourceStore
from apiserver.serving.versions import VersionSource

OFFERS: Final = "gpuoffers"

_RETRY_SECONDS: Final = 1


def install(
    view: View,
    versions: VersionSource,
    unsynced: Callable[[], str | None],
    offering: Offering | None = None,
    *,
    vm_memory_overhead: int = 0,
) -> GroupVersion:
    """Declare everything that is served.

    Args:
        view: the live view.
        versions: makes resourceVersions.
        unsynced: says why no true answer can be given yet, or None when one can.
        offering: what offers to tenants are made from; without it they are not served, and nothing names them.
        vm_memory_overhead: bytes that a VM's launcher takes beyond the memory that is asked for in `gpuclasses/fit`.
    """
    resources = [_gpuclasses(view, versions, _requiring(unsynced), vm_memory_overhead)]
    if offering is None:
        return GroupVersion(gpuclasses.GROUP, gpuclasses.VERSION, resources, read_openapi(offers=False))
    resources.append(_gpuoffers(view, offering, versions))
    return GroupVersion(gpuclasses.GROUP, gpuclasses.VERSION, resources, read_openapi())


def _requiring(unsynced: Callable[[], str | None]) -> Callable[[], None]:
    """Refuse with 503 while there is a reason to."""

    def require() -> None:
        problem = unsynced()
        if problem is not None:
            raise ServiceUnavailable(problem, retry_after_seconds=_RETRY_SECONDS)

    return require


def _gpuclasses(
    view: View, versions: VersionSource, require_sync: Callable[[], None], vm_memory_overhead: int
) -> Resource:
    def refresh(store: ResourceStore) -> None:
        require_sync()
        if not changes.pending:
            return
        taken = changes.take()
        for name in sorted(taken.names):
            report, departed = view.report(name), taken.departed.get(name)
            if report is not None:
                store.put(("", name), gpuclasses.gpu_class_object(report))
            else:
                store.end(("", name), None if departed is None else gpuclasses.gpu_class_object(departed))

    pages = gpuclasscatalog.Pages(view)

    async def read_catalog(_: str, name: str, __: Parameters) -> Document | None:
        require_sync()
        return pages.page(name)

    async def read_fit(_: str, name: str, parameters: Parameters) -> Document | None:
        require_sync()
        found = await gpufit.fit_object(view, name, parameters, vm_memory_overhead)
        return None if found is None else Document(found)

    store = ResourceStore(versions, refresh)
    changes = view.follow(store.touch)
    catalog = Subresource("catalog", gpuclasscatalog.KIND, gpuclasscatalog.LAYOUT, read_catalog)
    fit = Subresource("fit", gpufit.KIND, gpufit.LAYOUT, read_fit, at_once=gpufit.AT_ONCE)
    return Resource(
        plural="gpuclasses",
        singular="gpuclass",
        kind=gpuclasses.KIND,
        namespaced=False,
        store=store,
        layout=gpuclasses.LAYOUT,
        short_names=("gpucatalog",),
        categories=("gpu",),
        subresources=(catalog, fit),
        fields=gpuclasses.FIELDS,
    )


def _gpuoffers(view: View, offering: Offering, versions: VersionSource) -> Resource:
    return Resource(
        plural=OFFERS,
        singular="gpuoffer",
        kind=gpuoffers.KIND,
        namespaced=True,
        store=gpuoffers.make_stores(view, offering, versions, _requiring(offering.unsynced)),
        layout=gpuoffers.LAYOUT,
        short_names=("gpuoffer",),
        categories=("gpu",),
        fields=gpuoffers.FIELDS,
    )


@cache
def read_openapi(*, offers: bool = True) -> OpenAPI:
    """The documents that `make openapi` wrote: in an installed package they lie in it, in a checkout beside it.

    Args:
        offers: whether they tell of offers to tenants.
    """
    package = Path(__file__).parents[1]
    installed = package / "openapi"
    directory = installed if installed.is_dir() else package.parent / "openapi"
    v2, v3 = ((directory / name).read_bytes() for name in ("v2.json", "v3.json"))
    if not offers:
        v2, v3 = without_resource(v2, OFFERS), without_resource(v3, OFFERS)
    return OpenAPI(gpuclasses.API_VERSION, v2=v2, v3=v3)
