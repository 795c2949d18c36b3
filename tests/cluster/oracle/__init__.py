"""The oracle: random clusters on which the real kube-scheduler says what is free, and our model is held against it.

`make oracle N=1000` or `python -m tests.cluster.oracle --clusters 1000 --seed 1`. `drafting` invents clusters out of
`shapes`, `quantities` and `taints`, `observing` brings them onto a control plane and fills them with probes, `judging`
compares per node. 25 clusters are part of `make test`.
"""
