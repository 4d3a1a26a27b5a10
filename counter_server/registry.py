"""The live namespaces, each bound to its strategy. Swapped as a whole (I10)."""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import replace

from counter.errors import InvalidRequest, NamespaceUnknown, SetupError
from counter.metrics import NAMESPACES, NAMESPACES_VERSION
from counter.namespaces import Namespace, Snapshot
from counter.namespaces import Strategy as StrategyName
from counter_server.strategies.logged import Logged
from counter_server.strategies.shadow import Shadow
from counter_server.strategies.strategy import Strategy

Binding = tuple[type[Strategy], Callable[[Namespace], Strategy]]


# How an operator knows a port.
_WORDS = {"best_effort_counters": "memcached"}


class Registry:
    def __init__(self, bindings: Mapping[StrategyName, Binding], ports: frozenset[str]) -> None:
        self._bindings = bindings
        self._ports = ports
        self.strategies: Mapping[str, Strategy] = {}
        self.version = 0
        NAMESPACES_VERSION.at().watch(self, lambda registry: registry.version)
        NAMESPACES.at().watch(self, lambda registry: len(registry.strategies))

    def check(self, snapshot: Snapshot) -> None:
        """Raises SetupError if one of the namespaces cannot be served here."""
        for namespace in snapshot.namespaces.values():
            for strategy in (namespace.strategy, namespace.shadow):
                if strategy is None:
                    continue
                kind, _ = self._bindings[strategy]
                missing = kind.needs - self._ports
                if missing:
                    raise SetupError(
                        f"namespace {namespace.name}: strategy {strategy} needs "
                        f"{_in_words(missing)}, which this server does not have"
                    )

    def switch(self, snapshot: Snapshot) -> None:
        """Takes a checked snapshot, as a whole. It must be stored by now: its ids go into keys."""
        strategies: dict[str, Strategy] = {}
        for namespace in snapshot.namespaces.values():
            known = self.strategies.get(namespace.name)
            if known is None or known.namespace != namespace:
                known = self._bound(namespace)
            strategies[namespace.name] = known
        self.strategies, self.version = strategies, snapshot.version

    def named(self, namespace: str) -> Strategy:
        """The strategy of a namespace that a request names; raises if there is none."""
        strategy = self.strategies.get(namespace)
        if strategy is not None:
            return strategy
        if not namespace:
            raise InvalidRequest("NAME_EMPTY", "namespace", "namespace is empty: name one")
        near = difflib.get_close_matches(namespace, self.strategies, n=1)
        hint = f", did you mean {near[0]}?" if near else ": ListNamespaces says which there are"
        raise NamespaceUnknown(f"there is no namespace {namespace[:64]}{hint}")

    def _bound(self, namespace: Namespace) -> Strategy:
        _, bind = self._bindings[namespace.strategy]
        strategy = bind(namespace)
        if namespace.shadow is None:
            return strategy
        # What the namespace will be after the cutover, with the same id: the same counters.
        later = replace(namespace, strategy=namespace.shadow, shadow=None)
        _, bind_shadow = self._bindings[namespace.shadow]
        shadow = bind_shadow(later)
        assert isinstance(shadow, Logged), "checked when it was loaded"
        return Shadow(strategy, shadow)


def _in_words(ports: frozenset[str]) -> str:
    return ", ".join(sorted(_WORDS.get(each, each) for each in ports))
