"""Everything that is served, as the OpenAPI documents describe it."""

from typing import Final

from apiserver.catalog.offerschema import GPU_OFFERS
from apiserver.catalog.schema import GPU_CLASSES, Collection

COLLECTIONS: Final[tuple[Collection, ...]] = (GPU_CLASSES, GPU_OFFERS)
