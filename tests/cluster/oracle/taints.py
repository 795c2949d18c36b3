"""Random taints of nodes and tolerations of classes; within one cluster from so few keys that they often meet."""

from collections.abc import Callable, Mapping

from tests.cluster.client import Json
from tests.cluster.oracle.dice import Dice

TAINTED = "taints"
TOLERATING = "tolerations"

NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "PreferNoSchedule", "NoExecute"
EFFECTS = (NO_SCHEDULE, NO_EXECUTE, PREFER_NO_SCHEDULE)
OWN_KEYS = ("gpu", "GPU", "example.com/dedicated")
NODE_KEYS = tuple(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "unschedulable",
        "memory-pressure",
        "network-unavailable",
        "out-of-service",
    )
)
VALUES = ("", "a")
ANY_EFFECT = ("", *EFFECTS)
SECONDS = (300, 30, 0, -5)


class Theme:
    """The keys of one cluster's taints and tolerations: one that somebody made up, and one of Kubernetes' own."""

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        self._own = dice.one(OWN_KEYS)
        self._of_node = dice.one(NODE_KEYS)

    def taints(self, *, some: bool = False) -> list[Json]:
        """The taints of one node; if some are wanted, at least one."""
        weights = {name: weight for name, weight in WEIGHTS.items() if not (some and name == NONE)}
        return TAINTS[self._dice.name(TAINTED, weights)](self)

    def tolerations(self, form: str = "") -> list[Json]:
        """The tolerations of one class, one of them of a form that may be given; or none."""
        if not form and self._dice.chance(0.25):
            return []
        forms = [form] if form else []
        self._dice.drawn.update((TOLERATING, each) for each in forms)
        forms += [self._dice.name(TOLERATING, FORM_WEIGHTS) for _ in range(self._dice.number(0 if forms else 1, 2))]
        return [each for form in self._dice.shuffled(forms) for each in FORMS[form](self)]

    def taint(self, effect: str) -> Json:
        """A taint of this effect that somebody made."""
        return self._taint(self._own, effect)

    def taint_of_node(self) -> Json:
        """A taint as the node controller makes, on a node that gives no cause."""
        return self._taint(self._of_node, self._dice.one(EFFECTS[:2]))

    def several_taints(self) -> list[Json]:
        """Some taints, no two of the same key and effect."""
        made = [self._taint(self._key(), self._dice.one(EFFECTS)) for _ in range(self._dice.number(2, 4))]
        return list({(each["key"], each["effect"]): each for each in made}.values())

    def tolerating(self, operator: str | None, *, effects: tuple[str, ...] = ANY_EFFECT, key: bool = True) -> Json:
        """One toleration, sometimes for some seconds where that is allowed."""
        made: Json = {"key": self._key()} if key else {}
        if operator is not None:
            made["operator"] = operator
        if operator != "Exists" and self._dice.chance(0.7):
            made["value"] = self._dice.one(VALUES)
        effect = self._dice.one(effects)
        if effect:
            made["effect"] = effect
        if effect == NO_EXECUTE and self._dice.chance(0.4):
            made["tolerationSeconds"] = self._dice.one(SECONDS)
        return made

    def for_seconds(self) -> Json:
        """One toleration that ends."""
        key = {"key": self._key()} if self._dice.chance(0.5) else {}
        return {**key, "operator": "Exists", "effect": NO_EXECUTE, "tolerationSeconds": self._dice.one(SECONDS)}

    def _key(self) -> str:
        return self._own if self._dice.chance(0.7) else self._of_node

    def _taint(self, key: str, effect: str) -> Json:
        value = self._dice.one(VALUES)
        return {"key": key, "effect": effect, **({"value": value} if value else {})}


NONE = "none"
TAINTS: Mapping[str, Callable[[Theme], list[Json]]] = {
    NONE: lambda _: [],
    "NoSchedule": lambda theme: [theme.taint(NO_SCHEDULE)],
    "NoExecute": lambda theme: [theme.taint(NO_EXECUTE)],
    "PreferNoSchedule": lambda theme: [theme.taint(PREFER_NO_SCHEDULE)],
    "one of node.kubernetes.io": lambda theme: [theme.taint_of_node()],
    "several": Theme.several_taints,
}
WEIGHTS = {name: 12 if name == NONE else 2 for name in TAINTS}

FORMS: Mapping[str, Callable[[Theme], list[Json]]] = {
    "a key exists": lambda theme: [theme.tolerating("Exists")],
    "a key has a value": lambda theme: [theme.tolerating("Equal")],
    "no operator": lambda theme: [theme.tolerating(None)],
    "an empty operator": lambda theme: [theme.tolerating("")],
    "any key of one effect": lambda theme: [theme.tolerating("Exists", effects=EFFECTS, key=False)],
    "any key of any effect": lambda _: [{"operator": "Exists"}],
    "for some seconds": lambda theme: [theme.for_seconds()],
    "seconds first, then for ever": lambda theme: [theme.for_seconds(), {"operator": "Exists"}],
    "for ever first, then seconds": lambda theme: [{"operator": "Exists", "effect": NO_EXECUTE}, theme.for_seconds()],
}
FORM_WEIGHTS = {name: 1 if "any effect" in name or "," in name else 3 for name in FORMS}
