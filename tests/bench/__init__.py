"""Measurements: what the catalog costs, and beside what it is compared with."""
