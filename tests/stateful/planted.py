"""Mistakes that are put into the product, one at a time, to see that the machine finds them.

Those that callers of one server at a time can notice. `tests/simulation/planted` has more, of
which some are found here too.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import msgspec

import control_plane.snapshots
import counter.fold
import counter.history
import counter_server.columns
import counter_server.translate
from control_plane.snapshots import Snapshots
from counter.events import Event
from counter.namespaces import Definition, Snapshot
from counter.storage.memory import MemoryCountCache
from counter_server.late import LateTokens
from counter_server.listing import Listing
from counter_server.ranking import Rankings
from counter_server.reads import Reads, Row
from counter_server.strategies.strategy import Freshness
from rollup_worker.record_folds import RecordFolds
from tests.simulation.planted import planted as planted_in_the_simulation

Patches = Iterator[Any]


@contextmanager
def planted(bug: str) -> Iterator[None]:
    with ExitStack() as stack:
        if bug in ALSO_IN_THE_SIMULATION:
            stack.enter_context(planted_in_the_simulation(bug))
        else:
            for each in PLANTED[bug]():
                stack.enter_context(each)
        yield


def _columns_of_any_delta() -> Patches:
    """A batch in columns that looks right at a glance is not held against max_delta."""
    glance = counter_server.columns._plainly_right

    def generous(columns: Any, max_delta: int, latest_ns: int) -> bool:
        return glance(columns, 2**63, latest_ns)

    yield patch.object(counter_server.columns, "_plainly_right", generous)


def _outcomes_in_another_order() -> Patches:
    add_outcomes = counter_server.translate.add_outcomes

    def reversed_(into: Any, outcomes: Sequence[Any], made: Any) -> None:
        add_outcomes(into, outcomes[::-1], made)

    yield patch.object(counter_server.translate, "add_outcomes", reversed_)


def _id_given_twice() -> Patches:
    """A namespace that is created again gets the id, and so the counts, of the deleted one."""
    following = control_plane.snapshots.next_snapshot

    def nostalgic(current: Snapshot, definitions: Sequence[Definition], **rest: Any) -> Snapshot:
        ids = {each.name: each.id for each in current.retired} | dict(rest.pop("ids", {}))
        ids |= {name: each.id for name, each in current.namespaces.items()}
        return following(current, definitions, ids=ids, **rest)

    yield patch.object(control_plane.snapshots, "next_snapshot", nostalgic)


def _rollback_without_counts() -> Patches:
    """A rollback brings the definitions back, and not the ids that the counts are under."""
    apply = Snapshots.apply

    async def forgetful(self: Any, wanted: Any, **rest: Any) -> Any:
        return await apply(self, replace(wanted, ids={}), **rest)

    yield patch.object(Snapshots, "apply", forgetful)


def _deleted_namespaces_are_not_folded() -> Patches:
    snapshot = RecordFolds.snapshot

    async def living(self: Any, version: int) -> Snapshot:
        return replace(await snapshot(self, version), retired=())

    yield patch.object(RecordFolds, "snapshot", living)


def _page_without_its_first() -> Patches:
    """Each further page begins one counter too late."""
    merged = Listing._merged

    async def hurried(self: Any, namespace: Any, prefix: str, after: str, number: int) -> list[Any]:
        found: list[Any] = await merged(self, namespace, prefix, after, number + bool(after))
        return found[1:] if after else found

    yield patch.object(Listing, "_merged", hurried)


def _history_with_gaps() -> Patches:
    """A state that a fold puts an end to is not written down."""
    yield patch.object(counter.history, "_ended", lambda *_: [])


def _history_one_step_late() -> Patches:
    ended = counter.history._ended

    def late(*given: Any) -> list[tuple[int, Any]]:
        return [
            (step_ms, msgspec.structs.replace(row, step=row.step + 1))
            for step_ms, row in ended(*given)
        ]

    yield patch.object(counter.history, "_ended", late)


def _cache_without_namespaces() -> Patches:
    """Counts are cached under the names of counters alone."""
    get, put = MemoryCountCache.get, MemoryCountCache.put

    async def get_any(self: Any, keys: Any) -> Any:
        return await get(self, [(0, name) for _, name in keys])

    async def put_any(self: Any, items: Any, *, ttl_ms: int) -> None:
        await put(self, [((0, name), count) for (_, name), count in items], ttl_ms=ttl_ms)

    yield patch.object(MemoryCountCache, "get", get_any)
    yield patch.object(MemoryCountCache, "put", put_any)


def _max_staleness_forgotten() -> Patches:
    def patient(self: Freshness, now_ns: int) -> int:
        return -(2**63) if self.at_least_ns is None else self.at_least_ns

    yield patch.object(Freshness, "oldest_ns", patient)


def _late_tokens_taken() -> Patches:
    """A token that came after its window was folded is acknowledged, and counts nowhere."""
    settle = LateTokens.settle

    async def kind(self: Any, namespace_id: int, events: Any, *, wait_s: float) -> list[Any]:
        settled = await settle(self, namespace_id, events, wait_s=wait_s)
        return [
            False if getattr(each, "reason", "") == "TOKEN_EXPIRED" else each for each in settled
        ]

    yield patch.object(LateTokens, "settle", kind)


def _counts_that_wrap() -> Patches:
    def wrapped(number: int) -> tuple[int, bool]:
        return (number + 2**63) % 2**64 - 2**63, False

    yield patch.object(counter_server.translate, "clamped", wrapped)


def _rows_stamped_too_new() -> Patches:
    rows = Reads.rows

    async def newer(self: Any, namespace: Any, counters: Sequence[str]) -> list[Row]:
        found = await rows(self, namespace, counters)
        return [row._replace(through=row.through + 1) for row in found]

    yield patch.object(Reads, "rows", newer)


def _growth_since_the_clear() -> Patches:
    """Growth is measured by counts, which a clear sets back, and not by totals."""
    growths = Rankings._growths

    async def forgetful(self: Any, namespace: Any, page: Any, base: Any) -> Any:
        plain = [(name, msgspec.structs.replace(row, total=row.count)) for name, row in page]
        return await growths(self, namespace, plain, base)

    yield patch.object(Rankings, "_growths", forgetful)


# What the machine found in the product, put back: it stays fixed.


def _adjustments_that_do_not_count() -> Patches:
    """A correction is listed although another event with its token is the one that counts."""

    def noted(events: Sequence[Event]) -> list[Event]:
        return counter.fold._each_once(
            [event for event in events if event.note is not None], counter.fold.FoldCounts()
        )

    for module in ("rollup_worker.record_folds", "rollup_worker.audit.recount"):
        yield patch(f"{module}.adjustments", noted)


PLANTED: dict[str, Callable[[], Patches]] = {
    "columns of any delta": _columns_of_any_delta,
    "outcomes in another order": _outcomes_in_another_order,
    "id given twice": _id_given_twice,
    "rollback without counts": _rollback_without_counts,
    "deleted namespaces are not folded": _deleted_namespaces_are_not_folded,
    "page without its first": _page_without_its_first,
    "history with gaps": _history_with_gaps,
    "history one step late": _history_one_step_late,
    "cache without namespaces": _cache_without_namespaces,
    "max_staleness forgotten": _max_staleness_forgotten,
    "late tokens taken": _late_tokens_taken,
    "counts that wrap": _counts_that_wrap,
    "rows stamped too new": _rows_stamped_too_new,
    "growth since the clear": _growth_since_the_clear,
    "adjustments that do not count": _adjustments_that_do_not_count,
}
ALSO_IN_THE_SIMULATION = (
    "no close check",
    "token deduped per segment",
    "cache stamped too new",
    "clear by arrival",
    "late look-up in the log",
    "expired before the fold",
    "at_least forgotten",
    "namespaces switched by halves",
)
