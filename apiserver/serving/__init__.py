"""How any read-only Kubernetes API server behaves on the wire. It takes declared resources and knows none by itself."""
