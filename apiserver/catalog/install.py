"""The group this server serves, put together from the live view."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

from apiserver.catalog import gpuclasscatalog, gpuclasses
from apiserver.cluster.view import View
from apiserver.serving.openapi import OpenAPI
from apiserver.serving.resources import GroupVersion, Resource, Subresource
from apiserver.serving.status import ServiceUnavailable
from apiserver.serving.store import ResourceStore
from apiserver.serving.versions import VersionSource

_RETRY_SECONDS: Final = 1


def install(view: View, versions: VersionSource, unsynced: Callable[[], str | None]) -> GroupVersion:
    """Declare everything that is served.

    Args:
        view: the live view.
        versions: makes resourceVersions.
        unsynced: says why no true answer can be given yet, or None when one can.
    """

    def require_sync() -> None:
        problem = unsynced()
        if problem is not None:
            raise ServiceUnavailable(problem, retry_after_seconds=_RETRY_SECONDS)

    def refresh(store: ResourceStore) -> None:
        require_sync()
        taken = changes.take()
        for name in sorted(taken.names):
            report, departed = view.report(name), taken.departed.get(name)
            if departed is not None and not store.holds(("", name)):
                # It came and went between two looks. Somebody may have seen it at another replica, and has to be told.
                store.put(("", name), gpuclasses.gpu_class_object(departed))
            if report is None:
                store.delete(("", name))
            else:
                store.put(("", name), gpuclasses.gpu_class_object(report))

    def read_catalog(_: str, name: str) -> dict[str, Any] | None:
        require_sync()
        return gpuclasscatalog.catalog_object(view, name)

    store = ResourceStore(versions, refresh)
    changes = view.follow(store.touch)
    catalog = Subresource("catalog", gpuclasscatalog.KIND, gpuclasscatalog.LAYOUT, read_catalog)
    resource = Resource(
        plural="gpuclasses",
        singular="gpuclass",
        kind=gpuclasses.KIND,
        namespaced=False,
        store=store,
        layout=gpuclasses.LAYOUT,
        short_names=("gpucatalog",),
        categories=("gpu",),
        subresources=(catalog,),
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
