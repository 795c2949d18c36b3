"""The tenants: every namespace with what its ResourceQuotas leave of devices, kept by deltas.

Invariant: after any sequence of deltas it equals one built from nothing out of the same objects.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from apiserver.cluster.changes import Changes, Feed
from apiserver.cluster.namespaces import Quota
from apiserver.gpu.quota import Limit, tightest
from apiserver.gpu.tenants import Namespace, Tenant


class Tenancy:
    """Namespaces and the ResourceQuotas that limit devices, joined."""

    def __init__(self) -> None:
        self._namespaces: dict[str, Namespace] = {}
        self._quotas: defaultdict[str, dict[str, Quota]] = defaultdict(dict)  # namespace -> name -> quota
        self._tenants: dict[str, Tenant] = {}
        self.feed: Feed[Tenant] = Feed()

    def names(self) -> Iterable[str]:
        """The names of the namespaces, in no particular order."""
        return self._tenants.keys()

    def tenant(self, name: str) -> Tenant | None:
        """The namespace with its budgets, or None when there is no such namespace."""
        return self._tenants.get(name)

    def follow(self, on_change: Callable[[], None] | None = None) -> Changes[Tenant]:
        """A reader of what changes, to which every namespace is new; of one that went it is told the last state."""
        return self.feed.follow(on_change, self._tenants)

    def replace_namespaces(self, namespaces: Iterable[Namespace]) -> None:
        """Take a complete list of namespaces."""
        fresh = {each.name: each for each in namespaces}
        for name in self._namespaces.keys() - fresh.keys():
            self.delete_namespace(name)
        for each in fresh.values():
            self.apply_namespace(each)

    def apply_namespace(self, namespace: Namespace) -> None:
        """Take one namespace as it now is."""
        self._namespaces[namespace.name] = namespace
        self._join(namespace.name)

    def delete_namespace(self, name: str) -> None:
        """Forget a namespace. Its quotas stay until they are told gone: order between two kinds is not promised."""
        self._namespaces.pop(name, None)
        self._join(name)

    def replace_quotas(self, quotas: Iterable[Quota]) -> None:
        """Take a complete list of the ResourceQuotas that limit devices."""
        before, self._quotas = self._quotas, defaultdict(dict)
        for quota in quotas:
            self._quotas[quota.namespace][quota.name] = quota
        for namespace in {*before, *self._quotas}:
            self._join(namespace)

    def apply_quota(self, quota: Quota) -> None:
        """Take one ResourceQuota as it now is."""
        self._quotas[quota.namespace][quota.name] = quota
        self._join(quota.namespace)

    def delete_quota(self, namespace: str, name: str) -> None:
        """Forget a ResourceQuota: it is gone, or limits no devices."""
        quotas = self._quotas.get(namespace, {})
        if quotas.pop(name, None) is not None:
            if not quotas:
                del self._quotas[namespace]
            self._join(namespace)

    def _join(self, name: str) -> None:
        """Work out one tenant anew, and tell it if that is news."""
        old, new = self._tenants.get(name), self._joined(name)
        if new == old:
            return
        if new is None:
            if old is not None:
                self.feed.departs(name, self._tenants.pop(name))
        else:
            self._tenants[name] = new
        self.feed.mark(name)

    def _joined(self, name: str) -> Tenant | None:
        namespace = self._namespaces.get(name)
        if namespace is None:
            return None
        limits: defaultdict[str, list[Limit]] = defaultdict(list)
        for quota in self._quotas.get(name, {}).values():
            for class_name, limit in quota.limits.items():
                limits[class_name].append(limit)
        return Tenant(namespace, {class_name: tightest(class_name, each) for class_name, each in limits.items()})
