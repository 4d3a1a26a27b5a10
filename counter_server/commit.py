"""Group commit: what arrives while writes are under way goes out together.

Events wait in one buffer per (namespace, window, shard). At most `commits_in_flight` writes are
under way; when one ends, whatever waits then is packed into segments and written next. A lone add
on an idle server is written at once. Where calls come in numbers, the next commit waits a moment
for company: a little for each further call that the last one carried, so that the wait grows with
the load and vanishes with it, and none at all once commits are large anyway.

**The rule that makes every acknowledgement true.** An event of window W is acknowledged only if the
close mark that came back with its own write, read after that write was durable, shows W open. A
worker reads W's segments only after its close of W was durable. So if the worker missed the
segment, its close came before the segment was durable, and the mark read after that showed W
closed: the event was not acknowledged here. It goes on as a late token, whose outcome the fold
record decides. docs/closing-protocol.md has the whole proof.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from time import perf_counter

from counter.errors import Overloaded, ShuttingDown
from counter.events import Event
from counter.keys import shards_of
from counter.metrics import COMMIT_EVENTS, COMMIT_SECONDS, COMMIT_SEGMENTS, EVENTS_WAITING
from counter.segments import SEGMENT_EVENTS_MAX, Segment, SegmentRef, encode
from counter.storage.ports import Closed, EventLog
from counter.windows import Layout

_SEGMENT_ID_BYTES = 16
_RETRY_AFTER_MS = 100


@dataclass(frozen=True, kw_only=True)
class CommitLimits:
    commits_in_flight: int = 1
    segments_per_commit: int = 256
    events_waiting_max: int = 100_000  # beyond it: RESOURCE_EXHAUSTED
    # From the start of one commit to the start of the next.
    gather_ms_per_further_call: float = 0.5
    gather_ms_max: float = 3.0
    gather_below_events: int = 64
    # While a commit is under way the next one starts this long after it, or at its end: one large
    # commit costs less than several small ones, but a slow one must not keep all others waiting,
    # and what is large already has nothing to gain from waiting.
    overlap_after_ms: float = 0.0
    large_events: int = 500


class _Call:
    """One caller's events, spread over one or more buffers."""

    __slots__ = ("buffers", "late", "settled")

    def __init__(self, settled: "asyncio.Future[list[Event]]") -> None:
        self.settled = settled  # the events that came too late
        self.late: list[Event] = []
        self.buffers = 0

    def buffer_written(self, events: Sequence[Event], *, late: bool) -> None:
        if late:
            self.late.extend(events)
        self.buffers -= 1
        if self.buffers == 0 and not self.settled.done():
            self.settled.set_result(self.late)

    def fail(self, error: Exception) -> None:
        if not self.settled.done():
            self.settled.set_exception(error)


class _Buffer:
    __slots__ = ("calls", "events", "namespace_id", "shard", "window")

    def __init__(self, namespace_id: int, window: int, shard: int) -> None:
        self.namespace_id = namespace_id
        self.window = window
        self.shard = shard
        self.events: list[Event] = []
        self.calls: list[tuple[_Call, list[Event]]] = []


class GroupCommit:
    def __init__(
        self,
        log: EventLog,
        layout: Layout,
        limits: CommitLimits,
        observe_closed: Callable[[Closed], None],
        chance: Random | None = None,
    ) -> None:
        """`chance` draws the ids of segments, of which no two in a fleet may be the same."""
        self._chance = chance or Random()
        self._log = log
        self._window_ns = layout.window_ns
        self._shards = layout.shards
        self._lanes = layout.lanes
        # Servers begin with different ones, so that they rarely write to the same at once.
        self._lane = self._chance.randrange(layout.lanes)
        self._limits = limits
        self._observe_closed = observe_closed
        self._waiting: deque[_Buffer] = deque()
        # The buffer of each partition that still takes events.
        self._open: dict[tuple[int, int, int], _Buffer] = {}
        self._events = 0  # waiting or being written
        self._events_waiting = 0
        self._calls_waiting = 0
        self._last_start_s = 0.0
        self._gather_s = 0.0  # from then on to the next start
        self._commits: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None  # set: the next commit is scheduled
        self._stopping = False
        self._ok_seconds = COMMIT_SECONDS.at(result="ok")
        self._failed_seconds = COMMIT_SECONDS.at(result="failed")
        self._commit_events = COMMIT_EVENTS.at()
        self._commit_segments = COMMIT_SEGMENTS.at()
        EVENTS_WAITING.at().watch(self, lambda commit: commit._events)

    def write(self, namespace_id: int, events: Sequence[Event]) -> "asyncio.Future[list[Event]]":
        """Writes events; answers with those whose window had closed.

        All others are durable, will be counted exactly once, and may be acknowledged.
        """
        if self._stopping:
            raise ShuttingDown("this server is stopping: retry with the same token")
        if self._events + len(events) > self._limits.events_waiting_max:
            raise Overloaded(
                f"{self._events} events are waiting to be written, the limit is "
                f"{self._limits.events_waiting_max}: nothing of this call was written",
                retry_after_ms=_RETRY_AFTER_MS,
            )
        loop = asyncio.get_running_loop()
        call = _Call(loop.create_future())
        self._events += len(events)
        self._events_waiting += len(events)
        self._calls_waiting += 1
        window_ns = self._window_ns
        shards = shards_of(namespace_id, [event.counter for event in events], self._shards)
        partitions: defaultdict[tuple[int, int], list[Event]] = defaultdict(list)
        for event, shard in zip(events, shards, strict=True):
            partitions[event.time_ns // window_ns, shard].append(event)
        for (window, shard), of_partition in partitions.items():
            self._join(call, (namespace_id, window, shard), of_partition)
        if not events:
            call.settled.set_result([])
        elif self._timer is None or self._is_large():
            self._schedule()
        return call.settled

    async def drain(self) -> None:
        """Takes no more events and returns when those that were taken are settled."""
        self._stopping = True
        while self._waiting or self._commits:
            self._start_commits()
            await asyncio.wait(self._commits)

    def _join(self, call: _Call, key: tuple[int, int, int], events: list[Event]) -> None:
        """Puts a call's events of one partition into as many buffers as they need."""
        while events:
            buffer = self._open.get(key)
            if buffer is None:
                buffer = self._open[key] = _Buffer(*key)
                self._waiting.append(buffer)
            room = SEGMENT_EVENTS_MAX - len(buffer.events)
            taken, events = events[:room], events[room:]
            buffer.events.extend(taken)
            buffer.calls.append((call, taken))
            call.buffers += 1
            if len(buffer.events) >= SEGMENT_EVENTS_MAX:
                del self._open[key]

    def _schedule(self) -> None:
        """Has the next commit start as soon as it may; if all are under way, the end of one does.

        Not before the end of this turn of the loop: calls of one turn share a commit.
        """
        self._unschedule()
        if self._waiting and len(self._commits) < self._limits.commits_in_flight:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._next_start_s(), self._start_commits)

    def _unschedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _next_start_s(self) -> float:
        wait_s = self._gather_s
        if self._commits and not self._is_large():
            wait_s = max(wait_s, self._limits.overlap_after_ms / 1_000)
        return self._last_start_s + wait_s

    def _start_commits(self) -> None:
        self._unschedule()
        self._last_start_s = asyncio.get_running_loop().time()
        self._gather_s = self._next_gather_s()
        self._calls_waiting = 0
        while self._waiting and len(self._commits) < self._limits.commits_in_flight:
            count = min(len(self._waiting), self._limits.segments_per_commit)
            buffers = [self._waiting.popleft() for _ in range(count)]
            self._events_waiting -= sum(len(buffer.events) for buffer in buffers)
            for buffer in buffers:
                key = (buffer.namespace_id, buffer.window, buffer.shard)
                if self._open.get(key) is buffer:
                    del self._open[key]
            commit = asyncio.create_task(self._commit(buffers))
            self._commits.add(commit)
            commit.add_done_callback(self._ended)

    def _is_large(self) -> bool:
        return self._events_waiting >= self._limits.large_events

    def _next_gather_s(self) -> float:
        """How long the commit that starts now keeps the next one waiting for company."""
        limits = self._limits
        if self._events_waiting >= limits.gather_below_events:
            return 0.0
        further_calls_ms = limits.gather_ms_per_further_call * (self._calls_waiting - 1)
        return min(limits.gather_ms_max, further_calls_ms) / 1_000

    def _ended(self, commit: "asyncio.Task[None]") -> None:
        self._commits.discard(commit)
        if self._waiting and self._next_start_s() <= asyncio.get_running_loop().time():
            self._start_commits()
        else:
            self._schedule()

    async def _commit(self, buffers: list[_Buffer]) -> None:
        event_count = sum(len(buffer.events) for buffer in buffers)
        began_s = perf_counter()
        try:
            closed = await self._log.append(self._segments(buffers))
        except Exception as error:
            self._failed_seconds.record(perf_counter() - began_s)
            for buffer in buffers:
                for call, _ in buffer.calls:
                    call.fail(error)
            return
        finally:
            self._events -= event_count
        self._ok_seconds.record(perf_counter() - began_s)
        self._commit_events.record(event_count)
        self._commit_segments.record(len(buffers))
        self._observe_closed(closed)
        for buffer in buffers:
            late = buffer.window <= closed.through
            for call, events in buffer.calls:
                call.buffer_written(events, late=late)

    def _segments(self, buffers: list[_Buffer]) -> list[Segment]:
        """One per buffer, all of them in the next lane: one partition takes what one commit has of
        a window, and a hot counter's events go round all partitions."""
        self._lane = (self._lane + 1) % self._lanes
        return [
            Segment(
                SegmentRef(
                    window=buffer.window,
                    namespace_id=buffer.namespace_id,
                    segment_id=self._chance.randbytes(_SEGMENT_ID_BYTES),
                    event_count=len(buffer.events),
                    shard=buffer.shard,
                    lane=self._lane,
                ),
                encode(buffer.events),
            )
            for buffer in buffers
        ]
