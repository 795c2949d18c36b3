"""Real clients against two replicas: nobody can tell us from a server built on k8s.io/apiserver."""
