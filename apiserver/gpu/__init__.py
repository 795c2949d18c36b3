"""The model: how Kubernetes counts devices, as pure functions over values. No I/O, no clock."""
