"""Figures of the catalog beside what it is compared with, for `make bench`."""
