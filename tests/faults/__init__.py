"""Faults of every kind while readers and watchers go on, judged by what the cluster truly held."""
