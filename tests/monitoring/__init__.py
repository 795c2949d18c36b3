"""What is shipped for Prometheus and Grafana, as their own packages read it."""
