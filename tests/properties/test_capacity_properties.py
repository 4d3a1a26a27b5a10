"""What holds for the plan of every load: more never needs less, and every number is one."""

import math
from dataclasses import replace
from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from control_plane.capacity.load import Load, out_of_range
from control_plane.capacity.plan import Plan, plan
from control_plane.capacity.quantities import Kind
from counter.namespaces import HistoryStep, Strategy

MINUTE_MS, DAY_MS = 60_000, 86_400_000
HISTORIES = (
    (),
    (HistoryStep(step_ms=MINUTE_MS, retention_ms=7 * DAY_MS),),
    (
        HistoryStep(step_ms=MINUTE_MS, retention_ms=7 * DAY_MS),
        HistoryStep(step_ms=60 * MINUTE_MS, retention_ms=90 * DAY_MS),
    ),
    (
        HistoryStep(step_ms=MINUTE_MS, retention_ms=30 * DAY_MS),
        HistoryStep(step_ms=60 * MINUTE_MS, retention_ms=365 * DAY_MS),
        HistoryStep(step_ms=DAY_MS, retention_ms=3_650 * DAY_MS),
    ),
)
# What a fleet consists of; how far reads are behind is not among it.
NEEDS = (
    "servers", "workers", "nodes", "shards", "lanes", "disk_bytes", "memcached_bytes",
    "server_cores", "worker_cores", "node_cores", "log_bytes", "fold_record_bytes", "rollup_bytes",
    "segments_per_s", "client_bytes_per_s", "store_bytes_per_s",
)  # fmt: skip
RATES = st.floats(min_value=0, max_value=1e7) | st.floats(min_value=0, max_value=1_000)


@st.composite
def loads(draw: st.DrawFn) -> Load:
    strategy = draw(st.sampled_from(Strategy))
    rolling = strategy is Strategy.ROLLING_WINDOW
    counts_in_cache = strategy is Strategy.BEST_EFFORT
    return Load(
        adds_per_s=draw(RATES),
        reads_per_s=draw(RATES),
        counters=draw(st.integers(1, 10**8) | st.integers(1, 100)),
        retention_s=draw(st.integers(3_600, 30 * 86_400)),
        batch=draw(st.sampled_from((1, 7, 100, 1_000))),
        read_batch=draw(st.sampled_from((1, 20))),
        name_bytes=draw(st.integers(1, 256)),
        history=() if counts_in_cache else draw(st.sampled_from(HISTORIES)),
        hot_share=draw(st.floats(min_value=0, max_value=1) | st.just(0.001)),
        strategy=strategy,
        rolling_window_ms=300_000 if rolling else None,
        dedupe_ttl_ms=draw(st.sampled_from((0, 600_000))) if counts_in_cache else 0,
        cache_ttl_ms=draw(st.sampled_from((0, 500, 5_000))),
        cache_hits=draw(st.floats(min_value=0, max_value=1)),
        window_ms=draw(st.sampled_from((1_000, 5_000, 10_000))),
        replication=draw(st.integers(1, 5)),
        headroom=draw(st.floats(min_value=0, max_value=0.9)),
        node_cores=draw(st.sampled_from((4, 8, 32))),
    )


def assert_not_less(before: Plan, after: Plan) -> None:
    if before.refusals:
        refused = {each.code for each in before.refusals}
        assert after.refusals, f"{refused} was no reason any more"
        return
    if after.refusals:
        return
    for name in NEEDS:
        if name in before.lines:
            # Sums in another order differ in their last digits.
            assert after.value(name) >= before.value(name) * (1 - 1e-9), name
    assert before.embedded is not None
    assert after.embedded is not None
    assert before.embedded.enough or not after.embedded.enough


@given(loads(), st.data())
def test_more_load_never_needs_less(load: Load, data: st.DataObject) -> None:
    more = {
        "adds_per_s": load.adds_per_s * 1.5 + 10,
        "reads_per_s": load.reads_per_s * 1.5 + 10,
        "counters": load.counters * 2,
        "retention_s": min(30 * 86_400, load.retention_s * 2),
        "name_bytes": min(256, load.name_bytes + 10),
        "hot_share": min(1.0, load.hot_share * 1.5 + 0.01),
        "headroom": min(0.95, load.headroom + 0.05),
        "replication": load.replication + 1,
        "dedupe_ttl_ms": load.dedupe_ttl_ms * 2,
    }
    field = data.draw(st.sampled_from(sorted(more)))
    assert_not_less(plan(load), plan(replace(load, **{field: more[field]})))


@given(loads())
def test_more_history_never_needs_less(load: Load) -> None:
    assume(load.strategy is not Strategy.BEST_EFFORT)
    plans = [plan(replace(load, history=history)) for history in HISTORIES]
    for before, after in pairwise(plans):
        assert_not_less(before, after)


@given(loads())
def test_larger_batches_and_nodes_never_need_more(load: Load) -> None:
    before = plan(load)
    assume(not before.refusals)
    for change in ({"batch": load.batch * 2}, {"read_batch": load.read_batch * 2}):
        after = plan(replace(load, **change))
        assert not after.refusals
        assert after.value("servers") <= before.value("servers")
    after = plan(replace(load, node_cores=load.node_cores * 2))
    assert after.value("nodes") <= before.value("nodes")


@given(loads())
def test_every_number_is_finite_and_not_negative(load: Load) -> None:
    made = plan(load)
    assert bool(made.lines) != bool(made.refusals)
    for line in made.lines.values():
        assert math.isfinite(line.value), line
        assert line.value >= 0, line
        assert line.meaning
        assert bool(line.formula) == (line.kind is Kind.COMPUTED), line
        assert bool(line.source) == (line.kind is Kind.CONSTANT), line
    for refusal in made.refusals:
        assert all((refusal.code, refusal.what, refusal.why, refusal.change)), refusal


@given(loads())
def test_what_is_planned_keeps_to_the_limits(load: Load) -> None:
    made = plan(load)
    assume(not made.refusals and load.strategy is not Strategy.BEST_EFFORT)
    assert made.value("workers") <= made.value("shards") <= 4_096
    assert 4 <= made.value("lanes") <= 256
    assert made.value("partition_bytes") <= 10 * 2**20
    assert made.value("segment_bytes") <= 2**20
    assert made.value("nodes") >= load.replication
    assert made.value("disk_bytes_per_node") <= load.node_disk_bytes
    assert made.value("lag_s_most") >= made.value("lag_s_least") > 5.5
    share = 1 - load.headroom
    assert made.value("server_cores") <= made.value("servers") * share * (1 + 1e-6)
    assert made.value("worker_cores") <= made.value("workers") * share * (1 + 1e-6)


@given(st.builds(Load, adds_per_s=st.floats(), reads_per_s=st.floats(), counters=st.integers()))
def test_numbers_that_are_none_are_refused(load: Load) -> None:
    in_range = 0 <= load.adds_per_s <= 1e8 and 0 <= load.reads_per_s <= 1e8
    assert bool(out_of_range(load)) != (in_range and 1 <= load.counters <= 1e9)
