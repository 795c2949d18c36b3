"""The group this server serves, put together from the live view."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from apiserver.catalog import gpuclasscatalog, gpuclasses, gpufit
from apiserver.cluster.view import View
from apiserver.serving.openapi import OpenAPI
from apiserver.serving.resources import GroupVersion, Parameters, Resource, Subresource
from apiserver.serving.status import ServiceUnavailable
from apiserver.serving.store import ResourceStore
from apiserver.serving.versions import VersionSource

_RETRY_SECONDS: Final = 1


def install(
    view: View, versions: VersionSource, unsynced: Callable[[], str | None], *, vm_memory_overhead: int = 0
) -> GroupVersion:
    """Declare everything that is served.

    Args:
        view: the live view.
        versions: makes resourceVersions.
        unsynced: says why no true answer can be given yet, or None when one can.
        vm_memory_overhead: bytes that a VM's launcher takes beyond the memory that is asked for in `gpuclasses/fit`.
    """

    def require_sync() -> None:
        problem = unsynced()
        if problem is not None:
            raise ServiceUnavailable(problem, retry_after_seconds=_RETRY_SECONDS)

    def refresh(store: ResourceStore) -> None:
        require_sync()
        for name in sorted(view.take_changed()):
            report = view.report(name)
            if report is None:
                store.delete(("", name))
            else:
                store.put(("", name), gpuclasses.gpu_class_object(report))

    async def read_catalog(_: str, name: str, __: Parameters) -> dict[str, Any] | None:
        require_sync()
        return gpuclasscatalog.catalog_object(view, name)

    async def read_fit(_: str, name: str, parameters: Parameters) -> dict[str, Any] | None:
        require_sync()
        return await gpufit.fit_object(view, name, parameters, vm_memory_overhead)

    store = ResourceStore(versions, refresh)
    view.on_change = store.touch
    catalog = Subresource("catalog", gpuclasscatalog.KIND, gpuclasscatalog.LAYOUT, read_catalog)
    fit = Subresource("fit", gpufit.KIND, gpufit.LAYOUT, read_fit, at_once=gpufit.AT_ONCE)
    resource = Resource(
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
    return GroupVersion(gpuclasses.GROUP, gpuclasses.VERSION, (resource,), read_openapi())


@cache
def read_openapi() -> OpenAPI:
    """The documents that `make openapi` wrote: in an installed package they lie in it, in a checkout beside it."""
    package = Path(__file__).parents[1]
    installed = package / "openapi"
    directory = installed if installed.is_dir() else package.parent / "openapi"
    v2, v3 = ((directory / name).read_bytes() for name in ("v2.json", "v3.json"))
    return OpenAPI(gpuclasses.API_VERSION, v2=v2, v3=v3)
