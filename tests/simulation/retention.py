"""I8 as the stores show it: no segment expires before it is folded, unless folds are very late."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from counter.clock import NS_PER_S
from counter.rollups import FoldRecord
from counter.windows import Layout
from rollup_worker.pace import REST_S_MAX

if TYPE_CHECKING:
    from tests.simulation.witness import Witness

# Clocks of nodes count whole seconds, on either side.
_ROUNDING_S = 2.0
# After the last fault a worker may rest before it tries again, and one attempt may be unlucky.
_TRIED_AGAIN_S = 2 * REST_S_MAX


class RetentionWatch:
    def __init__(self, witness: "Witness") -> None:
        self._witness = witness
        self._layout: Layout | None = None
        self._epoch_ns = 0
        self._promised_ns = 0
        self._recorded_through: dict[int, int] = {}
        # By segment: until when each replica has it.
        self._ends_s: dict[bytes, list[float]] = {}
        # Whether folds were behind by more than anything is promised for.
        self.is_exceeded = False

    def begin(self, layout: Layout, epoch_ns: int, *, retention_s: float, slack_s: float) -> None:
        """`slack_s`: by how much callers' and nodes' clocks may be off. An event of the future is
        written, and expires, so much before its time has come."""
        self._layout = layout
        self._epoch_ns = epoch_ns
        self._promised_ns = int((retention_s - slack_s - _ROUNDING_S) * NS_PER_S)

    def segment_landed(self, shard: int, window: int, segment_id: bytes) -> None:
        if window <= self._recorded_through.get(shard, -1):
            self._witness.counted["segments landed after their fold"] += 1

    def segment_kept(self, segment_id: bytes, ends_s: float) -> None:
        self._ends_s.setdefault(segment_id, []).append(ends_s)

    def recorded(self, record: FoldRecord) -> None:
        """What is not in the record of its window is dropped: was it there and has expired?"""
        shard = record.shard
        through = self._recorded_through.get(shard, -1)
        self._recorded_through[shard] = max(record.to_window, through)
        if self._layout is None:
            return
        now_s = self._witness.now_s()
        now_ns = self._epoch_ns + int(now_s * NS_PER_S)
        lag_ns = now_ns - self._layout.start_ns(record.from_window)
        if lag_ns > self._promised_ns:
            self.is_exceeded = True
            self._witness.counted["folds behind by more than is promised for"] += 1
            return
        named = {ref.segment_id for ref in record.segments}
        for segment_id, (_, window, of_shard, _) in self._witness.segments.items():
            if (
                of_shard == shard
                and record.from_window <= window <= record.to_window
                and segment_id not in named
                and _has_expired_at_a_quorum(self._ends_s[segment_id], now_s)
            ):
                self._witness.violate(
                    "I8",
                    f"a segment of window {window} expired before it was folded, "
                    f"{lag_ns / NS_PER_S:.1f} s behind",
                )

    def is_stuck(self, watermarks: Mapping[int, int], healed_s: float) -> bool:
        """Whether a shard waits for a segment that is gone. A record that was agreed on before an
        outage names its segments, and is folded after it: if one of them expires meanwhile, or so
        soon after that nobody need have tried again, the outage was longer than is promised for."""
        by_s = healed_s + _TRIED_AGAIN_S
        if any(
            window > watermarks[shard] and _has_expired_at_a_quorum(self._ends_s[segment_id], by_s)
            for segment_id, (_, window, shard, _) in self._witness.segments.items()
        ):
            self.is_exceeded = True
            self._witness.counted["segments expired before they could be folded"] += 1
        return self.is_exceeded


def _has_expired_at_a_quorum(ends_s: list[float], now_s: float) -> bool:
    return sum(each <= now_s for each in ends_s) >= 2
