"""Models of openapi-schema-pydantic for which Kubernetes' extensions survive.

The library ignores every field that it does not know, `x-kubernetes-group-version-kind` among them, and without that
one neither kubectl explain nor Terraform finds a kind. An instance of a subclass keeps its extensions also inside the
library's own models.
"""

from openapi_schema_pydantic.v3.v3_0_3 import operation, reference, schema
from pydantic import Extra


class Schema(schema.Schema):
    """A schema with extensions."""

    class Config:
        """How pydantic treats what it does not know."""

        extra = Extra.allow


class Reference(reference.Reference):
    """A reference with a description beside it, as Kubernetes writes them in version 2."""

    class Config:
        """How pydantic treats what it does not know."""

        extra = Extra.allow


class Operation(operation.Operation):
    """An operation with extensions."""

    class Config:
        """How pydantic treats what it does not know."""

        extra = Extra.allow
