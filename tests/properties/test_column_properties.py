"""Adds in columns are the same adds as items, whatever is right or wrong with them."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from counter.clock import NS_PER_S, ManualClock
from counter.errors import InvalidRequest, TallyError
from counter.namespaces import EMPTY as NO_NAMESPACES
from counter.namespaces import Definition, Namespace, Strategy, next_snapshot
from counter.settings import Platform
from counter.v1 import counter_service_pb2 as pb
from counter_server import translate
from counter_server.admission import Admission
from counter_server.columns import columns_of, events_of, raw_adds, size_of

MAX_DELTA = 1_000
CLOCK = ManualClock()
PLATFORM = Platform(region="here", shards=2)
NOW_NS = CLOCK.now_ns()
LATEST_NS = NOW_NS + PLATFORM.accept_limit_ns
ADMISSION = Admission(PLATFORM, PLATFORM.layout(NOW_NS), CLOCK)

# Around every limit, in characters and in bytes.
LETTERS = st.sampled_from(["a", "é", "€", "🎬", "\x00"])
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.builds(
    lambda letter, length: letter * length,
    LETTERS,
    st.sampled_from([0, 1, 63, 64, 65, 85, 86, 128, 129, 255, 256, 257]),
)
TOKENS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.builds(
    lambda letter, length: letter * length,
    LETTERS,
    st.sampled_from([0, 1, 16, 17, 21, 22, 32, 33, 63, 64, 65]),
)
DELTAS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [0, 1, -1, MAX_DELTA, MAX_DELTA + 1, -MAX_DELTA, -MAX_DELTA - 1]
)
TIMES_NS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from(
    [0, -1, 1, NS_PER_S, NOW_NS, LATEST_NS, LATEST_NS + 1, 2**63 - 1]
)
REGIONS = st.sampled_from(["", "here", "mars"])
PLAIN = st.tuples(
    st.sampled_from(["a", "b" * 64, "c" * 256]),
    st.sampled_from([1, -MAX_DELTA]),
    st.sampled_from(["t", "u" * 64]),
    st.sampled_from([0, NOW_NS, LATEST_NS]),
    st.just(""),
)
ANY = st.tuples(NAMES, DELTAS, TOKENS, TIMES_NS, REGIONS)
# Mostly plain adds with a strange one among them: one is enough to be seen.
ADDS = st.lists(PLAIN, min_size=1, max_size=5) | st.lists(PLAIN | ANY, min_size=1, max_size=5)
Adds = list[tuple[str, int, str, int, str]]


def namespace() -> Namespace:
    definition = Definition(name="plays", strategy=Strategy.EVENTUAL, max_delta=MAX_DELTA)
    return next_snapshot(NO_NAMESPACES, [definition], applied_at_ns=0).namespaces["plays"]


NAMESPACE = namespace()


def columns(adds: Adds, *, with_regions: bool) -> pb.AddCountColumns:
    counters, deltas, tokens, times_ns, regions = zip(*adds, strict=True)
    sent = pb.AddCountColumns(
        counter_name=counters,
        delta=deltas,
        token=tokens,
        generation_time_ns=times_ns,
        region=regions if with_regions else (),
    )
    return pb.AddCountColumns.FromString(sent.SerializeToString())


def comparable(errors: dict[int, TallyError]) -> dict[int, Any]:
    return {at: (type(each), each.reason, each.message) for at, each in errors.items()}


@given(ADDS, st.booleans())
@example([("a", 1, "t", NOW_NS, "")], False)
@example([("é" * 128, 1, "é" * 32, NOW_NS, "")], False)
@example([("é" * 129, 1, "é" * 33, NOW_NS, "")], False)
def test_at_a_glance_and_one_by_one_are_the_same(adds: Adds, with_regions: bool) -> None:
    message = columns(adds, with_regions=with_regions)
    assert size_of(message) == len(adds)
    read = columns_of(message)
    events, errors = events_of(read, ADMISSION, NAMESPACE)
    one_by_one, errors_one_by_one = ADMISSION.events(NAMESPACE, raw_adds(read), NOW_NS)
    assert events == one_by_one
    assert comparable(errors) == comparable(errors_one_by_one)
    assert len(events) + len(errors) == len(adds)


@given(ADDS)
def test_columns_and_items_are_the_same(adds: Adds) -> None:
    items = []
    for counter, delta, token, time_ns, region in adds:
        item = pb.AddCountItem(counter_name=counter, delta=delta)
        item.idempotency_token.token, item.idempotency_token.region = token, region
        stamp = item.idempotency_token.generation_time
        stamp.seconds, stamp.nanos = divmod(time_ns, NS_PER_S)
        item.idempotency_token.generation_time.SetInParent()
        items.append(item)
    raw, without_token = translate.raw_adds(items)
    assert not without_token
    events, errors = ADMISSION.events(NAMESPACE, raw, NOW_NS)
    read = columns_of(columns(adds, with_regions=True))
    events_of_columns, errors_of_columns = events_of(read, ADMISSION, NAMESPACE)
    assert events_of_columns == events
    assert {at: each.reason for at, each in errors_of_columns.items()} == {
        at: each.reason for at, each in errors.items()
    }


@given(st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_columns_of_different_lengths_are_refused(lengths: list[int]) -> None:
    names, deltas, tokens, times, regions = lengths
    message = pb.AddCountColumns(
        counter_name=["a"] * names,
        delta=[1] * deltas,
        token=["t"] * tokens,
        generation_time_ns=[1] * times,
        region=[""] * regions,
    )
    even = names == deltas == tokens == times and regions in (0, names)
    if even:
        assert size_of(message) == names
    else:
        with pytest.raises(InvalidRequest) as refused:
            size_of(message)
        assert refused.value.reason == "COLUMNS_UNEVEN"
