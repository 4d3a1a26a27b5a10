"""What the simulation saw: facts for the checks, and how often each kind of fault took place."""

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from xxhash import xxh3_64

from counter.events import Event
from counter.namespaces import Namespace, Snapshot, snapshot_from_json
from counter.rollups import FoldRecord
from counter.segments import decode
from counter.storage.cassandra.states import from_text
from tests.simulation.retention import RetentionWatch
from tests.simulation.statements import Key

if TYPE_CHECKING:
    from tests.simulation.replicas import Cell

_record_decoder = msgspec.msgpack.Decoder(FoldRecord)
# Two writes of these with one timestamp must be the same (I3).
_DETERMINED = ("rollups", "watermarks", "closes", "history")


class Witness:
    def __init__(self) -> None:
        self.counted: Counter[str] = Counter()
        self.violations: list[tuple[str, str]] = []  # (rule, what happened)
        # By id: namespace, window, shard and events of each segment that reached a replica.
        self.segments: dict[bytes, tuple[int, int, int, list[Event]]] = {}
        # By shard and first window: as the replicas have them.
        self.records: dict[tuple[int, int], FoldRecord] = {}
        # Every state that any rollup ever had: (namespace, counter) -> through_window -> text.
        self.rollups: dict[tuple[int, str], dict[int, str]] = {}
        # Likewise of the history: (namespace, counter, length of step) -> step -> text.
        self.history_rows: dict[tuple[int, str, int], dict[int, str]] = {}
        # (namespace, counter, time, token) -> delta, author, reason.
        self.adjustments: dict[tuple[int, str, int, str], tuple[Any, ...]] = {}
        self.audit_differences: list[dict[str, Any]] = []  # as they were logged
        self.retention = RetentionWatch(self)
        self.versions: dict[int, bytes] = {}
        self._snapshots: dict[int, Snapshot] = {}
        self._unchanged: dict[tuple[int, int], Namespace | None] = {}
        self._marks_written: dict[Key, int] = {}
        self._marks_read: dict[Key, int] = {}
        self._trace = xxh3_64()
        self.now_s: Any = lambda: 0.0

    # The trace: two runs of one seed must have the same.

    def trace(self, who: str, what: str) -> None:
        self._trace.update(f"{self.now_s():.9f} {who} {what}\n".encode())

    @property
    def trace_hash(self) -> str:
        return self._trace.hexdigest()

    def violate(self, rule: str, what: str) -> None:
        if len(self.violations) < 20:
            self.violations.append((rule, f"{what} (at {self.now_s():.3f} s)"))

    # What replicas took.

    def applied(self, table: str, partition: Key, row: Key, cell: "Cell") -> None:
        value = cell.value
        if table == "event_log":
            _, window, _ = partition
            shard, namespace_id, segment_id = row
            if segment_id not in self.segments:
                self.segments[segment_id] = (namespace_id, window, shard, decode(value[1]))
                self.retention.segment_landed(shard, window, segment_id)
            self.retention.segment_kept(segment_id, cell.ends_s)
        elif table == "folds":
            self._record(partition[1], row[0], _record_decoder.decode(value[0]))
        elif table == "rollups":
            self._rollup(partition[0], row[0], value)
        elif table == "history":
            self._history_row(partition, row[0], value)
        elif table == "adjustments":
            self.adjustments[partition[0], partition[1], *row] = value
        elif table == "namespace_versions":
            known = self.versions.setdefault(row[0], value[1])
            if known != value[1]:
                self.violate("I10", f"two versions {row[0]} of the namespaces")

    def snapshot(self, version: int) -> Snapshot:
        """Of one version, which never changes once it is stored."""
        if version not in self._snapshots:
            self._snapshots[version] = snapshot_from_json(self.versions[version])
        return self._snapshots[version]

    def unchanged(self, namespace_id: int) -> Namespace | None:
        """A namespace that every version so far has alike, as far as folds go."""
        key = (namespace_id, len(self.versions))
        if key not in self._unchanged:
            found = [
                self.snapshot(version).by_id[namespace_id]
                for version in sorted(self.versions)
                if namespace_id in self.snapshot(version).by_id
            ]
            alike = {(each.strategy, each.rolling_window_ms, each.history) for each in found}
            self._unchanged[key] = found[0] if len(alike) == 1 else None
        return self._unchanged[key]

    def same_stamp(self, table: str, row: Key, one: Any, other: Any) -> None:
        if table in _DETERMINED and one != other:
            self.violate("I3", f"{table} {row}: {one!r} and {other!r} with one timestamp")

    def _record(self, shard: int, from_window: int, record: FoldRecord) -> None:
        if (shard, from_window) not in self.records:
            self.retention.recorded(record)
        known = self.records.setdefault((shard, from_window), record)
        if known != record:
            self.violate("I3", f"two fold records of shard {shard} from window {from_window}")

    def _rollup(self, namespace_id: int, counter: str, text: str) -> None:
        through = from_text(text).through_window
        known = self.rollups.setdefault((namespace_id, counter), {}).setdefault(through, text)
        if known != text:
            self.violate("I3", f"{counter} through {through} is {known!r} and {text!r}")

    def _history_row(self, partition: Key, step: int, text: str) -> None:
        namespace_id, counter, _, step_ms = partition
        rows = self.history_rows.setdefault((namespace_id, counter, step_ms), {})
        if rows.setdefault(step, text) != text:
            self.violate(
                "I3", f"{counter} at the end of step {step} is {rows[step]!r} and {text!r}"
            )

    # Marks never go back (I4), for anybody.

    def wrote(self, name: str, parameters: Any) -> None:
        """A write that returned: whoever reads from now on sees at least this."""
        if name == "close":
            key, window = ("closed", 0), parameters[1]
        elif name == "advance":
            key, window = ("watermarks", parameters[1]), parameters[2]
        else:
            return
        self._marks_written[key] = max(window, self._marks_written.get(key, -1))

    def marks_before(self, name: str) -> dict[Key, int]:
        before: dict[Key, int] = {}
        for marks in (self._marks_written, self._marks_read):
            for key, window in marks.items():
                if key[0] == name:
                    before[key] = max(window, before.get(key, -1))
        return before

    def saw_marks(self, name: str, before: dict[Key, int], rows: list[Any]) -> None:
        for row in rows:
            shard, window = row if name == "watermarks" else (0, row[0])
            key = (name, shard)
            if window < before.get(key, -1):
                self.violate("I4", f"{key} went back from {before[key]} to {window}")
            self._marks_read[key] = max(window, self._marks_read.get(key, -1))
