"""What the pods of each node take besides devices: cpu, memory and a slot, every pod of the cluster counted.

A hundred thousand pods are kept here, so of each there are only plain tuples of plain values: they take little memory,
and the garbage collector does not walk through them.
"""

from collections.abc import Iterable, Iterator
from sys import intern

from apiserver.gpu.nodes import NO_COMPUTE, Compute

PodKey = tuple[str, str]
"""Namespace and name."""

Load = tuple[str, int, int, bool]
"""What one bound pod takes: the node's name, thousandths of a cpu, bytes of memory, and whether part of it could not be
read and is 0. Each takes one pod slot."""


class Loads:
    """The load of every bound pod, and the sum for each node, kept by deltas.

    A node that does not exist has a sum too: its pods weigh the moment a node of that name is there.
    """

    def __init__(self) -> None:
        self._loads: dict[PodKey, Load] = {}
        self._by_node: dict[str, Compute] = {}
        self._unreadable: set[PodKey] = set()

    def on(self, node_name: str) -> Compute:
        """What the pods of a node take together."""
        return self._by_node.get(node_name, NO_COMPUTE)

    def by_node(self) -> dict[str, Compute]:
        """The same for every node with pods; it stays as it is now."""
        return dict(self._by_node)

    @property
    def unreadable(self) -> Iterator[str]:
        """The pods of which cpu or memory could not be read and count as 0, as namespace/name, sorted."""
        return (f"{namespace}/{name}" for namespace, name in sorted(self._unreadable))

    def replace(self, loads: Iterable[tuple[PodKey, Load]]) -> dict[PodKey, Load]:
        """Take a complete list, and return what is not in it."""
        fresh = dict(loads)
        gone = {key: load for key, load in self._loads.items() if key not in fresh}
        for key in gone:
            self.delete(key)
        for key, load in fresh.items():
            self.apply(key, load)
        return gone

    def apply(self, key: PodKey, load: Load) -> None:
        """Take the load of one pod as it now is."""
        old = self._loads.get(key)
        if old == load:
            return
        if old is not None:
            self._add(old, -1)
        self._add(load, 1)
        node_name, cpu_milli, memory_bytes, is_unreadable = load
        # One text for each node and namespace, instead of one for each pod.
        key = (intern(key[0]), key[1])
        self._loads[key] = (intern(node_name), cpu_milli, memory_bytes, is_unreadable)
        (self._unreadable.add if is_unreadable else self._unreadable.discard)(key)

    def delete(self, key: PodKey) -> None:
        """Forget a pod: it is gone, terminal, or bound to no node."""
        old = self._loads.pop(key, None)
        if old is not None:
            self._add(old, -1)
            self._unreadable.discard(key)

    def _add(self, load: Load, sign: int) -> None:
        node_name, cpu_milli, memory_bytes, _ = load
        cpu, memory, pods = self._by_node.get(node_name, NO_COMPUTE)
        total = Compute(cpu + sign * cpu_milli, memory + sign * memory_bytes, pods + sign)
        if total.pods:
            self._by_node[node_name] = total
        else:
            del self._by_node[node_name]
