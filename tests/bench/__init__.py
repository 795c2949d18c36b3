"""Figures of what things cost, taken on purpose; some are bounded, generously, in the ordinary test run."""
