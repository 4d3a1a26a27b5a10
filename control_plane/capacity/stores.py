"""From a load to what stores hold and do: log, rollups, history, nodes, cache and network."""

from control_plane.capacity import constants, sizes
from control_plane.capacity.processes import US_PER_S, Processes
from control_plane.capacity.quantities import (
    NOTHING,
    Quantity,
    largest,
    round_down,
    round_up,
    smallest,
    total,
)
from counter.namespaces import Cardinality, Strategy

LOW_COUNTERS, MEDIUM_COUNTERS = 10_000, 1_000_000
# memcached keeps what it is given for at least so long.
_CACHE_TTL_S_MIN = 2


def recommended_cardinality(counters: float) -> Cardinality:
    if counters < LOW_COUNTERS:
        return Cardinality.LOW
    return Cardinality.MEDIUM if counters < MEDIUM_COUNTERS else Cardinality.HIGH


class Formulas(Processes):
    """All of them, on one sheet."""

    def log_bytes(self) -> tuple[Quantity, Quantity]:
        """Of a copy: segments and fold records."""
        retention = self.sheet.given(
            "retention_s", "s", self.load.retention_s, "how long a token's outcome can be told"
        )
        self.log_rate = self._named(
            "log_bytes_per_s",
            "B/s",
            self.adds * self.event_bytes + self.segments * self._on(sizes.SEGMENT_ROW_BYTES),
            "written to the log in a second, a copy",
        )
        log = self._named(
            "log_bytes",
            "B",
            self.log_rate * (retention + self._on(sizes.LOG_KEPT_LONGER_S)),
            "the event log, a copy",
        )
        records = self._named(
            "fold_record_bytes",
            "B",
            (
                self.segments * self._on(sizes.SEGMENT_REF_BYTES)
                + self.shards / self.window * self._on(sizes.FOLD_RECORD_BYTES)
            )
            * (retention + self._on(sizes.KEPT_A_DAY_LONGER_S)),
            "fold records, a copy",
        )
        return log, records

    def rollup_bytes(self) -> Quantity:
        row = self._on(sizes.ROLLUP_STATE_BYTES) + self._on(sizes.ROLLUP_ROW_BYTES) + self.name
        if self.load.strategy is Strategy.ROLLING_WINDOW:
            assert self.load.rolling_window_ms is not None, "checked with the ranges"
            length = self.sheet.given(
                "rolling_window_s",
                "s",
                self.load.rolling_window_ms / 1_000,
                "how far back hits count",
            )
            row = row + length / self.window * self._on(sizes.RECENT_WINDOW_BYTES)
        self.rollup_row = self._named("rollup_bytes_each", "B", row, "of a rollup on disk")
        return self._named("rollup_bytes", "B", self.counters * self.rollup_row, "rollups, a copy")

    def rollup_partition(self, rollups: Quantity, cardinality: Cardinality) -> Quantity:
        namespaces = self.sheet.given(
            "namespaces", "", self.load.namespaces, "that the counters are in"
        )
        buckets = self._on(sizes.rollup_buckets(cardinality))
        return self._named(
            "rollup_partition_bytes",
            "B",
            rollups / (namespaces * buckets),
            "of a partition of rollups",
        )

    def history_bytes(self) -> Quantity | None:
        if not self.history_rows:
            return None
        row = self._named(
            "history_bytes_each",
            "B",
            self._on(sizes.HISTORY_STATE_BYTES) + self._on(sizes.HISTORY_ROW_BYTES),
            "of a row of history on disk",
        )
        longer = self._on(sizes.KEPT_A_DAY_LONGER_S)
        kept = self._named(
            "history_rows",
            "",
            total(*(rows * (kept_s + longer) for rows, kept_s in self.history_rows)),
            "rows of history that are kept",
        )
        partition = self._on(sizes.HISTORY_PARTITION_BYTES) + self.name * 2
        return self._named(
            "history_bytes",
            "B",
            kept * row + self.counters * self.history_steps * partition,
            "history, a copy",
        )

    def node_cores(self) -> Quantity:
        """Of all nodes together."""
        if self.load.counts_in_cache:
            return self._named("node_cores", "cores", NOTHING, "only namespaces are there")
        reads = self._store_reads()
        quorum = self._named(
            "quorum", "", round_down(self.copies / 2) + 1, "copies that a read asks"
        )
        requests = self._on(constants.NODE_REQUESTS_PER_S)
        parts = [
            self.adds / self._on(constants.NODE_EVENTS_PER_S),
            self.segments * self._on(constants.NODE_SEGMENT_US) / US_PER_S,
            self.rollups / self._on(constants.NODE_ROLLUPS_PER_S),
            # A read of all lanes is one query, and a read of each of its partitions.
            self.shards / self.window * (self._on(constants.FOLD_REQUESTS) + self.lanes) / requests,
        ]
        if self.history_rows:
            parts.append(self.history_rate / self._on(constants.NODE_HISTORY_ROWS_PER_S))
        copy = self._named("copy_cores", "cores", total(*parts), "that one copy of writes uses")
        return self._named(
            "node_cores",
            "cores",
            copy * self.copies + (reads + self.commits) * quorum / requests,
            "that nodes use: copies, reads, and a close check per commit",
        )

    def _store_reads(self) -> Quantity:
        meaning = "reads that reach Cassandra"
        if self.load.reads_the_tail:
            each = self._on(constants.TAIL_READ_REQUESTS) + self.lanes
            return self._named("store_reads_per_s", "/s", self.reads * each, meaning)
        if not self.load.cache_ttl_ms:
            return self._named("store_reads_per_s", "/s", self.reads, meaning)
        hits = self.sheet.given(
            "cache_hits", "", self.load.cache_hits, "of the reads, those that a cache can answer"
        )
        missed = smallest(self.reads * (1 - hits), self.counters / self._cache_ttl())
        return self._named("store_reads_per_s", "/s", missed, f"{meaning}: a counter once a ttl")

    def _cache_ttl(self) -> Quantity:
        ttl_s = self.load.cache_ttl_ms / 1_000
        return self.sheet.given("cache_ttl_s", "s", ttl_s, "how long counts are cached")

    def nodes(self, cores: Quantity, data: Quantity) -> Quantity:
        each = self.sheet.given("cores_per_node", "cores", self.load.node_cores, "of a node")
        disk = self.sheet.given("disk_per_node", "B", self.load.node_disk_bytes, "of a node")
        fill = self._on(sizes.DISK_FILL)
        commit_log = self._on(sizes.COMMIT_LOG_BYTES)
        copies = self._named("copies_bytes", "B", data * self.copies, "of data, all copies")
        compaction = self._named(
            "compaction_bytes", "B", copies / fill - copies, "that stay free for compactions"
        )
        count = self._named(
            "nodes",
            "",
            largest(
                self.copies,
                round_up(cores / self.usable / each),
                round_up((copies + compaction) / (disk - commit_log)),
            ),
            "Cassandra nodes: a copy each, cores, disk",
        )
        self._named("node_commit_logs_bytes", "B", count * commit_log, "commit logs, all nodes")
        total_disk = self._named(
            "disk_bytes", "B", copies + compaction + count * commit_log, "disk, all nodes"
        )
        self._named("disk_bytes_per_node", "B", total_disk / count, "disk of a node, at least")
        return count

    def cache_memory(self) -> Quantity:
        fill = self._on(sizes.CACHE_FILL)
        around = self._on(sizes.CACHE_KEY_BYTES) + self._on(sizes.CACHE_ITEM_BYTES) + self.name
        if self.load.counts_in_cache:
            item = around + self._on(sizes.BEST_EFFORT_VALUE_BYTES)
            used = self.counters * item
            if self.load.dedupe_ttl_ms:
                ttl = self.sheet.given(
                    "dedupe_ttl_s", "s", self.load.dedupe_ttl_ms / 1_000, "tokens are remembered"
                )
                used = used + self.adds * ttl * self._on(sizes.TOKEN_ITEM_BYTES)
            return self._named("memcached_bytes", "B", used / fill, "all counters, and tokens")
        if self.load.reads_the_tail or not self.load.cache_ttl_ms:
            meaning = "no reads are answered from the cache"
            return self._named("memcached_bytes", "B", NOTHING, meaning)
        kept = largest(self._cache_ttl(), _CACHE_TTL_S_MIN)
        cached = self._named(
            "cached_counters",
            "",
            smallest(self.counters, self.reads * kept),
            "counters that are read within a ttl",
        )
        item = around + self._on(sizes.CACHE_VALUE_BYTES)
        return self._named("memcached_bytes", "B", cached * item / fill, "cached counts")

    def network(self) -> None:
        self._named(
            "client_bytes_per_s",
            "B/s",
            self.adds * (self._on(sizes.ADD_REQUEST_BYTES) + self.name)
            + self.reads * (self._on(sizes.READ_CALL_BYTES) + self.name),
            "between callers and servers, in a second",
        )
        if self.load.counts_in_cache:
            return
        written = self.log_rate + self.rollups * self.rollup_row
        if self.history_rows:
            written = written + self.history_rate * self._on(sizes.HISTORY_STATE_BYTES)
        self._named(
            "store_bytes_per_s",
            "B/s",
            written * (self.copies + 1),
            "to Cassandra's nodes and back to workers, in a second",
        )
