"""Every metric of every program: its name, unit and meaning, its labels and all their values.

Nothing else makes metrics, and docs/metrics.md explains each of these. No label can have an
unbounded number of values: no names of counters or namespaces, no tokens, no addresses.

Parts ask for their series when they are made (`COMMIT_EVENTS.at()`) and keep them.
"""

from collections.abc import Iterator, Sequence

from counter import errors
from counter.instruments import Counter, Gauge, Histogram
from counter.settings import SHARDS_MAX

# Calls take single-digit milliseconds: that is where the buckets are close.
SECONDS = (
    *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
EVENTS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000)
SEGMENTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)

RPCS = {
    "CounterService": (
        *("AddCount", "AddAndGetCount", "GetCount", "ClearCount", "BatchAddCount"),
        *("BatchGetCount", "StreamAddCount", "GetTokenStatus", "GetCountAt", "GetCountHistory"),
        *("ListCounters", "TopCounters", "AdjustCount", "CompareShadow"),
    ),
    "NamespaceService": (
        *("ListNamespaces", "GetNamespace", "ValidateNamespaces", "PlanNamespaces"),
        *("ApplyNamespaces", "RollbackNamespaces", "CutoverNamespace", "ListVersions"),
        *("WatchNamespaces", "ListProcesses"),
    ),
    "RollupService": ("GetRollupStatus", "AuditCounter", "AuditWindow", "QuarantineSegment"),
}
CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)
LATE_OUTCOMES = ("duplicate", "expired", "too_old", "pending", "overloaded", "failed")
CACHE_LAYERS = ("local", "shared", "store")
CACHE_RESULTS = ("hit", "stale", "miss")
# What a store runs, by the names of its adapter.
STATEMENTS = {
    "cassandra": (
        *("append_segment", "segment_refs", "segment_bodies", "layout", "open_layout", "closed"),
        *("close", "watermarks", "advance", "propose_fold", "folds", "read_rollups"),
        *("write_rollup", "latest_namespaces", "get_namespaces", "put_namespaces", "beat"),
        *("live_members", "leave", "set_aside", "set_asides", "page_rollups", "write_history"),
        "count_rollups",
        *("history_at", "history_between", "write_adjustment", "adjustments", "list_namespaces"),
    ),
    "memcached": ("get", "add", "set", "incr"),
    "sqlite": ("read", "transaction"),
}
JOBS = ("beat", "close", "retention", "history_expiry", "audit")
AUDIT_RESULTS = ("equal", "different", "without_base", "failed")
# Those of a namespace: counter.namespaces.Limits.
LIMITS = ("adds_per_s", "reads_per_s", "counters", "batch_items", "names")
STORE_ERROR_KINDS = (
    *("timeout", "unavailable", "overloaded", "connection", "full", "read_only", "damaged"),
    "other",
)


def _reasons() -> Iterator[str]:
    """Of all errors that a call can end with."""
    yield from errors.INVALID_REASONS
    kinds = [errors.TallyError]
    while kinds:
        kind = kinds.pop()
        yield kind.reason
        kinds += kind.__subclasses__()


def _all(values: Sequence[str] | Iterator[str]) -> frozenset[str]:
    return frozenset(values)


_RPC = _all([rpc for of_service in RPCS.values() for rpc in of_service])
_REASON = _all(_reasons())

# Calls: all programs.

CALL_SECONDS = Histogram(
    "tally_call_seconds",
    "s",
    "Calls and how long they took, from the request's arrival to the answer.",
    {"rpc": _RPC, "code": _all(CODES)},
    SECONDS,
)
CALL_ERRORS = Counter(
    "tally_call_errors_total",
    "{call}",
    "Calls that were answered with an error, by its reason.",
    {"rpc": _RPC, "reason": _REASON},
)
CALLS_IN_FLIGHT = Gauge(
    "tally_calls_in_flight", "{call}", "Calls that are being worked on.", {"rpc": _RPC}
)

BACKGROUND_FAILURES = Counter(
    "tally_background_failures_total",
    "{failure}",
    "Times that work beside the calls failed unexpectedly and began anew: a bug.",
    {},
)

# The server: adds.

ITEM_ERRORS = Counter(
    "tally_item_errors_total",
    "{item}",
    "Items of batches that were answered with an error, by its reason.",
    {"reason": _REASON},
)
COMMIT_SECONDS = Histogram(
    "tally_commit_seconds",
    "s",
    "Group commits and how long they took, the check of the close mark included.",
    {"result": _all(["ok", "failed"])},
    SECONDS,
)
COMMIT_EVENTS = Histogram("tally_commit_events", "{event}", "Events per group commit.", {}, EVENTS)
COMMIT_SEGMENTS = Histogram(
    "tally_commit_segments", "{segment}", "Segments per group commit.", {}, SEGMENTS
)
CLOSE_CHECK_SECONDS = Histogram(
    "tally_close_check_seconds",
    "s",
    "How long a commit waited, after its write, for the read of the close mark.",
    {},
    SECONDS,
)
EVENTS_WAITING = Gauge(
    "tally_events_waiting", "{event}", "Events that wait for a commit or are in one.", {}
)
LATE_TOKENS = Counter(
    "tally_late_tokens_total",
    "{event}",
    "Events that came after their window had closed, by what was answered.",
    {"outcome": _all(LATE_OUTCOMES)},
)
BEST_EFFORT_ADDS = Counter(
    "tally_best_effort_adds_total",
    "{event}",
    "Events of best_effort namespaces, counted or dropped as duplicates.",
    {"result": _all(["counted", "duplicate"])},
)
BEST_EFFORT_REQUEST_EVENTS = Histogram(
    "tally_best_effort_request_events",
    "{event}",
    "Events per request to the counters of best_effort: calls that come together share one.",
    {},
    EVENTS,
)

LIMITED = Counter(
    "tally_limited_total",
    "{item}",
    "Adds and reads that a limit of their namespace refused.",
    {"limit": _all(LIMITS)},
)

# The server: reads.

CACHE_LOOKUPS = Counter(
    "tally_cache_lookups_total",
    "{counter}",
    "Counters looked up for eventual reads, by layer and by what was found there.",
    {"layer": _all(CACHE_LAYERS), "result": _all(CACHE_RESULTS)},
)
ACCURATE_READS = Counter(
    "tally_accurate_reads_total", "{counter}", "Counters read with their tail.", {}
)
BEST_EFFORT_READS = Counter(
    "tally_best_effort_reads_total", "{counter}", "Counters of best_effort namespaces read.", {}
)
TAIL_READ_SECONDS = Histogram(
    "tally_tail_read_seconds",
    "s",
    "Reads of a shard's tail and how long they took. Calls share them.",
    {},
    SECONDS,
)
TAIL_SEGMENTS_FETCHED = Counter(
    "tally_tail_segments_fetched_total",
    "{segment}",
    "Segments that tail reads had to fetch because they were not kept.",
    {},
)
TAIL_EVENTS_KEPT = Gauge(
    "tally_tail_events_kept", "{event}", "Decoded events kept for the next tail read.", {}
)

# The server: shadow phases.

SHADOW_RESULTS = ("written", "late", "failed")
SHADOW_ADDS = Counter(
    "tally_shadow_adds_total",
    "{event}",
    "Events of namespaces in a shadow phase, by what became of them in the shadow.",
    {"result": _all(SHADOW_RESULTS)},
)
SHADOW_COMPARED = Counter(
    "tally_shadow_compared_total",
    "{counter}",
    "Counters of namespaces in a shadow phase that were compared in the background.",
    {"result": _all(["equal", "different"])},
)
SHADOW_DIFFERENT = Gauge(
    "tally_shadow_different",
    "{counter}",
    "Counters whose shadow had another count when all were last compared in the background.",
    {},
)
SHADOW_DIFFERENCE = Gauge(
    "tally_shadow_difference",
    "{count}",
    "How far those counts were apart, all together.",
    {},
)

# How far closing and folding have come, as a server sees it; clocks, as every process does.

FOLD_LAG_SECONDS = Gauge(
    "tally_fold_lag_seconds",
    "s",
    "How far the shard's watermark is behind now.",
    {"shard": _all([str(shard) for shard in range(SHARDS_MAX)])},
)
CLOSE_LAG_SECONDS = Gauge(
    "tally_close_lag_seconds", "s", "How far the end of the last closed window is behind now.", {}
)
CLOCK_SKEW_SECONDS = Gauge(
    "tally_clock_skew_seconds",
    "s",
    "This process's clock minus the store's, when they were last compared.",
    {},
)

# The worker.

FOLD_PASS_SECONDS = Histogram(
    "tally_fold_pass_seconds", "s", "Fold passes and how long they took.", {}, SECONDS
)
FOLD_PASS_EVENTS = Histogram(
    "tally_fold_pass_events", "{event}", "Events per fold pass.", {}, (0, *EVENTS)
)
FOLD_DUPLICATES = Counter(
    "tally_fold_duplicates_total",
    "{event}",
    "Copies of events that folds met and did not count again.",
    {},
)
FOLD_CONFLICTS = Counter(
    "tally_fold_conflicts_total",
    "{event}",
    "Duplicates that asked for another delta than the one that counts.",
    {},
)
FOLD_CONTESTS = Counter(
    "tally_fold_contests_total", "{fold}", "Folds that another worker had decided first.", {}
)
FOLD_FAILURES = Counter(
    "tally_fold_failures_total", "{pass}", "Fold passes over a shard that failed.", {}
)
FOLD_BATCH_COUNTERS = Gauge(
    "tally_fold_batch_counters",
    "{counter}",
    "How many counters a pass over the shard writes at once now.",
    {"shard": _all([str(shard) for shard in range(SHARDS_MAX)])},
)
FOLD_QUEUE_WINDOWS = Gauge(
    "tally_fold_queue_windows",
    "{window}",
    "Closed windows of the shard that are not folded, as its worker knows it.",
    {"shard": _all([str(shard) for shard in range(SHARDS_MAX)])},
)
FOLD_PASSES_ALLOWED = Gauge(
    "tally_fold_passes_allowed", "{pass}", "Passes that this worker lets run at once now.", {}
)
SHARDS_RESTING = Gauge(
    "tally_shards_resting", "{shard}", "Shards that wait because their last pass failed.", {}
)
JOB_FAILURES = Counter(
    "tally_job_failures_total",
    "{run}",
    "Runs of a worker's periodic jobs that failed.",
    {"job": _all(JOBS)},
)
ROLLUPS_WRITTEN = Counter(
    "tally_rollups_written_total", "{rollup}", "Rollups written by folds.", {}
)
HISTORY_ROWS_WRITTEN = Counter(
    "tally_history_rows_written_total", "{row}", "Rows of history written by folds.", {}
)
CLOSES = Counter("tally_closes_total", "{close}", "Close marks that this worker wrote.", {})
SEGMENTS_FORGOTTEN = Counter(
    "tally_segments_forgotten_total", "{segment}", "Folded segments that retention removed.", {}
)
HISTORY_ROWS_FORGOTTEN = Counter(
    "tally_history_rows_forgotten_total", "{row}", "Rows of history that retention removed.", {}
)
AUDITED = Counter(
    "tally_audited_total",
    "{counter}",
    "Counters that the background audit computed again, by what it found.",
    {"result": _all(AUDIT_RESULTS)},
)
AUDIT_CYCLES = Counter(
    "tally_audit_cycles_total",
    "{cycle}",
    "Times that the background audit has been through all counters of this worker's shards.",
    {},
)
AUDIT_DIFFERENT = Gauge(
    "tally_audit_different",
    "{counter}",
    "Counters and folds that the background audit found different and not equal since.",
    {},
)
WORKERS_ALIVE = Gauge(
    "tally_workers_alive", "{worker}", "Live workers of the region, as this one sees them.", {}
)
SHARDS_OWNED = Gauge("tally_shards_owned", "{shard}", "Shards that this worker folds.", {})

# The supervisor of a server of several processes.

PROCESSES_MAX = 64
PROCESSES_WANTED = Gauge(
    "tally_processes_wanted", "{process}", "Processes that a supervisor keeps running.", {}
)
PROCESSES_UP = Gauge(
    "tally_processes_up", "{process}", "Processes of a supervisor that serve now.", {}
)
PROCESS_RESTARTS = Counter(
    "tally_process_restarts_total",
    "{restart}",
    "Times that a process ended by itself and was started again.",
    {"process": _all([str(number) for number in range(1, PROCESSES_MAX + 1)])},
)

# Namespaces.

NAMESPACES_VERSION = Gauge(
    "tally_namespaces_version", "{version}", "The version of the namespaces that is live here.", {}
)
NAMESPACES = Gauge("tally_namespaces", "{namespace}", "Namespaces that are live here.", {})
NAMESPACE_MISTAKES = Gauge(
    "tally_namespace_mistakes",
    "{mistake}",
    "Mistakes in the folder of namespaces; while there are any, nothing of it is applied.",
    {},
)

# Stores.

STORE_SECONDS = Histogram(
    "tally_store_seconds",
    "s",
    "Requests to a store and how long they took, failed ones included.",
    {
        "store": _all(list(STATEMENTS)),
        "statement": _all([name for of_store in STATEMENTS.values() for name in of_store]),
    },
    SECONDS,
)
STORE_ERRORS = Counter(
    "tally_store_errors_total",
    "{request}",
    "Requests to a store that failed.",
    {"store": _all(list(STATEMENTS)), "kind": _all(STORE_ERROR_KINDS)},
)

ALL: tuple[Counter | Gauge | Histogram, ...] = tuple(
    each for each in list(globals().values()) if isinstance(each, Counter | Gauge | Histogram)
)
