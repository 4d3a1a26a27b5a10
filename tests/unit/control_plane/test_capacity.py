import json
from dataclasses import replace
from pathlib import Path
from secrets import token_bytes

import msgspec
import pytest

from control_plane.capacity import constants, sizes
from control_plane.capacity.constants import Constant, Measured
from control_plane.capacity.load import Load, out_of_range
from control_plane.capacity.plan import plan
from control_plane.capacity.quantities import (
    Kind,
    Sheet,
    largest,
    power_of_two,
    round_down,
    round_up,
    smallest,
)
from control_plane.capacity.units import parse_bytes, parse_number, plain, shown
from counter.clock import NS_PER_S, ManualClock
from counter.events import Event
from counter.namespaces import Cardinality, HistoryStep, Strategy
from counter.rollups import CachedCount, FoldRecord, Recent, Rollup
from counter.segments import SEGMENT_EVENTS_MAX, SegmentRef, encode
from counter.storage.cassandra.states import to_text
from counter.storage.memcached.count_cache import encoded
from counter.storage.memcached.keys import counter_key, token_key
from counter.tokens import TokenFactory
from counter.v1 import counter_service_pb2 as pb

ROOT = Path(__file__).parents[3]
SMALL = Load(adds_per_s=100, reads_per_s=100, counters=1_000)
TIMES = "\u00d7"
NOW_NS = 1_795_000_000 * NS_PER_S
WINDOW = NOW_NS // (5 * NS_PER_S)
TEN_DIGITS = 9_876_543_210
ALL = [
    each
    for module in (constants, sizes)
    for each in vars(module).values()
    if isinstance(each, Constant)
]
MEASURED = [each for each in ALL if isinstance(each.source, Measured)]


# --- numbers that know how they came about ---


def test_a_formula_is_shown_in_names_and_in_numbers() -> None:
    sheet = Sheet()
    adds = sheet.given("adds", "/s", 50_000, "adds")
    size = sheet.constant("size", "B", 62, "of an event", "measured")
    log = sheet.named("log", "B", adds * (size + 2) / (1 - size / 124), "the log")
    line = sheet.lines["log"]
    assert log.value == 50_000 * 64 / 0.5
    assert line.formula.replace(TIMES, "*") == "adds * (size + 2) / (1 - size / 124)"
    assert line.filled.replace(TIMES, "*") == "50,000/s * (62 B + 2) / (1 - 62 B / 124)"
    assert (line.shown, log.text, log.filled) == ("6.4 MB", "log", "6.4 MB")
    assert sheet["log"] == log


def test_brackets_are_where_they_are_needed() -> None:
    sheet = Sheet()
    a, b, c = (sheet.given(name, "", value, "") for name, value in (("a", 8), ("b", 4), ("c", 2)))
    assert (a - (b - c)).text == "a - (b - c)"
    assert (a - b - c).text == "a - b - c"
    assert (a / (b / c)).text == "a / (b / c)"
    assert (a / (b * c)).text.replace(TIMES, "*") == "a / (b * c)"
    assert (a * b / c).text.replace(TIMES, "*") == "a * b / c"
    assert (a + b * c).text.replace(TIMES, "*") == "a + b * c"
    assert ((a + b) * c).text.replace(TIMES, "*") == "(a + b) * c"
    assert (a * (b + c)).filled.replace(TIMES, "*") == "8 * (4 + 2)"
    assert (largest(a + b, 3) / c).text == "max(a + b, 3) / c"


def test_rounding() -> None:
    sheet = Sheet()
    tenth = sheet.given("tenth", "", 0.1, "")
    assert round_up(tenth * 3 / tenth).value == 3  # and not 4, for 3.0000000000000004
    assert round_up(tenth).value == 1
    assert round_down(tenth * 30).value == 3
    assert smallest(tenth, 5).value == 0.1
    numbers = [sheet.given(f"of {n}", "", n, "") for n in (0, 1, 2, 3, 17, 64)]
    assert [power_of_two(each).value for each in numbers] == [1, 1, 2, 4, 32, 64]


def test_a_name_means_one_number() -> None:
    sheet = Sheet()
    sheet.constant("size", "B", 62, "of an event", "measured")
    sheet.constant("size", "B", 62, "of an event", "measured")
    with pytest.raises(AssertionError, match="twice"):
        sheet.given("size", "B", 63, "another one")


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "", "0"), (1_234_567.8, "", "1,234,568"), (61.44, "", "61.4"), (0.012345, "", "0.0123"),
        (3, "", "3"), (0.0000001, "", "0"), (62, "B", "62 B"), (1_500, "B", "1.5 kB"),
        (10 * 2**20, "B", "10 MiB"), (2e12, "B", "2 TB"), (3.2e15, "B", "3.2 PB"),
        (5e6, "B/s", "5 MB/s"), (50_000, "/s", "50,000/s"), (0.5, "s", "0.5 s"),
        (6.574, "µs", "6.57 µs"), (99.96, "cores", "100 cores"),
    ],
)  # fmt: skip
def test_numbers_are_shown_with_their_units(value: float, unit: str, text: str) -> None:
    assert shown(value, unit) == text


def test_numbers_are_read_as_people_write_them() -> None:
    assert [parse_number(each) for each in ("50000", "50_000", "50,000", "50k", "2M", "1.5G")] == [
        50_000, 50_000, 50_000, 50_000, 2_000_000, 1_500_000_000,
    ]  # fmt: skip
    assert [parse_number(each) for each in ("", "k", "2X", "-1", "1e5", "nan", "9" * 30)] == [
        None
    ] * 7
    assert [parse_bytes(each) for each in ("500GB", "2TB", "1.5T", "2 tb")] == [
        5e11, 2e12, 1.5e12, 2e12,
    ]  # fmt: skip
    assert [parse_bytes(each) for each in ("500", "2MB", "TB", "x")] == [None] * 4


def test_a_number_keeps_three_digits_that_tell_something() -> None:
    assert plain(0.00361) == "0.00361"
    assert plain(12.0) == "12"
    assert plain(1.999) == "2"


# --- constants ---


def test_constants_have_different_names_and_say_where_they_are_from() -> None:
    assert len({each.name for each in ALL}) == len(ALL) > 50
    assert len(MEASURED) >= 14
    for each in ALL:
        starts = ("measured: ", "derived", "assumed", "docs/", "counter/", "Cassandra's ")
        assert str(each.source).startswith((*starts, "the target of")), each
        assert each.meaning
        assert each.value > 0


@pytest.mark.parametrize("constant", ALL, ids=lambda each: each.name)
def test_the_unit_is_in_the_name(constant: Constant) -> None:
    expected = {
        "B": ("_bytes", "_max", "_each"),
        "µs": ("_us",),
        "/s": ("_per_s",),
        "s": ("_s", "_min"),
    }
    if constant.unit in expected:
        assert constant.name.endswith(expected[constant.unit])


@pytest.mark.parametrize("constant", ALL, ids=lambda each: each.name)
def test_a_page_or_file_that_a_constant_names_is_there(constant: Constant) -> None:
    for word in str(constant.source).replace(",", " ").replace(":", " ").split():
        if "/" in word and word.partition("/")[0] in ("docs", "counter", "benchmarks"):
            assert (ROOT / word).exists() or list(ROOT.glob(f"{word}*")), word


@pytest.mark.parametrize("constant", MEASURED, ids=lambda each: each.name)
def test_a_measured_constant_is_near_the_last_run(constant: Constant) -> None:
    """Runs on a shared machine differ; one that is further off is a reason to change it."""
    source = constant.source
    assert isinstance(source, Measured)
    figures = json.loads((ROOT / source.file).read_text())["figures"]
    (figure,) = [each for each in figures if each["name"] == source.figure]
    value = figure["explained_by"][source.field] if source.field else figure["value"]
    assert value / 1.5 <= constant.value <= value * 1.5


def near(constant: Constant, measured: float, tolerance: float = 0.15) -> bool:
    """Not too small, and not much too large."""
    return measured <= constant.value * 1.02 and constant.value <= measured * (1 + tolerance) + 1


@pytest.mark.parametrize("name_bytes", [8, 30, 64, 256])
def test_bytes_of_an_event(name_bytes: int) -> None:
    tokens = TokenFactory(ManualClock(NOW_NS))
    made = [tokens.next() for _ in range(SEGMENT_EVENTS_MAX)]
    events = [Event("x" * name_bytes, each.generation_time_ns, each.token, 1) for each in made]
    each = len(encode(events)) / len(events)
    assert near(sizes.EVENT_FIXED_BYTES, each - name_bytes)
    # The row has the rest: the file of a node had 52 bytes more than the body.
    alone = len(encode(events[:1])) - each
    assert sizes.SEGMENT_ROW_BYTES.value >= 52 + alone


def test_bytes_of_rollups_and_history() -> None:
    rollup = Rollup(TEN_DIGITS, 0, 0, WINDOW, TEN_DIGITS, WINDOW, WINDOW - 1_000_000)
    assert near(sizes.ROLLUP_STATE_BYTES, len(to_text(rollup)))
    step = NOW_NS // (60 * NS_PER_S)
    assert near(sizes.HISTORY_STATE_BYTES, len(f"{step} {to_text(rollup)}"))
    recent = Recent(WINDOW, tuple((WINDOW + offset, 1_234) for offset in range(300)))
    rolling = to_text(replace_recent(rollup, recent))
    assert near(sizes.RECENT_WINDOW_BYTES, (len(rolling) - len(to_text(rollup))) / 300, 0.2)


def replace_recent(rollup: Rollup, recent: Recent) -> Rollup:
    return msgspec.structs.replace(rollup, recent=recent)


def test_bytes_of_a_fold_record() -> None:
    refs = tuple(SegmentRef(WINDOW, 1, token_bytes(16), 100, 3, 0) for _ in range(1_000))
    record = FoldRecord(
        shard=3,
        from_window=WINDOW,
        to_window=WINDOW,
        segments=refs,
        event_count=100_000,
        namespaces_version=7,
        digest=token_bytes(17),
    )
    without = len(msgspec.msgpack.encode(msgspec.structs.replace(record, segments=())))
    whole = len(msgspec.msgpack.encode(record))
    assert near(sizes.SEGMENT_REF_BYTES, (whole - without) / len(refs))
    assert without < sizes.FOLD_RECORD_BYTES.value < without + 60


def test_bytes_in_memcached() -> None:
    key = (12, "x" * 30)
    count = CachedCount(TEN_DIGITS, NOW_NS, 0, 0)
    assert near(sizes.CACHE_VALUE_BYTES, len(encoded(key, count, NOW_NS // 1_000_000)))
    assert near(sizes.CACHE_KEY_BYTES, len(counter_key("tally.local:c:", key)) - 30, 0.25)
    token = len(token_key("tally.local:t:", key, "0123456789abcdef")) + 1
    assert near(sizes.TOKEN_ITEM_BYTES, token + sizes.CACHE_ITEM_BYTES.value)
    assert near(sizes.BEST_EFFORT_VALUE_BYTES, len(str(2**63)))


def test_bytes_on_the_wire() -> None:
    request = pb.BatchAddCountRequest(namespace="video_plays")
    for _ in range(100):
        item = request.items.add(counter_name="x" * 30, delta=1)
        item.idempotency_token.token = "0123456789abcdef"
        item.idempotency_token.generation_time.FromNanoseconds(NOW_NS + 123_456_789)
    assert near(sizes.ADD_REQUEST_BYTES, request.ByteSize() / 100 - 30)


# --- plans ---


def test_what_a_server_takes() -> None:
    single = plan(replace(SMALL, adds_per_s=10_000, reads_per_s=0, batch=1))
    assert single.value("server_cores") == pytest.approx(10_000 * (512 + 6.574) / 1e6)
    assert single.value("servers") == 11
    assert plan(replace(SMALL, adds_per_s=10_000, reads_per_s=0)).value("servers") == 2


def test_accurate_reads_reach_cassandra_and_no_cache() -> None:
    load = replace(SMALL, reads_per_s=10_000)
    eventual, accurate = plan(load), plan(replace(load, strategy=Strategy.ACCURATE))
    assert accurate.value("memcached_bytes") == 0 < eventual.value("memcached_bytes")
    assert accurate.value("store_reads_per_s") == 10_000 * (2 + 4)  # marks, row, four lanes
    assert eventual.value("store_reads_per_s") == 200  # 1,000 counters, each once in 5 s


def test_best_effort_needs_memory_and_no_workers() -> None:
    made = plan(replace(SMALL, strategy=Strategy.BEST_EFFORT, dedupe_ttl_ms=60_000))
    assert "workers" not in made.lines
    assert made.value("nodes") == 3
    assert made.value("memcached_bytes") == (1_000 * (20 + 56 + 30 + 20) + 100 * 60 * 110) / 0.8


def test_expected_lag() -> None:
    made = plan(SMALL)
    assert made.value("lag_s_least") == pytest.approx(5 + 0.5 + 0.1)
    assert made.value("lag_s_most") == pytest.approx(5 + 1.25 + 5 + 0.5 + 0.1)


def test_one_process_is_enough_for_a_small_load() -> None:
    small = plan(replace(SMALL, batch=1)).embedded
    assert small is not None
    assert small.enough
    assert small.lines["embedded_cores"].value == pytest.approx(
        (100 * (208 + 34.333) + 100 * (276 + 6)) / 1e6
    )
    for more, why in (
        ({"adds_per_s": 20_000}, "0.5 of one may be used"),
        ({"counters": 2_000_000}, "1,000,000 is the most"),
        ({"retention_s": 30 * 86_400, "adds_per_s": 1_000}, "100 GB is the most"),
    ):
        embedded = plan(replace(SMALL, **more)).embedded  # type: ignore[arg-type]
        assert embedded is not None
        assert not embedded.enough
        assert why in embedded.why


def test_cardinality_follows_the_counters_of_a_namespace() -> None:
    def of(counters: int, namespaces: int = 1) -> Cardinality:
        return plan(replace(SMALL, counters=counters, namespaces=namespaces)).cardinality

    assert [of(9_999), of(10_000), of(999_999), of(1_000_000)] == [
        "low",
        "medium",
        "medium",
        "high",
    ]
    assert of(1_000_000, namespaces=10) is Cardinality.MEDIUM


def refusal_of(**changes: object) -> tuple[str, str]:
    made = plan(replace(SMALL, **changes))  # type: ignore[arg-type]
    assert made.refusals, "not refused"
    first = made.refusals[0]
    return first.code, str(first)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        (
            {"adds_per_s": 450_000.0, "hot_share": 0.9},
            "HOT_COUNTER_FOLD",
            "one shard is folded by one worker",
        ),
        ({"counters": 10**9}, "ROLLUP_PARTITION", "over 4 namespaces"),
        (
            {"counters": 5_000_000, "cardinality": Cardinality.LOW},
            "ROLLUP_PARTITION",
            "cardinality: high",
        ),
        (
            {"adds_per_s": 1e8, "hot_share": 0.0, "counters": 10**8, "window_ms": 100},
            "SHARDS",
            "16,384 shards (next_power_of_2(max(16, 2 \u00d7 7,755))) are more than 4,096",
        ),
        (
            {"adds_per_s": 1e7, "hot_share": 0.0},
            "LANES",
            "512 lanes (next_power_of_2(max(4, 3.1 GB / 10 MiB))) are more than 256",
        ),
        ({"adds_per_s": 1e7, "hot_share": 0.0}, "LANES", "Take --window 4300ms or less, or split"),
        (
            {"adds_per_s": 1e8, "hot_share": 0.0, "name_bytes": 256, "window_ms": 100},
            "LANES",
            "10 MiB. Split the load over several platforms",
        ),
        ({"adds_per_s": 4e6, "hot_share": 0.0, "node_cores": 1}, "NODES", "Cassandra nodes"),
        ({"adds_per_s": -1.0}, "OUT_OF_RANGE", "--adds-per-s: -1 is out of range"),
        ({"retention_s": 31 * 86_400}, "OUT_OF_RANGE", "keep --history"),
        ({"retention_s": 60}, "OUT_OF_RANGE", "too short for these windows"),
        ({"rolling_window_ms": 60_000}, "OUT_OF_RANGE", "strategy eventual has none"),
        ({"strategy": Strategy.ROLLING_WINDOW}, "OUT_OF_RANGE", "Give it, like 300s"),
        ({"node_disk_bytes": 1e9}, "OUT_OF_RANGE", "--node-disk: 1 GB is out of range"),
        ({"window_ms": 50}, "OUT_OF_RANGE", "--window: 50ms is out of range"),
    ],
)
def test_a_refusal_says_why_and_what_to_change(
    changes: dict[str, object], code: str, words: str
) -> None:
    assert refusal_of(**changes)[0] == code
    assert words in refusal_of(**changes)[1]


def test_with_the_window_that_a_refusal_proposes_lanes_are_enough() -> None:
    load = replace(SMALL, adds_per_s=1e7, batch=10_000, node_cores=64, hot_share=0.01)
    (refusal,) = plan(load).refusals
    assert "Take --window 4300ms or less" in str(refusal)
    made = plan(replace(load, window_ms=4_300))
    assert made.refusals == ()
    assert made.value("lanes") == 256


def test_shards_follow_the_workers_and_lanes_the_bytes_of_a_window() -> None:
    few = plan(SMALL)
    assert (few.value("shards"), few.value("lanes")) == (16, 4)
    # One counter is hot and long: many bytes, little to fold.
    load = replace(SMALL, adds_per_s=300_000, name_bytes=256, hot_share=1)
    made = plan(load)
    assert (made.value("workers"), made.value("shards")) == (3, 16)
    window_bytes = 300_000 * 5 * (32 + 256)
    assert made.value("lanes") == 64 > window_bytes / (10 * 2**20) > 32
    assert made.value("partition_bytes") == window_bytes / 64
    rows = plan(replace(SMALL, adds_per_s=300_000, counters=10**6))
    assert (rows.value("shards"), rows.value("lanes")) == (64, 16)


def test_each_lane_is_read_by_each_fold() -> None:
    """What a fold asks of nodes, by the difference that lanes make."""
    load = replace(SMALL, adds_per_s=100_000, batch=10_000)
    few, many = plan(load), plan(replace(load, name_bytes=256))
    assert (few.value("lanes"), many.value("lanes")) == (4, 16)
    more = many.value("copy_cores") - few.value("copy_cores")
    assert more == pytest.approx(16 / 5 * (16 - 4) / 3_760)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([(90_000, 86_400_000)], "a step of 90s"),
        ([(60_000, 60_000)], "kept for 1m"),
        ([(60_000, 86_400_000), (60_000, 86_400_000 * 2)], "not a multiple"),
        ([(60_000, 86_400_000), (3_600_000, 86_400_000)], "not kept longer"),
        ([(60_000 * n, 86_400_000 * n) for n in (1, 2, 4, 8, 16)], "5 steps"),
    ],
)
def test_a_history_that_no_namespace_could_have_is_refused(
    steps: list[tuple[int, int]], words: str
) -> None:
    history = tuple(HistoryStep(step_ms=step, retention_ms=kept) for step, kept in steps)
    (first, *_) = out_of_range(replace(SMALL, history=history))
    assert first.what == "--history"
    assert words in str(first)


def test_a_history_with_steps_shorter_than_windows_is_refused() -> None:
    history = (HistoryStep(step_ms=60_000, retention_ms=86_400_000),)
    refusals = out_of_range(replace(SMALL, history=history, window_ms=120_000))
    assert "shorter than a window of 2m" in str(refusals[0])


def test_notes() -> None:
    notes = plan(replace(SMALL, adds_per_s=20_000, replication=1)).notes
    assert "one by one they need 21 servers" in notes[0]
    assert "take --replication 3" in notes[1]
    (note,) = plan(replace(SMALL, batch=1, cardinality=Cardinality.HIGH)).notes
    assert "has cardinality high, and low is for so many counters" in note


# --- the page ---


def test_every_constant_is_on_the_page_with_its_value() -> None:
    page = (ROOT / "docs" / "capacity.md").read_text()
    for each in ALL:
        row = f"| `{each.name}` | {shown(each.value, each.unit)} | {each.meaning} | {each.source} |"
        assert row in page, f"docs/capacity.md should have: {row}"


def test_every_formula_is_on_the_page() -> None:
    page = (ROOT / "docs" / "capacity.md").read_text()
    history = (HistoryStep(step_ms=60_000, retention_ms=7 * 86_400_000),)
    made = plan(replace(SMALL, history=history))
    assert made.embedded is not None
    for each in (*made.lines.values(), *made.embedded.lines.values()):
        if each.kind is Kind.COMPUTED:
            row = f"| `{each.name}` | {each.formula} | {each.meaning} |"
            assert row in page, f"docs/capacity.md should have: {row}"
