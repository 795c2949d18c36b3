"""Everything that is served, as the OpenAPI documents describe it."""

from typing import Final

from apiserver.catalog.fitschema import FIT_PARAMETERS, GPU_FIT
from apiserver.catalog.offerschema import GPU_OFFERS
from apiserver.catalog.schema import GPU_CLASS, GPU_CLASS_CATALOG, GPU_CLASS_LIST, Collection

GPU_CLASSES: Final = Collection(
    plural="gpuclasses",
    kind=GPU_CLASS,
    list_kind=GPU_CLASS_LIST,
    subresources={"catalog": GPU_CLASS_CATALOG, "fit": GPU_FIT},
    parameters={"fit": FIT_PARAMETERS},
    field_selectors=("metadata.name", "spec.mode", "spec.vendor", "status.offered"),
)

COLLECTIONS: Final[tuple[Collection, ...]] = (GPU_CLASSES, GPU_OFFERS)
