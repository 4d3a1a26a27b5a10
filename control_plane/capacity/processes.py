"""From a load to processes and their work: servers, workers, the layout of the log, and the lag.

All formulas rise with each number of the load. Where the truth depends on how adds spread over
counters and time, they take the worst that the load allows.
"""

from control_plane.capacity import constants, sizes
from control_plane.capacity.constants import Constant
from control_plane.capacity.load import Load
from control_plane.capacity.quantities import (
    NOTHING,
    Quantity,
    Sheet,
    largest,
    power_of_two,
    round_up,
    smallest,
    total,
)
from control_plane.files.durations import format_ms

US_PER_S = 1_000_000


class Processes:
    """Fills a sheet, part by part, in the order of its methods."""

    def __init__(self, load: Load, sheet: Sheet) -> None:
        self.load = load
        self.sheet = sheet
        given = sheet.given
        self.adds = given("adds_per_s", "/s", load.adds_per_s, "adds, at the peak")
        self.reads = given("reads_per_s", "/s", load.reads_per_s, "reads, at the peak")
        self.counters = given("counters", "", load.counters, "counters")
        self.batch = given("batch", "", load.batch, "adds per call")
        self.read_batch = given("read_batch", "", load.read_batch, "reads per call")
        self.name = given("name_bytes", "B", load.name_bytes, "of a counter's name")
        self.headroom = given("headroom", "", load.headroom, "of each process, stays free")
        self.window = given("window_s", "s", load.window_ms / 1_000, "length of a window")
        self.copies = given("replication", "", load.replication, "copies in Cassandra")
        self.usable = self._named("usable_share", "", 1 - self.headroom, "of each core")
        # Filled as the parts are computed.
        self.history_rows: list[tuple[Quantity, Quantity]] = []
        self.segments = self.commits = self.shards = self.lanes = self.rollups = NOTHING

    def _on(self, constant: Constant) -> Quantity:
        return constant.on(self.sheet)

    def _named(self, name: str, unit: str, of: Quantity, meaning: str) -> Quantity:
        return self.sheet.named(name, unit, of, meaning)

    def servers(self) -> Quantity:
        add_us = self._named(
            "add_us",
            "µs",
            self._on(constants.ADD_CALL_US) / self.batch + self._on(constants.ADD_ITEM_US),
            "of a server, for an add",
        )
        call = constants.TAIL_READ_US if self.load.reads_the_tail else constants.READ_CALL_US
        read_us = self._named(
            "read_us",
            "µs",
            self._on(call) / self.read_batch + self._on(constants.READ_ITEM_US),
            "of a server, for a read",
        )
        cores = self._named(
            "server_cores",
            "cores",
            (self.adds * add_us + self.reads * read_us) / US_PER_S,
            "that servers use",
        )
        self.server_count = self._named(
            "servers",
            "",
            largest(self._on(constants.SERVERS_MIN), round_up(cores / self.usable)),
            "processes of one core",
        )
        return self.server_count

    def workers(self) -> Quantity:
        self.rollups = self._named(
            "rollups_per_s",
            "/s",
            smallest(self.adds, self.counters / self.window),
            "rollups that folds write: each counter once a window, if it changed",
        )
        rows = self._history_rows()
        self.fold_cores = self._named(
            "fold_cores",
            "cores",
            self.adds / self._on(constants.FOLD_EVENTS_PER_S)
            + self.rollups / self._on(constants.FOLD_ROLLUPS_PER_S),
            "that folds use, without history",
        )
        cores = self.fold_cores
        if rows is not None:
            cores = cores + rows / self._on(constants.FOLD_HISTORY_ROWS_PER_S)
        cores = self._named("worker_cores", "cores", cores, "that workers use")
        self.worker_count = self._named(
            "workers",
            "",
            largest(self._on(constants.WORKERS_MIN), round_up(cores / self.usable)),
            "processes of one core",
        )
        return self.worker_count

    def _history_rows(self) -> Quantity | None:
        for each in self.load.history:
            step = format_ms(each.step_ms)
            step_s = self.sheet.given(
                f"step_{step}_s", "s", each.step_ms / 1_000, "step of history"
            )
            kept_s = self.sheet.given(
                f"step_{step}_retention_s",
                "s",
                each.retention_ms / 1_000,
                f"steps of {step} are kept",
            )
            rows = self._named(
                f"history_{step}_rows_per_s",
                "/s",
                smallest(self.adds, self.counters / step_s),
                "rows of history: each counter once a step, if it changed",
            )
            self.history_rows.append((rows, kept_s))
        if not self.history_rows:
            return None
        steps = len(self.history_rows)
        self.history_steps = self.sheet.given("history_steps", "", steps, "lengths of step")
        self.history_rate = self._named(
            "history_rows_per_s",
            "/s",
            total(*(rows for rows, _ in self.history_rows)),
            "rows of history, all steps",
        )
        return self.history_rate

    def hot_fold_cores(self) -> Quantity:
        hot_share = self.sheet.given(
            "hot_share", "", self.load.hot_share, "of the adds, to the busiest counter"
        )
        return self._named(
            "hot_fold_cores",
            "cores",
            self.adds * hot_share / self._on(constants.FOLD_HOT_EVENTS_PER_S),
            "that folding the busiest counter uses: one shard, so one worker",
        )

    def shard_count(self) -> Quantity:
        self.shards = self._named(
            "shards",
            "",
            power_of_two(
                largest(
                    self._on(sizes.SHARDS_LEAST),
                    self._on(sizes.SHARDS_PER_WORKER) * self.worker_count,
                )
            ),
            "so that workers share evenly",
        )
        return self.shards

    def lane_count(self) -> Quantity:
        """A commit picks a lane, whatever its counters are: lanes fill evenly."""
        self.event_bytes = self._named(
            "event_bytes",
            "B",
            self._on(sizes.EVENT_FIXED_BYTES) + self.name,
            "of an event in a segment",
        )
        window_bytes = self._named(
            "window_bytes", "B", self.adds * self.window * self.event_bytes, "events of a window"
        )
        self.lanes = self._named(
            "lanes",
            "",
            power_of_two(
                largest(
                    self._on(sizes.LANES_LEAST),
                    window_bytes / self._on(sizes.PARTITION_BYTES_MAX),
                )
            ),
            "so that partitions of the log stay small",
        )
        self._named(
            "partition_bytes",
            "B",
            window_bytes / self.lanes,
            "of a partition of the log: a lane of a window",
        )
        self._named(
            "segment_bytes",
            "B",
            self._on(sizes.SEGMENT_EVENTS) * self.event_bytes,
            "of a segment, at most",
        )
        return self.lanes

    def segments_written(self) -> None:
        self.commits = self._named(
            "commits_per_s",
            "/s",
            smallest(
                self.adds / self.batch,
                self.server_count * self._on(constants.COMMITS_PER_SERVER_PER_S),
            ),
            "commits of all servers: no more than there are calls",
        )
        self.segments = self._named(
            "segments_per_s",
            "/s",
            smallest(self.adds, self.commits * self.shards),
            "segments: one per shard and commit, at most",
        )

    def lag(self) -> None:
        """How far behind `complete_through` is, of a shard with traffic."""
        accept = self.sheet.given(
            "accept_limit_s", "s", self.load.accept_limit_ms / 1_000, "how late an event may come"
        )
        skew = self.sheet.given(
            "max_clock_skew_s", "s", self.load.max_clock_skew_ms / 1_000, "between our clocks"
        )
        fold = self._named(
            "fold_s",
            "s",
            largest(
                self._on(constants.FOLD_S_MIN),
                self.window * self.fold_cores / self.worker_count,
            ),
            "to fold a window",
        )
        self._named("lag_s_least", "s", accept + skew + fold, "just after a fold")
        worst = self._named(
            "lag_s_most",
            "s",
            self.window + self.window / self._on(constants.LOOKS_PER_WINDOW) + accept + skew + fold,
            "just before the next one",
        )
        if self.history_rows:
            rows = self.adds * self.window
            burst = smallest(rows, self.counters) * self.history_steps
            seconds = burst / self._on(constants.FOLD_HISTORY_ROWS_PER_S) / self.worker_count
            self._named(
                "lag_s_step", "s", worst + seconds, "after the end of a step of history, at worst"
            )
