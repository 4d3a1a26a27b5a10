"""What the model knows about Tally and its stores: each number with its unit and where it is from.

Rates come from benchmarks/results: one run on two cores that the clients and the stores shared.
Rates per core are taken as what one core of a process of its own does; `headroom` is what keeps
the plan away from them. Bytes come from the codecs, and tests compare them. What nobody measured
is called assumed.
"""

from dataclasses import dataclass

from control_plane.capacity.quantities import Quantity, Sheet

_CASSANDRA = "benchmarks/results/cassandra.json"
_EMBEDDED = "benchmarks/results/embedded.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """A figure of a run of the benchmarks; `field` is empty for its value."""

    file: str
    figure: str
    field: str = ""

    def __str__(self) -> str:
        return f"measured: {self.file}, {' '.join(filter(None, (self.figure, self.field)))}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Constant:
    name: str
    unit: str
    value: float
    meaning: str
    source: Measured | str

    def on(self, sheet: Sheet) -> Quantity:
        return sheet.constant(self.name, self.unit, self.value, self.meaning, str(self.source))


# Servers: processor time of one, which has one core.

ADD_CALL_US = Constant(
    name="add_call_us",
    unit="µs",
    value=512,
    meaning="of a server, for a call that adds",
    source=Measured(
        file=_CASSANDRA, figure="AddCount, calls / native update", field="server_cpu_us_per_call"
    ),
)
ADD_ITEM_US = Constant(
    name="add_item_us",
    unit="µs",
    value=6.574,
    meaning="of a server, for each add of a batch",
    source=Measured(
        file=_CASSANDRA, figure="BatchAddCount, adds / native update", field="server_cpu_us_per_add"
    ),
)
READ_CALL_US = Constant(
    name="read_call_us",
    unit="µs",
    value=358,
    meaning="of a server, for a GetCount that a cache answers",
    source=Measured(
        file=_CASSANDRA, figure="GetCount, cached / empty", field="server_cpu_us_per_call"
    ),
)
READ_ITEM_US = Constant(
    name="read_item_us",
    unit="µs",
    value=6,
    meaning="of a server, for each counter of a read",
    source="derived: 3 µs in BatchGetCounts of 1,000 names on the embedded process, and as much "
    "for answers from memcached",
)
TAIL_READ_US = Constant(
    name="tail_read_us",
    unit="µs",
    value=870,
    meaning="of a server, for a read of the rollup and the tail",
    source="assumed: as a cached read and an add together, 358 + 512",
)
SERVERS_MIN = Constant(
    name="servers_min",
    unit="",
    value=2,
    meaning="so that one can go",
    source="docs/operating.md, topology",
)
COMMITS_PER_SERVER_PER_S = Constant(
    name="commits_per_server_per_s",
    unit="/s",
    value=50,
    meaning="commits of one server under load",
    source="derived: an AddCount waits 32 ms (p50), about one and a half commits",
)

# Workers: what one folds, on one core.

FOLD_EVENTS_PER_S = Constant(
    name="fold_events_per_s",
    unit="/s",
    value=234_634,
    meaning="events that a worker folds",
    source=Measured(
        file=_CASSANDRA,
        figure="events folded / scanned raw, cassandra, 10,000 counters",
        field="folded_per_s",
    ),
)
FOLD_HOT_EVENTS_PER_S = Constant(
    name="fold_hot_events_per_s",
    unit="/s",
    value=691_640,
    meaning="events of one counter that a worker folds",
    source=Measured(
        file=_CASSANDRA,
        figure="events folded, one counter / 10,000 counters, cassandra",
        field="folded_per_s",
    ),
)
FOLD_ROLLUPS_PER_S = Constant(
    name="fold_rollups_per_s",
    unit="/s",
    value=28_977,
    meaning="rollups that a worker reads, folds and writes",
    source=Measured(
        file=_CASSANDRA,
        figure="counters rolled up / rows written one by one, cassandra",
        field="rolled_up_per_s",
    ),
)
FOLD_HISTORY_ROWS_PER_S = Constant(
    name="fold_history_rows_per_s",
    unit="/s",
    value=8_153,
    meaning="rows of history that a worker writes, with the rollups that end them",
    source=Measured(
        file=_CASSANDRA,
        figure="rollups with a new row of history every second fold / without, cassandra",
        field="history_rows_per_s",
    ),
)
WORKERS_MIN = Constant(
    name="workers_min",
    unit="",
    value=2,
    meaning="so that one can go",
    source="docs/operating.md, topology",
)
FOLD_S_MIN = Constant(
    name="fold_s_min",
    unit="s",
    value=0.1,
    meaning="a fold pass at the least",
    source="the target of a pass: docs/operating.md, how workers keep up",
)
LOOKS_PER_WINDOW = Constant(
    name="looks_per_window",
    unit="",
    value=4,
    meaning="how often workers look for windows to close",
    source="docs/operating.md, how workers keep up",
)

# Cassandra: what one core of a node takes. The node that was measured had about one of two cores.

NODE_EVENTS_PER_S = Constant(
    name="node_events_per_s",
    unit="/s",
    value=114_093,
    meaning="events that a core of a node takes in, in large segments",
    source=Measured(
        file=_CASSANDRA, figure="BatchAddCount, adds / native update", field="adds_per_s"
    ),
)
NODE_SEGMENT_US = Constant(
    name="node_segment_us",
    unit="µs",
    value=602,
    meaning="of a node, for each segment that it writes and hands out again",
    source="derived: 301 µs per single add (docs/adr/0013), and about two adds shared a segment",
)
NODE_REQUESTS_PER_S = Constant(
    name="node_requests_per_s",
    unit="/s",
    value=3_760,
    meaning="small requests that a core of a node answers",
    source=Measured(file=_CASSANDRA, figure="native counters, same driver"),
)
NODE_ROLLUPS_PER_S = Constant(
    name="node_rollups_per_s",
    unit="/s",
    value=41_761,
    meaning="rollups that a core of a node takes in from folds",
    source=Measured(
        file=_CASSANDRA, figure="rollups written by folds / native update", field="rollups_per_s"
    ),
)
NODE_HISTORY_ROWS_PER_S = Constant(
    name="node_history_rows_per_s",
    unit="/s",
    value=8_153,
    meaning="rows of history that a core of a node takes in, with their rollups",
    source=Measured(
        file=_CASSANDRA,
        figure="rollups with a new row of history every second fold / without, cassandra",
        field="history_rows_per_s",
    ),
)
FOLD_REQUESTS = Constant(
    name="fold_requests",
    unit="",
    value=9,
    meaning="requests to agree on one fold of one shard, and one more for each lane",
    source="derived: record (agreement takes four), watermark, and looks before them",
)
TAIL_READ_REQUESTS = Constant(
    name="tail_read_requests",
    unit="",
    value=2,
    meaning="requests of a read of the rollup and the tail, and one more for each lane",
    source="derived: marks and row; calls at the same time share some",
)

# The embedded process: all on one core, folds included.

EMBEDDED_ADD_CALL_US = Constant(
    name="embedded_add_call_us",
    unit="µs",
    value=208,
    meaning="of the process, for a call that adds",
    source=Measured(file=_EMBEDDED, figure="AddCount / empty", field="server_cpu_us_per_call"),
)
EMBEDDED_ADD_ITEM_US = Constant(
    name="embedded_add_item_us",
    unit="µs",
    value=34.333,
    meaning="of the process, for each add and its fold, with a million counters",
    source=Measured(
        file=_EMBEDDED,
        figure="cost per add, 1,000 to 1,000,000 counters",
        field="1000000_counters_cpu_us",
    ),
)
EMBEDDED_READ_CALL_US = Constant(
    name="embedded_read_call_us",
    unit="µs",
    value=276,
    meaning="of the process, for a GetCount from its cache",
    source=Measured(
        file=_EMBEDDED, figure="GetCount from L1 / empty", field="server_cpu_us_per_call"
    ),
)
EMBEDDED_HISTORY_ROWS_PER_S = Constant(
    name="embedded_history_rows_per_s",
    unit="/s",
    value=39_227,
    meaning="rows of history that the process writes, with their rollups",
    source=Measured(
        file=_EMBEDDED,
        figure="rollups with a new row of history every second fold / without, sqlite",
        field="history_rows_per_s",
    ),
)
EMBEDDED_COUNTERS_MAX = Constant(
    name="embedded_counters_max",
    unit="",
    value=1_000_000,
    meaning="counters with which the process was measured",
    source="measured: benchmarks/results/embedded.json, 1,000,000 counters: peak memory",
)
EMBEDDED_DISK_BYTES_MAX = Constant(
    name="embedded_disk_bytes_max",
    unit="B",
    value=100e9,
    meaning="of one database file, to be backed up and restored in reasonable time",
    source="assumed",
)
EMBEDDED_SEGMENT_BYTES = Constant(
    name="embedded_segment_bytes",
    unit="B",
    value=105,
    meaning="of a segment on disk, without its events",
    source="derived: docs/operating-embedded.md, 150 for an add that comes alone",
)
