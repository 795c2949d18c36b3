"""GPU catalog: an aggregated Kubernetes API server that knows which GPUs are free now."""

__version__ = "0.1.0"  # read from here when it is packed: asking the installation takes a sixth of a `get`
