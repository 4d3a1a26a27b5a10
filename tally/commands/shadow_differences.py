"""How far a namespace and its shadow are apart, and what repairs it."""

import heapq
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from clients import CounterError, OutcomeUnknown, ShadowCount, SyncCounterClient
from tally.commands.values import format_count
from tally.output import Column, ExitCode, Failure, console, is_terminal, print_table, say

SHOWN_MAX = 10
COUNTERS_PER_PAGE = 1_000
# The platform takes 64 adjustments at once; some are left to others.
ADJUSTMENTS_IN_FLIGHT = 16
# What one adjustment may be at most. What is beyond it is the next comparison's.
_DELTA_MAX = 2**53
# With the defaults a fold is 10 s behind at most.
_FOLD_WAIT_S = 60.0
_LASTING_S = 3.0
_LOOK_EVERY_S = 0.2
_WAITING = "waiting for the folds"


@dataclass(kw_only=True)
class Differences:
    """What a comparison of all counters found."""

    compared: int = 0
    counters: list[ShadowCount] = field(default_factory=list)  # those that differ

    def add(self, counters: Sequence[ShadowCount]) -> None:
        self.compared += len(counters)
        self.counters.extend(each for each in counters if each.difference)

    @property
    def to_carry_over(self) -> list[ShadowCount]:
        """Those of which the shadow lacks something. Where it has more, the old count has lost it,
        in a restart for example: nothing is taken from what is counted exactly."""
        return [each for each in self.counters if each.difference > 0]

    @property
    def lacking(self) -> int:
        return sum(each.difference for each in self.to_carry_over)

    @property
    def surplus(self) -> int:
        return -sum(each.difference for each in self.counters if each.difference < 0)

    @property
    def largest(self) -> list[ShadowCount]:
        return heapq.nlargest(SHOWN_MAX, self.counters, key=lambda each: abs(each.difference))

    def document(self) -> dict[str, Any]:
        return {
            "compared": self.compared,
            "different": len(self.counters),
            "lacking": self.lacking,
            "surplus": self.surplus,
            "largest": [
                {
                    "counter": each.counter,
                    "count": each.count,
                    "shadow_count": each.shadow_count,
                    "difference": each.difference,
                }
                for each in self.largest
            ],
        }

    def show(self) -> None:
        if self.counters:
            print_table(
                (
                    Column(title="counter", style="cyan"),
                    Column(title="count", right=True),
                    Column(title="in the shadow", right=True),
                    Column(title="difference", right=True, style="bold yellow"),
                ),
                [
                    (
                        each.counter,
                        format_count(each.count),
                        format_count(each.shadow_count),
                        f"{each.difference:+,}",
                    )
                    for each in self.largest
                ],
            )
            more = len(self.counters) - SHOWN_MAX
            if more > 0:
                say(f"and {_counters(more)} more")
        say(self.summary, style="yellow" if self.counters else "green")

    @property
    def summary(self) -> str:
        if not self.compared:
            return "the shadow knows no counter yet: each is known from its first fold on"
        if not self.counters:
            return f"{_counters(self.compared)} compared, all equal"
        parts = []
        if self.lacking:
            parts.append(f"the shadow lacks {format_count(self.lacking)}")
        if self.surplus:
            parts.append(f"the shadow has {format_count(self.surplus)} more")
        equal = self.compared - len(self.counters)
        return (
            f"{_counters(self.compared)} compared: {format_count(equal)} equal, "
            f"{format_count(len(self.counters))} different; {' and '.join(parts)}"
        )


def compare(client: SyncCounterClient) -> Differences:
    """Compares all counters that the shadow knows."""
    found, page_token = Differences(), ""
    with _progress("comparing", None) as (progress, task):
        while True:
            page = client.compare_shadow_page(page_size=COUNTERS_PER_PAGE, page_token=page_token)
            found.add(page.counters)
            progress.update(task, completed=found.compared)
            page_token = page.next_page_token
            if not page_token:
                return found


def lasting(client: SyncCounterClient, found: Differences) -> Differences:
    """Of what the shadow lacked, what it still lacks some seconds later.

    A shadow that is slow gets its events behind the answers: what is only under way would be
    counted twice if it were carried over.
    """
    if not found.lacking:
        return found
    time.sleep(_LASTING_S)
    before = {each.counter: each.difference for each in found.to_carry_over}
    again = compare(client)
    for at, each in enumerate(again.counters):
        if each.difference > (lacked := before.get(each.counter, 0)):
            again.counters[at] = replace(each, count=each.shadow_count + lacked)
    again.counters = [each for each in again.counters if each.difference]
    return again


def carry_over(
    client: SyncCounterClient, namespace: str, found: Differences, *, author: str, reason: str
) -> int:
    """Adjusts the shadow of each counter by what it lacks; answers with the time of the last one.

    Whoever stops in between can begin anew with a comparison: what was adjusted lacks nothing any
    more.
    """

    def adjust(each: ShadowCount) -> int:
        delta = min(each.difference, _DELTA_MAX)
        sent = client.adjust(each.counter, delta, author=author, reason=reason)
        return sent.token.generation_time_ns

    counters, done, last_ns = found.to_carry_over, 0, 0
    with (
        _progress("carrying over", len(counters)) as (progress, task),
        ThreadPoolExecutor(ADJUSTMENTS_IN_FLIGHT) as threads,
    ):
        for start in range(0, len(counters), COUNTERS_PER_PAGE):
            try:
                for time_ns in threads.map(adjust, counters[start : start + COUNTERS_PER_PAGE]):
                    done, last_ns = done + 1, max(last_ns, time_ns)
                    progress.update(task, completed=done)
            except CounterError as error:
                raise _interrupted(namespace, error, done, len(counters)) from error
    return last_ns


def wait_for_folds(client: SyncCounterClient, namespace: str, through_ns: int) -> None:
    """Until what has a time up to this is in the rollups: reads of eventual begin with those."""
    ends_s = time.monotonic() + _FOLD_WAIT_S
    with _progress(_WAITING, None):
        while True:
            folded_ns = client.compare_shadow_page(page_size=1).complete_through_ns
            if folded_ns is not None and folded_ns >= through_ns:
                return
            if time.monotonic() >= ends_s:
                raise Failure(
                    f"namespace {namespace} is not cut over: what was carried over is not folded "
                    f"after {_FOLD_WAIT_S:.0f} s. Look at the workers with tally status, then run "
                    "the same command again: it carries nothing over twice"
                )
            time.sleep(_LOOK_EVERY_S)


def _interrupted(namespace: str, error: CounterError, done: int, total: int) -> Failure:
    when = " in a minute, when that is decided" if isinstance(error, OutcomeUnknown) else ""
    return Failure(
        f"namespace {namespace} is not cut over: at least {done} of {total} differences were "
        f"carried over, and then: {error.message.rstrip('.')}. Run the same command again{when}: "
        "it compares anew, and carries over only what is still lacking",
        ExitCode.UNKNOWN if isinstance(error, OutcomeUnknown) else ExitCode.REFUSED,
    )


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[tuple[Progress, TaskID]]:
    """On stderr, and only where a person looks at it."""
    progress = Progress(
        TextColumn(what),
        BarColumn(bar_width=30),
        TextColumn("" if what == _WAITING else "{task.completed:>9,.0f} counters"),
        console=console(sys.stderr),
        transient=True,
        disable=not is_terminal(sys.stderr),
    )
    with progress:
        yield progress, progress.add_task(what, total=total)


def _counters(number: int) -> str:
    return "1 counter" if number == 1 else f"{format_count(number)} counters"
