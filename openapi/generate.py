"""Write `openapi/v2.json` and `openapi/v3.json` from what `apiserver/catalog/collections.py` declares: `make openapi`.

kube-aggregator does not make one version from the other, so both are written. They are committed: the program only
reads them, and needs neither this module nor the library.
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from openapi_schema_pydantic.v3.v3_0_3.components import Components
from openapi_schema_pydantic.v3.v3_0_3.info import Info
from openapi_schema_pydantic.v3.v3_0_3.open_api import OpenAPI
from openapi_schema_pydantic.v3.v3_0_3.security_scheme import SecurityScheme

from apiserver.catalog.collections import COLLECTIONS
from apiserver.catalog.gpuclasses import GROUP, VERSION
from apiserver.catalog.schema import Collection
from openapi import lint
from openapi.definitions import Definitions, Dialect, GroupVersion
from openapi.operations import in_version_2, paths

HERE: Final = Path(__file__).parent
SERVED: Final = GroupVersion(GROUP, VERSION)
TITLE: Final = "GPU catalog"
_OPENAPI: Final = "3.0.0"
"""What kube-apiserver calls its own; the library calls everything 3.0.3."""

_BEARER: Final = "BearerToken"
_BEARER_SCHEME: Final = {
    "type": "apiKey",
    "description": "Bearer Token authentication",
    "name": "authorization",
    "in": "header",
}


def version_2(served: GroupVersion, collections: Iterable[Collection]) -> dict[str, Any]:
    """The Swagger 2.0 document, which kube-aggregator merges into the one of the whole cluster."""
    collections = tuple(collections)
    definitions = Definitions(served, Dialect.V2)
    definitions.add(collections)
    found = {path: in_version_2(item) for path, item in paths(collections, definitions).items()}
    return {
        "swagger": "2.0",
        "info": {"title": TITLE, "version": served.version},
        "paths": found,
        "definitions": {
            name: schema.dict(by_alias=True, exclude_unset=True) for name, schema in definitions.schemas.items()
        },
        "securityDefinitions": {_BEARER: dict(_BEARER_SCHEME)},
        "security": [{_BEARER: []}],
    }


def version_3(served: GroupVersion, collections: Iterable[Collection]) -> dict[str, Any]:
    """The OpenAPI 3.0 document of the group and version."""
    collections = tuple(collections)
    definitions = Definitions(served, Dialect.V3)
    definitions.add(collections)
    found = paths(collections, definitions)  # refers to further definitions
    document = OpenAPI.parse_obj(
        {
            "openapi": _OPENAPI,
            "info": Info(title=TITLE, version=served.version),
            "paths": found,
            "components": Components.parse_obj(
                {
                    "schemas": definitions.schemas,
                    "securitySchemes": {_BEARER: SecurityScheme.parse_obj(_BEARER_SCHEME)},
                }
            ),
            "security": [{_BEARER: []}],
        }
    )
    return document.dict(by_alias=True, exclude_unset=True)


def documents() -> dict[str, str]:
    """File name to content, both documents.

    Raises:
        ValueError: a document breaks a rule; all broken ones are named.
    """
    second, third = version_2(SERVED, COLLECTIONS), version_3(SERVED, COLLECTIONS)
    problems = [*lint.problems_2(second, SERVED), *lint.problems_3(third, SERVED)]
    if problems:
        raise ValueError("\n".join(problems))
    return {name: _text(document) for name, document in (("v2.json", second), ("v3.json", third))}


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def main() -> int:
    """Write the documents."""
    for name, text in documents().items():
        (HERE / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
