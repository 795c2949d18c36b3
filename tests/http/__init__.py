"""Tests over real sockets on loopback, without a cluster."""
