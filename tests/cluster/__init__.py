"""A real control plane on loopback, with the catalog installed on it: for tests and for `make cluster`."""
