"""The reference: `api.md` from the OpenAPI document and the example cluster, `flags.md` from the command line."""
