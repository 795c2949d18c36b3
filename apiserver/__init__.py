"""GPU catalog: an aggregated Kubernetes API server that knows which GPUs are free now."""

from importlib.metadata import version

__version__ = version("gpuclass-catalog")
