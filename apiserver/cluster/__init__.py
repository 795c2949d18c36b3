"""The watched cluster: objects read from the wire or from a dump, and the live view of them."""
