"""How much a pass takes on, how many passes run at once, and how long a failed shard rests.

All three follow what the store shows, because nothing else tells how much it can take: it may be
one disk or a cluster, alone or shared, healthy or short of a node.

- **The pass size**, per shard, follows the time that passes take. A pass should be so large that
  its fixed costs hardly matter and so short that nobody notices it: adds wait behind it on a store
  with one writer, and other shards wait for its turn. Full passes that are quicker than the target
  grow the next one, slower ones shrink it.
  A window is folded as a whole. Where one alone has more events than the size, a smaller size would
  not make its pass shorter: it would only cut the same rows into more writes. So the size is then
  that of the window.
  What a pass costs even when it is small is not the size's fault. On a store with slow round trips
  shrinking would only leave round trips, and folds would fall behind for good: so a pass may always
  take twice as long as a small one does.
- **Passes at once**, per process, follow errors and very slow passes: both mean that the store has
  more to do than it can. Half as many at once relieves it within one pass; one more for each round
  of good passes finds out carefully how many it takes. All workers do the same without talking to
  each other, and so share what there is.
- **The rest after an error**, per shard, doubles with each error in a row: what did not work a
  moment ago will hardly work now, and a store that comes back should not meet everybody at once,
  hence the random part. A shard whose trouble is its own (a damaged segment) slows nobody else
  down.

Nothing here reads a clock or waits.
"""

from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from counter.errors import StoreUnavailable

PASS_S_TARGET = 0.1
BATCH_COUNTERS_MIN, BATCH_COUNTERS_MAX = 10, 1_000
# Where a shard begins: a few passes away from both ends.
BATCH_COUNTERS_START = 100
# How many events a pass takes for each counter of a write batch: 200 to 20,000.
EVENTS_PER_BATCH_COUNTER = 20

_GROWTH, _SHRINKAGE = 1.2, 0.8
# A pass may take this many times what a small one takes, whatever the target is.
_TIMES_SMALL_PASS = 2.0
# Beyond this a small pass is not a fact of life but trouble.
_SMALL_PASS_S_MAX = 0.5
# After so many larger passes that is forgotten. If they are still slow, the next ones shrink until
# one is small, and it is known again: a store that has become quick is found out that way.
_SMALL_PASS_KNOWN_FOR = 500
# A pass that takes so many times as long as it may says that the store has too much to do.
_TIMES_OVERLOADED = 4.0
_PASSES_SHRINKAGE = 0.5
# Passes that run at once often fail at once: that is one sign, not several.
_SECONDS_BETWEEN_SHRINKAGES = 1.0

REST_S_MIN, REST_S_MAX = 0.25, 10.0


class PassSize(NamedTuple):
    events_max: int
    rollups_per_batch: int


@dataclass(slots=True)
class _ShardPace:
    batch_counters: float = BATCH_COUNTERS_START
    small_pass_s: float = 0.0  # what the last one took that had little to do; 0: not known
    larger_passes: int = 0  # since then
    errors_in_a_row: int = 0


class Pace:
    def __init__(
        self,
        *,
        shards: int,
        passes_in_parallel: int,
        chance: Random,
        pass_s_target: float = PASS_S_TARGET,
    ) -> None:
        """`passes_in_parallel`: how many may run at once when all is well."""
        assert passes_in_parallel > 0, passes_in_parallel
        self._shards = [_ShardPace() for _ in range(shards)]
        self._passes_max = passes_in_parallel
        self._passes = float(passes_in_parallel)
        self._chance = chance
        self._pass_s_target = pass_s_target
        self._shrunk_at_s: float | None = None

    @property
    def passes(self) -> int:
        """How many may run at once now."""
        return int(self._passes)

    def size(self, shard: int) -> PassSize:
        counters = round(self._shards[shard].batch_counters)
        return PassSize(counters * EVENTS_PER_BATCH_COUNTER, counters)

    def succeeded(
        self, shard: int, *, events: int, seconds: float, is_full: bool, now_s: float
    ) -> None:
        """Takes in a pass. One without events says nothing about sizes."""
        pace = self._shards[shard]
        pace.errors_in_a_row = 0
        if events:
            _learn_small_pass(pace, events, seconds)
        allowed_s = max(self._pass_s_target, _TIMES_SMALL_PASS * pace.small_pass_s)
        if events > self.size(shard).events_max:
            counters = events / EVENTS_PER_BATCH_COUNTER
            pace.batch_counters = min(counters, BATCH_COUNTERS_MAX)
        elif events and seconds > allowed_s:
            pace.batch_counters = max(pace.batch_counters * _SHRINKAGE, BATCH_COUNTERS_MIN)
        elif events and (is_full or events == self.size(shard).events_max):
            pace.batch_counters = min(pace.batch_counters * _GROWTH, BATCH_COUNTERS_MAX)
        if seconds > _TIMES_OVERLOADED * allowed_s:
            self._shrink_passes(now_s)
        else:
            self._passes = min(self._passes + 1 / self._passes, self._passes_max)

    def failed(self, shard: int, error: Exception, *, now_s: float) -> float:
        """Takes in a pass that failed; answers with how many seconds its shard rests."""
        if isinstance(error, StoreUnavailable):
            self._shrink_passes(now_s)
        pace = self._shards[shard]
        doublings = min(pace.errors_in_a_row, 32)  # far beyond the limit, and no large numbers
        pace.errors_in_a_row += 1
        rest_s: float = min(REST_S_MIN * 2**doublings, REST_S_MAX)
        return self._chance.uniform(rest_s / 2, rest_s)

    def _shrink_passes(self, now_s: float) -> None:
        if self._shrunk_at_s is None or now_s - self._shrunk_at_s >= _SECONDS_BETWEEN_SHRINKAGES:
            self._passes = max(self._passes * _PASSES_SHRINKAGE, 1.0)
            self._shrunk_at_s = now_s


def _learn_small_pass(pace: _ShardPace, events: int, seconds: float) -> None:
    pace.larger_passes += 1
    if events <= BATCH_COUNTERS_MIN * EVENTS_PER_BATCH_COUNTER:
        pace.small_pass_s, pace.larger_passes = min(seconds, _SMALL_PASS_S_MAX), 0
    elif pace.larger_passes == _SMALL_PASS_KNOWN_FOR:
        pace.small_pass_s = 0.0
