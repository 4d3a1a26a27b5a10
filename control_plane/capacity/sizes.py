"""How many bytes things take, and the limits of what may be how large: see constants.py.

Tests encode samples with the real codecs and compare. What Cassandra adds to a row was read off
the files of a real node (5.0.9) after a flush, with compression off.
"""

from control_plane.capacity.constants import Constant
from counter.keys import ROLLUP_BUCKETS
from counter.namespaces import Cardinality
from counter.segments import SEGMENT_EVENTS_MAX
from counter.settings import LANES_MAX, SHARDS_MAX

_FILES = "measured: files of Cassandra 5.0.9 after a flush, uncompressed"
_TABLE = "counter/storage/cassandra/schema.cql"


def _bytes(name: str, value: float, meaning: str, source: str) -> Constant:
    return Constant(name=name, unit="B", value=value, meaning=meaning, source=source)


EVENT_FIXED_BYTES = _bytes(
    "event_fixed_bytes",
    32,
    "of an event in a segment, without the counter's name",
    "measured: the codec of segments, with tokens of the SDK (16 bytes)",
)
SEGMENT_ROW_BYTES = _bytes("segment_row_bytes", 64, "of a segment, without its events", _FILES)
SEGMENT_REF_BYTES = _bytes(
    "segment_ref_bytes", 29, "of a segment in a fold record", "measured: the codec of fold records"
)
FOLD_RECORD_BYTES = _bytes(
    "fold_record_bytes_each",
    160,
    "of a fold record, without its segments",
    "measured: its codec and the row",
)
ROLLUP_STATE_BYTES = _bytes(
    "rollup_state_bytes", 55, "of a rollup, with counts of ten digits", "measured: its codec"
)
ROLLUP_ROW_BYTES = _bytes("rollup_row_bytes", 15, "what Cassandra adds to a rollup", _FILES)
RECENT_WINDOW_BYTES = _bytes(
    "recent_window_bytes",
    9,
    "of a window in the rollup of a rolling window",
    "measured: its codec, with deltas of up to four digits",
)
HISTORY_STATE_BYTES = _bytes(
    "history_state_bytes",
    64,
    "of a row of history, with counts of ten digits",
    "measured: its codec",
)
HISTORY_ROW_BYTES = _bytes(
    "history_row_bytes", 19, "what Cassandra adds to a row of history", _FILES
)
HISTORY_PARTITION_BYTES = _bytes(
    "history_partition_bytes",
    85,
    "of a counter's history of one step, without its rows and twice its name",
    _FILES,
)
CACHE_VALUE_BYTES = _bytes(
    "cache_value_bytes", 39, "of a cached count", "measured: its codec in memcached"
)
CACHE_KEY_BYTES = _bytes(
    "cache_key_bytes",
    20,
    "of a key, without the counter's name",
    "measured: its codec, with a prefix like tally.local",
)
CACHE_ITEM_BYTES = _bytes(
    "cache_item_bytes", 56, "what memcached adds to an item", "assumed: header and compare-and-swap"
)
CACHE_FILL = Constant(
    name="cache_fill",
    unit="",
    value=0.8,
    meaning="how much of its memory memcached fills with items",
    source="assumed: its slabs grow by 1.25",
)
TOKEN_ITEM_BYTES = _bytes(
    "token_item_bytes",
    110,
    "of a token that best_effort remembers",
    "derived: a key of 53 bytes, a value of 1, and the item",
)
BEST_EFFORT_VALUE_BYTES = _bytes(
    "best_effort_value_bytes",
    20,
    "of a best_effort counter",
    "measured: a 64-bit number as text",
)
ADD_REQUEST_BYTES = _bytes(
    "add_request_bytes",
    41,
    "of an add in a request, without the counter's name",
    "measured: its message in counter.v1",
)
READ_CALL_BYTES = _bytes(
    "read_call_bytes",
    160,
    "of a GetCount and its answer, without the counter's name",
    "assumed: messages of 40 bytes, and the headers of HTTP/2",
)
COMMIT_LOG_BYTES = _bytes(
    "commit_log_bytes", 8192 * 2**20, "of a node's commit log", "Cassandra's commitlog_total_space"
)

# What is kept longer than it is needed, and limits.

LOG_KEPT_LONGER_S = Constant(
    name="log_kept_longer_s",
    unit="s",
    value=4 * 3_600,
    meaning="until the file of an expired segment is removed",
    source=f"{_TABLE}: compaction windows of 1 h, and gc_grace_seconds",
)
KEPT_A_DAY_LONGER_S = Constant(
    name="kept_a_day_longer_s",
    unit="s",
    value=86_400,
    meaning="how much longer fold records and history are kept than they must be",
    source="docs/operating.md, schema",
)
DISK_FILL = Constant(
    name="disk_fill",
    unit="",
    value=0.7,
    meaning="how full disks may be: compactions and repairs need the rest",
    source="assumed",
)
PARTITION_BYTES_MAX = _bytes(
    "partition_bytes_max",
    10 * 2**20,
    "of a partition of the event log",
    "docs/operating.md, sizing",
)
ROLLUP_PARTITION_BYTES_MAX = _bytes(
    "rollup_partition_bytes_max", 100e6, "of a partition of rollups", "docs/operating.md, sizing"
)
SEGMENT_EVENTS = Constant(
    name="segment_events_max",
    unit="",
    value=SEGMENT_EVENTS_MAX,
    meaning="events of a segment, at most",
    source="counter/segments.py",
)
SHARDS_MOST = Constant(
    name="shards_max",
    unit="",
    value=SHARDS_MAX,
    meaning="shards of a platform, at most",
    source="docs/fleet-config.md",
)
SHARDS_LEAST = Constant(
    name="shards_min",
    unit="",
    value=16,
    meaning="shards of a platform, by default",
    source="docs/fleet-config.md",
)
SHARDS_PER_WORKER = Constant(
    name="shards_per_worker",
    unit="",
    value=2,
    meaning="so that shards spread evenly over workers",
    source="assumed",
)
LANES_MOST = Constant(
    name="lanes_max",
    unit="",
    value=LANES_MAX,
    meaning="lanes of a platform, at most",
    source="docs/fleet-config.md",
)
LANES_LEAST = Constant(
    name="lanes_min",
    unit="",
    value=4,
    meaning="lanes of a platform, by default",
    source="docs/fleet-config.md",
)


def rollup_buckets(cardinality: Cardinality) -> Constant:
    return Constant(
        name="rollup_buckets",
        unit="",
        value=ROLLUP_BUCKETS[cardinality],
        meaning=f"partitions of a namespace's rollups, with cardinality {cardinality}",
        source="docs/namespaces.md",
    )
