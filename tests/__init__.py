"""The tests, by what they need: nothing (unit), loopback (http), a real control plane (cluster)."""
