"""The registry: a snapshot is served whole or not at all (I10)."""

from functools import partial
from typing import ClassVar

import pytest

from counter.errors import SetupError
from counter.namespaces import EMPTY, Definition, Namespace, Snapshot, Strategy, next_snapshot
from counter_server.registry import Registry
from counter_server.strategies import Accurate, BestEffort, Shadow
from tests.unit.counter_server.parts import Parts


class Demanding(Accurate):
    needs: ClassVar[frozenset[str]] = frozenset({"event_log", "moon", "stars"})


@pytest.fixture
def registry(parts: Parts) -> Registry:
    return Registry(
        {
            Strategy.ACCURATE: (Accurate, partial(Accurate, path=parts.path())),
            Strategy.EVENTUAL: (Demanding, partial(Demanding, path=parts.path())),
            Strategy.BEST_EFFORT: (
                BestEffort,
                partial(BestEffort, counters=parts.stores.best_effort_counters),
            ),
        },
        frozenset({"event_log", "ledger", "rollup_store", "best_effort_counters"}),
    )


def snapshot(current: Snapshot, **strategies: Strategy) -> Snapshot:
    wanted = [Definition(name=name, strategy=each) for name, each in strategies.items()]
    return next_snapshot(current, wanted, applied_at_ns=1)


def test_namespaces_are_bound_to_their_strategies(registry: Registry) -> None:
    first = snapshot(EMPTY, likes=Strategy.ACCURATE, hits=Strategy.BEST_EFFORT)
    registry.check(first)
    registry.switch(first)
    assert {name: type(each) for name, each in registry.strategies.items()} == {
        "hits": BestEffort,
        "likes": Accurate,
    }
    assert registry.version == 1


def test_a_strategy_that_lacks_a_port_is_refused_and_nothing_changes(registry: Registry) -> None:
    first = snapshot(EMPTY, likes=Strategy.ACCURATE)
    registry.switch(first)
    before = dict(registry.strategies)
    second = snapshot(first, aaa=Strategy.ACCURATE, likes=Strategy.EVENTUAL)
    with pytest.raises(SetupError, match="namespace likes: strategy eventual needs moon, stars"):
        registry.check(second)
    assert dict(registry.strategies) == before
    assert registry.version == 1


def shadowed(current: Snapshot, shadow: Strategy) -> Snapshot:
    wanted = [Definition(name="hits", strategy=Strategy.BEST_EFFORT, shadow=shadow)]
    return next_snapshot(current, wanted, applied_at_ns=1)


def test_a_namespace_with_a_shadow_is_bound_to_both(registry: Registry) -> None:
    first = shadowed(EMPTY, Strategy.ACCURATE)
    registry.check(first)
    registry.switch(first)
    both = registry.strategies["hits"]
    assert isinstance(both, Shadow)
    assert isinstance(both.old, BestEffort)
    assert isinstance(both.shadow, Accurate)
    assert both.namespace == first.namespaces["hits"]
    later = both.shadow.namespace
    assert (later.id, later.strategy, later.shadow) == (both.namespace.id, Strategy.ACCURATE, None)


def test_a_shadow_needs_its_ports_too(registry: Registry) -> None:
    with pytest.raises(SetupError, match="namespace hits: strategy eventual needs moon, stars"):
        registry.check(shadowed(EMPTY, Strategy.EVENTUAL))


def test_what_did_not_change_stays_and_what_is_gone_goes(registry: Registry) -> None:
    first = snapshot(EMPTY, likes=Strategy.ACCURATE, plays=Strategy.ACCURATE)
    registry.switch(first)
    likes, plays = registry.strategies["likes"], registry.strategies["plays"]
    during = registry.strategies
    second = snapshot(first, likes=Strategy.ACCURATE, hits=Strategy.BEST_EFFORT)
    registry.switch(second)
    assert registry.strategies["likes"] is likes
    assert set(registry.strategies) == {"likes", "hits"}
    # Who had looked before sees the old snapshot whole.
    assert during["plays"] is plays
    assert set(during) == {"likes", "plays"}


def test_a_namespace_that_changed_is_bound_anew(registry: Registry) -> None:
    first = snapshot(EMPTY, likes=Strategy.ACCURATE)
    registry.switch(first)
    before = registry.strategies["likes"]
    changed = Definition(name="likes", strategy=Strategy.ACCURATE, max_delta=7)
    registry.switch(next_snapshot(first, [changed], applied_at_ns=2))
    after = registry.strategies["likes"]
    assert after is not before
    assert after.namespace.max_delta == 7
    assert after.namespace.id == before.namespace.id


def test_a_namespace_that_was_created_anew_has_another_id(registry: Registry) -> None:
    first = snapshot(EMPTY, likes=Strategy.ACCURATE)
    registry.switch(first)
    before: Namespace = registry.strategies["likes"].namespace
    gone = snapshot(first)
    registry.switch(gone)
    assert dict(registry.strategies) == {}
    registry.switch(snapshot(gone, likes=Strategy.ACCURATE))
    assert registry.strategies["likes"].namespace.id != before.id
    assert registry.version == 3
