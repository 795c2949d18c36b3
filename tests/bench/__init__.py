"""Measurements: what it costs, printed, with generous bounds in the ordinary test run."""
