"""Figures of what things cost, taken on purpose and not by `make test`."""
