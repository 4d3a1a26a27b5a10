"""Every planned consequence comes true: each rule has a test that makes the change on a running
server and sees what the rule says. Those of caches, history and limits are in files of their own.
"""

from importlib import import_module
from pathlib import Path

import pytest

from control_plane.planning.consequences import ACTION_RULES, RULES
from control_plane.planning.plan import Consequence
from counter.namespaces import Cardinality, Definition, Strategy
from counter.v1 import counter_service_pb2 as pb
from tests.unit.control_plane.live import NAME, TESTED, Live, comes_true

MINUTE = 60_000
BEST_EFFORT, EVENTUAL = Strategy.BEST_EFFORT, Strategy.EVENTUAL
ACCURATE, ROLLING_WINDOW = Strategy.ACCURATE, Strategy.ROLLING_WINDOW
OTHER = Definition(name="other", strategy=ACCURATE)
PLAYS = Definition(name=NAME, strategy=ACCURATE)


def test_every_rule_has_a_test_in_which_it_comes_true() -> None:
    for each in Path(__file__).parent.glob("test_*_come_true.py"):
        import_module(f"tests.unit.control_plane.{each.stem}")
    rules = [(rule.subject, rule.when) for rule in (*RULES, *ACTION_RULES)]
    assert len(set(rules)) == len(rules)
    assert TESTED.keys() == set(rules)


# Namespaces as a whole.


@comes_true(("namespace", "created"))
async def test_a_new_namespace_starts_at_0(live: Live) -> None:
    assert (await live.refusal(live.read())).reason == "NAMESPACE_UNKNOWN"
    await live.define()
    assert await live.count() == 0


@comes_true(("namespace", "deleted"), ("namespace", "restored"))
async def test_a_deleted_namespace_is_out_of_reach_until_a_rollback(live: Live) -> None:
    await live.apply(PLAYS)
    await live.add(delta=5)
    await live.fold()
    await live.add(delta=2)  # not folded when it is deleted
    assert (await live.apply()).consequence is Consequence.DATA_LOSS
    assert (await live.refusal(live.read())).reason == "NAMESPACE_UNKNOWN"
    assert (await live.refusal(live.add())).reason == "NAMESPACE_UNKNOWN"
    await live.fold()
    await live.apply(PLAYS, ids={NAME: 1})
    assert await live.count() == 7


@comes_true(("namespace", "created again"))
async def test_a_namespace_that_is_created_again_starts_at_0(live: Live) -> None:
    await live.apply(PLAYS)
    await live.add(delta=5)
    await live.apply()
    await live.apply(PLAYS)
    assert await live.count() == 0
    await live.apply()
    await live.apply(PLAYS, ids={NAME: 1})
    assert await live.count() == 5, "a rollback brings them back"


@comes_true(("namespace", "replaced"))
async def test_an_earlier_namespace_takes_the_place_of_the_live_one(live: Live) -> None:
    await live.apply(PLAYS)
    await live.add(delta=5)
    await live.apply()
    await live.apply(PLAYS)
    await live.add(delta=3)
    assert await live.count() == 3
    change = await live.apply(PLAYS, ids={NAME: 1})
    assert change.consequence is Consequence.DATA_LOSS
    assert await live.count() == 5


@comes_true(("namespace", "forgotten"))
async def test_what_was_deleted_too_long_ago_starts_at_0(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counter.namespaces.RETIRED_MAX", 1)
    await live.apply(PLAYS)
    await live.add(delta=5)
    await live.apply()
    await live.apply(OTHER)
    await live.apply()
    await live.apply(PLAYS, ids={NAME: 1})
    assert await live.count() == 0


@comes_true(("namespace", "deleted best_effort"), ("namespace", "restored best_effort"))
async def test_best_effort_may_lose_what_was_deleted(live: Live) -> None:
    best_effort = Definition(name=NAME, strategy=BEST_EFFORT)
    await live.apply(best_effort)
    await live.add(delta=5)
    await live.apply()
    assert (await live.refusal(live.read())).reason == "NAMESPACE_UNKNOWN"
    await live.apply(best_effort, ids={NAME: 1})
    assert await live.count() == 5
    await live.apply()
    await live.apply(best_effort)
    await live.add_many(*(f"counter {number}" for number in range(2_000)))  # more than it keeps
    await live.apply(best_effort, ids={NAME: 1})
    assert await live.count() == 0


# Strategies.


@comes_true(("strategy", "to accurate"))
async def test_accurate_reads_include_what_eventual_ones_do_not_yet(live: Live) -> None:
    await live.define(strategy=EVENTUAL)
    await live.add()
    value = await live.read()
    assert (value.count, value.source) == (0, pb.SOURCE_ROLLUP)
    assert (await live.read()).source == pb.SOURCE_LOCAL_CACHE
    await live.define(strategy=ACCURATE)
    value = await live.read()
    assert (value.count, value.source) == (1, pb.SOURCE_ROLLUP_AND_TAIL)


@comes_true(("strategy", "to eventual"))
async def test_eventual_reads_do_not_include_the_last_seconds(live: Live) -> None:
    await live.define(strategy=ACCURATE)
    await live.add(delta=5)
    await live.fold()
    await live.add()
    assert await live.count() == 6
    added_at_ns = live.clock.now_ns()
    await live.define(strategy=EVENTUAL)
    value = await live.read()
    assert value.count == 5
    assert value.complete_through.ToNanoseconds() < added_at_ns
    request = pb.GetCountRequest(namespace=NAME, counter_name="a")
    request.max_staleness.FromSeconds(0)
    assert (await live.stub.GetCount(request)).value.count == 6, "what the hint says"


@comes_true(("strategy", "to rolling_window"), ("rolling_window.length", "added"))
async def test_a_rolling_window_begins_with_the_hits_that_are_known(live: Live) -> None:
    await live.define(strategy=EVENTUAL)
    await live.add(delta=5)
    await live.fold()
    await live.define(strategy=ROLLING_WINDOW, rolling_window_ms=MINUTE)
    await live.add(delta=2)
    value = await live.read()
    assert value.count == 2
    assert window_age_s(live, value) < 2, "not known from earlier on"
    live.pass_ms(30_000)
    assert 30 <= window_age_s(live, await live.read()) < 33
    live.pass_ms(30_000)
    assert 59 <= window_age_s(live, await live.read()) <= 60, "after one length it is whole"
    await live.define(strategy=ACCURATE)
    assert await live.count() == 7, "the all-time count was kept"


@comes_true(("strategy", "from rolling_window"), ("rolling_window.length", "removed"))
async def test_after_a_rolling_window_the_all_time_count_is_read(live: Live) -> None:
    await live.define(strategy=ROLLING_WINDOW, rolling_window_ms=10_000)
    await live.add(delta=5)
    live.pass_ms(20_000)
    await live.add(delta=2)
    value = await live.read()
    assert value.count == 2
    assert value.rate_per_s > 0
    await live.fold()
    await live.define(strategy=EVENTUAL)
    value = await live.read()
    assert value.count == 7
    assert not value.HasField("window_start")
    assert value.rate_per_s == 0


@comes_true(("strategy", "from best_effort"))
async def test_best_effort_counts_cannot_become_others(live: Live) -> None:
    await live.define(strategy=BEST_EFFORT)
    await live.add(delta=5)
    assert (await live.define(strategy=ACCURATE)).consequence is Consequence.IMPOSSIBLE
    assert await live.count() == 0


@comes_true(("strategy", "to best_effort"))
async def test_other_counts_cannot_become_best_effort(live: Live) -> None:
    await live.define(strategy=ACCURATE)
    await live.add(delta=5)
    assert (await live.define(strategy=BEST_EFFORT)).consequence is Consequence.IMPOSSIBLE
    assert await live.count() == 0


# Shadow phases.


@comes_true(("shadow", "begun"), ("shadow", "ended"))
async def test_a_shadow_counts_while_it_is_on(live: Live) -> None:
    await live.define(strategy=BEST_EFFORT)
    await live.add(delta=3)
    await live.define(strategy=BEST_EFFORT, shadow=EVENTUAL)
    await live.add(delta=4)
    assert await live.count() == 7, "reads answer as before"
    assert await compared(live) == (7, 4)
    await live.define(strategy=BEST_EFFORT)
    await live.add(delta=5)
    assert await live.count() == 12
    request = pb.CompareShadowRequest(namespace=NAME)
    assert (await live.refusal(live.stub.CompareShadow(request))).reason == "SHADOW_OFF"
    await live.define(strategy=BEST_EFFORT, shadow=EVENTUAL)
    await live.add()
    assert await compared(live) == (13, 4 + 1), "adds to what the shadow has counted"


@comes_true(("strategy", "cut over"), ("shadow", "cut over"), ("dedupe_ttl", "not needed"))
async def test_a_cutover_leaves_behind_what_was_before_the_shadow(live: Live) -> None:
    await live.define(strategy=BEST_EFFORT, dedupe_ttl_ms=MINUTE)
    await live.add(delta=3)
    await live.define(strategy=BEST_EFFORT, dedupe_ttl_ms=MINUTE, shadow=EVENTUAL)
    await live.add(delta=4)
    assert await live.count() == 7
    assert (await live.define(strategy=EVENTUAL)).consequence is Consequence.DATA_LOSS
    for _ in range(2):
        await live.add(token=live.token("retried"))
    await live.fold()
    assert await live.count() == 4 + 1


@comes_true(("strategy", "past the shadow"))
async def test_a_shadow_phase_ends_in_its_own_strategy_and_then_in_any(live: Live) -> None:
    shadowed = {"strategy": BEST_EFFORT, "shadow": EVENTUAL}
    await live.define(**shadowed)
    await live.add(delta=4)
    change = await live.define(strategy=ACCURATE)
    assert change.consequence is Consequence.IMPOSSIBLE
    assert "tally cutover plays" in change.fields[0].hint
    await live.define(**shadowed)
    await live.define(strategy=EVENTUAL)
    await live.define(strategy=ACCURATE)
    assert await live.count() == 4, "what the hint says"


# Plain fields.


@comes_true(("description", "changed"), ("owner", "changed"))
async def test_what_is_for_people_changes_no_count(live: Live) -> None:
    await live.define(strategy=ACCURATE)
    await live.add()
    await live.define(strategy=ACCURATE, description="Plays per title", owner="playback-team")
    await live.add()
    assert await live.count() == 2


@comes_true(("cardinality", "changed"))
async def test_with_another_cardinality_rollups_are_not_found(live: Live) -> None:
    await live.define(cardinality=Cardinality.LOW)
    await live.add(delta=5)
    await live.fold()
    assert await live.count() == 5
    change = await live.define(cardinality=Cardinality.HIGH, cache_ttl_ms=0, cache_local_ttl_ms=0)
    assert change.consequence is Consequence.IMPOSSIBLE
    assert await live.count() == 0


@comes_true(("max_delta", "lower"), ("max_delta", "higher"))
async def test_adds_beyond_max_delta_are_refused(live: Live) -> None:
    await live.define(strategy=ACCURATE, max_delta=100)
    await live.add(delta=100)
    await live.define(strategy=ACCURATE, max_delta=50)
    for delta in (51, -51):
        assert (await live.refusal(live.add(delta=delta))).reason == "DELTA_TOO_LARGE"
    await live.add(delta=-50)
    await live.define(strategy=ACCURATE, max_delta=51)
    await live.add(delta=51)
    assert await live.count() == 101


@comes_true(("dedupe_ttl", "removed"))
async def test_without_dedupe_ttl_a_retry_counts_again(live: Live) -> None:
    await live.define(strategy=BEST_EFFORT, dedupe_ttl_ms=MINUTE)
    token = live.token("retried")
    for _ in range(2):
        await live.add(token=token)
    assert await live.count() == 1
    await live.define(strategy=BEST_EFFORT)
    await live.add(token=token)
    assert await live.count() == 2


@comes_true(("dedupe_ttl", "shorter"))
async def test_with_a_shorter_dedupe_ttl_a_late_retry_counts_again(live: Live) -> None:
    await live.define(strategy=BEST_EFFORT, dedupe_ttl_ms=10 * MINUTE)
    counts = []
    for dedupe_ttl_ms in (20 * MINUTE, MINUTE):
        await live.define(strategy=BEST_EFFORT, dedupe_ttl_ms=dedupe_ttl_ms)
        token = live.token(f"retried {dedupe_ttl_ms}")
        await live.add(token=token)
        live.pass_ms(2 * MINUTE)
        await live.add(token=token)
        counts.append(await live.count())
    assert counts == [1, 1 + 2]


@comes_true(("dedupe_ttl", "added or longer"))
async def test_with_a_dedupe_ttl_a_retry_does_not_count_again(live: Live) -> None:
    await live.define(strategy=BEST_EFFORT)
    for dedupe_ttl_ms, counted in ((MINUTE, 1), (10 * MINUTE, 2)):
        await live.define(strategy=BEST_EFFORT, dedupe_ttl_ms=dedupe_ttl_ms)
        token = live.token(f"retried {dedupe_ttl_ms}")
        await live.add(token=token)
        live.pass_ms(dedupe_ttl_ms - 1)
        await live.add(token=token)
        assert await live.count() == counted


@comes_true(("rolling_window.length", "longer"))
async def test_a_longer_window_knows_no_older_hits(live: Live) -> None:
    await live.define(strategy=ROLLING_WINDOW, rolling_window_ms=10_000)
    await live.add(delta=5)
    live.pass_ms(20_000)
    await live.add(delta=2)
    await live.fold()
    await live.define(strategy=ROLLING_WINDOW, rolling_window_ms=MINUTE)
    value = await live.read()
    assert value.count == 2, "older hits are not known one by one"
    assert 8 <= window_age_s(live, value) <= 12
    live.pass_ms(50_000)
    value = await live.read()
    assert value.count == 2
    assert 59 <= window_age_s(live, value) <= 60, "whole after the difference"


@comes_true(("rolling_window.length", "shorter"))
async def test_a_shorter_window_counts_less_at_once(live: Live) -> None:
    await live.define(strategy=ROLLING_WINDOW, rolling_window_ms=MINUTE)
    await live.add(delta=5)
    live.pass_ms(20_000)
    await live.add(delta=2)
    assert await live.count() == 7
    await live.define(strategy=ROLLING_WINDOW, rolling_window_ms=10_000)
    assert await live.count() == 2


def window_age_s(live: Live, value: pb.CountValue) -> float:
    return (live.clock.now_ns() - value.window_start.ToNanoseconds()) / 1e9


async def compared(live: Live) -> tuple[int, int]:
    """What is read, and what the shadow has counted."""
    await live.fold()
    [found] = (await live.stub.CompareShadow(pb.CompareShadowRequest(namespace=NAME))).counters
    return found.count, found.shadow_count
