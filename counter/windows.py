"""Windows: fixed slices of event time, numbered from 1970.

A layout fixes how event time and counters are cut into partitions. It is written once, when a
store is created, and is the origin of every shard's chain of fold records.
"""

from dataclasses import dataclass, field

from counter.clock import NS_PER_MS, NS_PER_S

MS_PER_DAY = 86_400_000
NS_PER_DAY = 86_400 * NS_PER_S


@dataclass(frozen=True, kw_only=True)
class Layout:
    from_window: int  # the first window that can ever hold an event
    window_ms: int
    shards: int
    lanes: int = 1  # how many partitions the segments of a window are spread over

    def __post_init__(self) -> None:
        assert self.window_ms > 0, self.window_ms
        assert self.shards > 0, self.shards
        assert self.lanes > 0, self.lanes
        object.__setattr__(self, "window_ns", self.window_ms * NS_PER_MS)

    window_ns: int = field(init=False, repr=False, compare=False)

    def window_of(self, time_ns: int) -> int:
        return time_ns // self.window_ns

    def start_ns(self, window: int) -> int:
        return window * self.window_ns

    def end_ns(self, window: int) -> int:
        """The first instant after the window."""
        return (window + 1) * self.window_ns

    def complete_through_ns(self, window: int) -> int:
        """The last instant of the window: an event one nanosecond later is in the next one."""
        return (window + 1) * self.window_ns - 1

    def closable_through(self, now_ns: int, *, grace_ns: int) -> int:
        """The last window whose end is at least `grace_ns` ago."""
        return (now_ns - grace_ns) // self.window_ns - 1

    def step_of(self, window: int, step_ms: int) -> int:
        """Steps are longer slices of time, numbered from 1970 as windows are. A window belongs to
        the step in which it starts."""
        return self.start_ns(window) // (step_ms * NS_PER_MS)

    def last_window_of_step(self, step: int, step_ms: int) -> int:
        return ((step + 1) * step_ms * NS_PER_MS - 1) // self.window_ns

    def last_window_of_day(self, window: int) -> int:
        """The last window that starts on the same day: a fold record never goes beyond it."""
        return self.last_window_of_step(self.step_of(window, MS_PER_DAY), MS_PER_DAY)
