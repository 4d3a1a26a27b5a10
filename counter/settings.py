"""Settings of the platform and of its processes, with the limits that hold everywhere."""

from dataclasses import dataclass

from counter.clock import NS_PER_MS, NS_PER_S
from counter.errors import SetupError
from counter.windows import Layout

COUNTER_NAME_BYTES_MAX = 256
BATCH_ITEMS_MAX = 10_000
SHARDS_MAX = 4_096
LANES_MAX = 256
# log_retention is at least this many times as long as a window takes to close: writes stop when
# folds are behind by half of it, which must never be the normal state.
_RETENTION_PER_CLOSE_MIN = 10


@dataclass(frozen=True, kw_only=True)
class Platform:
    """What all processes on one store must agree on."""

    region: str = "local"
    window_ms: int = 1_000
    shards: int = 2  # one process gains nothing from more: a commit writes a segment per shard
    lanes: int = 1  # partitions of a window in a log that is spread over nodes
    accept_limit_ms: int = 5_000  # how late an event may come; decides when windows close
    max_clock_skew_ms: int = 500  # between our own processes and the store
    log_retention_s: int = 86_400  # how long a token's outcome can be told

    def __post_init__(self) -> None:
        shortest_ms = _RETENTION_PER_CLOSE_MIN * (
            self.window_ms + self.accept_limit_ms + self.max_clock_skew_ms
        )
        if self.log_retention_s * 1_000 < shortest_ms:
            raise SetupError(
                f"log_retention {self.log_retention_s} s is too short for these windows: folds "
                f"are always some seconds behind. Keep at least {-(-shortest_ms // 1_000)} s"
            )

    @property
    def accept_limit_ns(self) -> int:
        return self.accept_limit_ms * NS_PER_MS

    @property
    def max_clock_skew_ns(self) -> int:
        return self.max_clock_skew_ms * NS_PER_MS

    @property
    def close_grace_ns(self) -> int:
        """How long after its end a window stays open."""
        return self.accept_limit_ns + self.max_clock_skew_ns

    @property
    def log_retention_ns(self) -> int:
        return self.log_retention_s * NS_PER_S

    def layout(self, now_ns: int) -> Layout:
        """The layout of a store that is created now: events that are just in time still fit."""
        window_ns = self.window_ms * NS_PER_MS
        return Layout(
            from_window=(now_ns - self.close_grace_ns) // window_ns,
            window_ms=self.window_ms,
            shards=self.shards,
            lanes=self.lanes,
        )
