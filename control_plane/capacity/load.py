"""What a fleet has to carry, and what is no load that the platform could have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from control_plane.capacity.units import plain, shown
from control_plane.files.durations import format_ms
from counter.errors import SetupError
from counter.namespaces import (
    CACHE_LOCAL_TTL_MS_DEFAULT,
    CACHE_TTL_MS_DEFAULT,
    CACHE_TTL_MS_MAX,
    HISTORY_RETENTION_MS_MAX,
    HISTORY_RETENTION_STEPS_MAX,
    HISTORY_RETENTION_STEPS_MIN,
    HISTORY_STEP_MS_MAX,
    HISTORY_STEP_MS_MIN,
    HISTORY_STEPS_MAX,
    LIMIT_COUNTERS_MAX,
    LIMIT_PER_S_MAX,
    RECENT_WINDOWS_MAX,
    ROLLING_WINDOW_MS_MAX,
    ROLLING_WINDOW_MS_MIN,
    Cardinality,
    HistoryStep,
    Strategy,
)
from counter.settings import BATCH_ITEMS_MAX, COUNTER_NAME_BYTES_MAX, Platform

RETENTION_S_MIN, RETENTION_S_MAX = 60, 30 * 86_400
WINDOW_MS_MIN, WINDOW_MS_MAX = 100, 3_600_000
ACCEPT_LIMIT_MS_MIN, ACCEPT_LIMIT_MS_MAX = 100, 3_600_000
CLOCK_SKEW_MS_MIN, CLOCK_SKEW_MS_MAX = 1, 60_000
DEDUPE_TTL_MS_MAX = 30 * 86_400_000
REPLICATION_MAX = 7
HEADROOM_MAX = 0.95
NAMESPACES_MAX = 1_000
NODE_CORES_MAX = 256
NODE_DISK_BYTES_MIN, NODE_DISK_BYTES_MAX = 50e9, 100e12


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    adds_per_s: float  # at the peak, as are reads
    reads_per_s: float
    counters: int
    retention_s: int = 86_400  # log_retention: how long a token's outcome can be told
    batch: int = 100  # adds per call
    read_batch: int = 1  # reads per call
    name_bytes: int = 30  # of a counter's name, on average
    history: tuple[HistoryStep, ...] = ()
    hot_share: float = 0.05  # of the adds, those to the busiest counter
    strategy: Strategy = Strategy.EVENTUAL
    rolling_window_ms: int | None = None
    dedupe_ttl_ms: int = 0
    cache_ttl_ms: int = CACHE_TTL_MS_DEFAULT
    cache_local_ttl_ms: int = CACHE_LOCAL_TTL_MS_DEFAULT
    cache_hits: float = 0.8  # of the reads, those that a cache can answer
    namespaces: int = 1  # that the counters are spread over evenly
    cardinality: Cardinality | None = None  # of namespaces that exist; None: as it should be
    window_ms: int = 5_000
    accept_limit_ms: int = 5_000
    max_clock_skew_ms: int = 500
    replication: int = 3  # copies in Cassandra
    headroom: float = 0.5  # share of each process that stays free
    node_cores: int = 8
    node_disk_bytes: float = 2e12

    @property
    def counts_in_cache(self) -> bool:
        """best_effort: neither log nor folds."""
        return self.strategy is Strategy.BEST_EFFORT

    @property
    def reads_the_tail(self) -> bool:
        return self.strategy in (Strategy.ACCURATE, Strategy.ROLLING_WINDOW)


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """Why there is no plan for a load."""

    code: str
    what: str  # the option that it is about
    why: str
    change: str  # what to do about it

    def __str__(self) -> str:
        return f"{self.what}: {self.why}. {self.change}"


def out_of_range(load: Load) -> list[Refusal]:
    """What is wrong with single numbers, whatever the others are."""
    return [*_numbers(load), *_times(load), *_history(load.history, load.window_ms)]


def _numbers(load: Load) -> Iterator[Refusal]:
    ranges: Sequence[tuple[str, float, float, float]] = (
        ("--adds-per-s", load.adds_per_s, 0, LIMIT_PER_S_MAX),
        ("--reads-per-s", load.reads_per_s, 0, LIMIT_PER_S_MAX),
        ("--counters", load.counters, 1, LIMIT_COUNTERS_MAX),
        ("--batch", load.batch, 1, BATCH_ITEMS_MAX),
        ("--read-batch", load.read_batch, 1, BATCH_ITEMS_MAX),
        ("--name-bytes", load.name_bytes, 1, COUNTER_NAME_BYTES_MAX),
        ("--hot-share", load.hot_share, 0, 1),
        ("--cache-hits", load.cache_hits, 0, 1),
        ("--headroom", load.headroom, 0, HEADROOM_MAX),
        ("--replication", load.replication, 1, REPLICATION_MAX),
        ("--namespaces", load.namespaces, 1, NAMESPACES_MAX),
        ("--node-cores", load.node_cores, 1, NODE_CORES_MAX),
    )
    for option, value, least, most in ranges:
        if not least <= value <= most:
            yield _range(option, plain(value), plain(least), plain(most))
    if not NODE_DISK_BYTES_MIN <= load.node_disk_bytes <= NODE_DISK_BYTES_MAX:
        disk = (load.node_disk_bytes, NODE_DISK_BYTES_MIN, NODE_DISK_BYTES_MAX)
        yield _range("--node-disk", *(shown(each, "B") for each in disk))


def _times(load: Load) -> Iterator[Refusal]:
    retention_ms = load.retention_s * 1_000
    ranges = (
        ("--retention", retention_ms, RETENTION_S_MIN * 1_000, RETENTION_S_MAX * 1_000),
        ("--window", load.window_ms, WINDOW_MS_MIN, WINDOW_MS_MAX),
        ("--accept-limit", load.accept_limit_ms, ACCEPT_LIMIT_MS_MIN, ACCEPT_LIMIT_MS_MAX),
        ("--max-clock-skew", load.max_clock_skew_ms, CLOCK_SKEW_MS_MIN, CLOCK_SKEW_MS_MAX),
        ("--cache-ttl", load.cache_ttl_ms, 0, CACHE_TTL_MS_MAX),
        ("--dedupe-ttl", load.dedupe_ttl_ms, 0, DEDUPE_TTL_MS_MAX),
    )
    wrong = [each for each in ranges if not each[2] <= each[1] <= each[3]]
    for option, value, least, most in wrong:
        refusal = _range(option, format_ms(value), format_ms(least), format_ms(most))
        if option == "--retention" and value > most:
            longer = "The log only has to outlive retries; to look back further, keep --history"
            refusal = Refusal(
                code=refusal.code,
                what=option,
                why=refusal.why,
                change=f"{refusal.change}. {longer}",
            )
        yield refusal
    if not wrong:
        try:
            Platform(
                window_ms=load.window_ms,
                accept_limit_ms=load.accept_limit_ms,
                max_clock_skew_ms=load.max_clock_skew_ms,
                log_retention_s=load.retention_s,
            )
        except SetupError as error:
            why, _, change = error.message.partition(". ")
            yield Refusal(code="OUT_OF_RANGE", what="--retention", why=why, change=change)
    yield from _rolling_window(load)


def _rolling_window(load: Load) -> Iterator[Refusal]:
    option = "--rolling-window"
    length_ms = load.rolling_window_ms
    if load.strategy is not Strategy.ROLLING_WINDOW:
        if length_ms is not None:
            why = f"strategy {load.strategy} has none"
            change = "Leave it out, or plan for --strategy rolling_window"
            yield Refusal(code="OUT_OF_RANGE", what=option, why=why, change=change)
        return
    if length_ms is None:
        why = "strategy rolling_window has a length"
        yield Refusal(code="OUT_OF_RANGE", what=option, why=why, change="Give it, like 300s")
        return
    least = max(ROLLING_WINDOW_MS_MIN, load.window_ms)
    most = min(ROLLING_WINDOW_MS_MAX, RECENT_WINDOWS_MAX * load.window_ms)
    if not least <= length_ms <= most:
        yield _range(option, format_ms(length_ms), format_ms(least), format_ms(most))


def _history(steps: Sequence[HistoryStep], window_ms: int) -> Iterator[Refusal]:
    def refuse(why: str, change: str) -> Refusal:
        return Refusal(code="OUT_OF_RANGE", what="--history", why=why, change=change)

    if len(steps) > HISTORY_STEPS_MAX:
        yield refuse(f"{len(steps)} steps", f"Keep {HISTORY_STEPS_MAX} at most")
    for each in steps:
        step, kept = format_ms(each.step_ms), format_ms(each.retention_ms)
        if not (
            HISTORY_STEP_MS_MIN <= each.step_ms <= HISTORY_STEP_MS_MAX
            and each.step_ms % HISTORY_STEP_MS_MIN == 0
            and HISTORY_STEP_MS_MAX % each.step_ms == 0
        ):
            yield refuse(
                f"a step of {step}", "Take whole minutes that divide a day: 1m, 5m, 1h, 1d"
            )
            continue
        if each.step_ms < window_ms:
            window = format_ms(window_ms)
            yield refuse(
                f"a step of {step} is shorter than a window of {window}", "Take longer ones"
            )
        least = HISTORY_RETENTION_STEPS_MIN * each.step_ms
        most = min(HISTORY_RETENTION_MS_MAX, HISTORY_RETENTION_STEPS_MAX * each.step_ms)
        if not least <= each.retention_ms <= most:
            span = f"from {format_ms(least)} to {format_ms(most)}"
            yield refuse(f"steps of {step} are kept for {kept}", f"Keep them {span}")
    for one, other in pairwise(steps):
        if other.step_ms % one.step_ms or other.step_ms == one.step_ms:
            yield refuse(
                f"{format_ms(other.step_ms)} is not a multiple of {format_ms(one.step_ms)}",
                "Write the finest first, and each as a multiple of the one before",
            )
        elif other.retention_ms <= one.retention_ms:
            yield refuse(
                f"{format_ms(other.step_ms)} is not kept longer than {format_ms(one.step_ms)}",
                "Keep longer steps for longer, or leave them out",
            )


def _range(option: str, value: str, least: str, most: str) -> Refusal:
    return Refusal(
        code="OUT_OF_RANGE",
        what=option,
        why=f"{value} is out of range",
        change=f"Give {least} to {most}",
    )
