"""What must hold of a run, by what the stores hold in the end. Whatever callers were told is also
held against each other, by the rules of tally.verify, which see only the history.

The fold here is written anew, as plainly as it can be: it shares nothing with counter/fold.py.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from counter.namespaces import snapshot_from_json
from counter.rollups import FoldRecord
from counter.storage.cassandra.states import from_text
from counter.windows import Layout
from tally.verify.check import check
from tally.verify.history import Call, CallKind, Outcome
from tests.simulation.witness import Witness


class Folded(NamedTuple):
    count: int
    epoch: int
    cleared_at_ns: int
    total: int


class _Entry(NamedTuple):
    """An event in fold order."""

    time_ns: int
    token: str
    segment_id: bytes
    index: int
    delta: int | None
    window: int


CounterKey = tuple[int, str]


class RecordedEvents:
    """What the fold records say, counter by counter."""

    def __init__(self, records: Mapping[int, Sequence[FoldRecord]], witness: Witness) -> None:
        self._events: defaultdict[CounterKey, list[_Entry]] = defaultdict(list)
        self.identities: set[tuple[int, str, int, str]] = set()
        for of_shard in records.values():
            for record in of_shard:
                for ref in record.segments:
                    found = witness.segments.get(ref.segment_id)
                    if found is None:
                        witness.violate("I3", f"{record} names a segment that nobody wrote")
                        continue
                    namespace_id, window, _, events = found
                    for index, event in enumerate(events):
                        entry = _Entry(
                            event.time_ns,
                            event.token,
                            ref.segment_id,
                            index,
                            event.delta,
                            window,
                        )
                        self._events[namespace_id, event.counter].append(entry)
                        self.identities.add(
                            (namespace_id, event.counter, event.time_ns, event.token)
                        )
        for entries in self._events.values():
            entries.sort(key=lambda each: each[:4])

    def counters(self) -> list[CounterKey]:
        return sorted(self._events)

    def fold(self, key: CounterKey, through_window: int) -> Folded:
        count = epoch = cleared_at_ns = total = 0
        seen: set[tuple[int, str]] = set()
        for entry in self._events[key]:
            if entry.window > through_window or (entry.time_ns, entry.token) in seen:
                continue
            seen.add((entry.time_ns, entry.token))
            if entry.delta is None:
                count, epoch, cleared_at_ns = 0, epoch + 1, entry.time_ns
            else:
                count += entry.delta
                total += entry.delta
        return Folded(count, epoch, cleared_at_ns, total)

    def last_window(self, key: CounterKey, through_window: int) -> int:
        windows = [each.window for each in self._events[key] if each.window <= through_window]
        return max(windows, default=-1)


def check_run(
    witness: Witness, layout: Layout, history: Sequence[Call], watermarks: Mapping[int, int]
) -> None:
    records = _check_chains(witness, layout, watermarks)
    recorded = RecordedEvents(records, witness)
    _check_rollups(witness, records, recorded, watermarks)
    _check_tokens(witness, recorded, history)
    for violation in check(history).violations:
        witness.violate(violation.rule.value, f"history: {violation}")


def _check_chains(
    witness: Witness, layout: Layout, watermarks: Mapping[int, int]
) -> dict[int, list[FoldRecord]]:
    """I3: one chain per shard, without gaps, from the store's first window to the watermark."""
    by_shard: dict[int, list[FoldRecord]] = {shard: [] for shard in range(layout.shards)}
    for (shard, _), record in sorted(witness.records.items()):
        by_shard[shard].append(record)
    for shard, records in by_shard.items():
        expected = layout.from_window
        for record in records:
            if record.from_window != expected:
                witness.violate(
                    "I3", f"shard {shard}: a record from {record.from_window}, not {expected}"
                )
            expected = record.to_window + 1
            if layout.last_window_of_day(record.from_window) < record.to_window:
                witness.violate("I3", f"shard {shard}: {record.from_window} crosses a day")
        if watermarks.get(shard, 0) >= expected:
            witness.violate("I3", f"shard {shard}: the watermark is ahead of the records")
    return by_shard


def _check_rollups(
    witness: Witness,
    records: Mapping[int, Sequence[FoldRecord]],
    recorded: RecordedEvents,
    watermarks: Mapping[int, int],
) -> None:
    """I3: every state that a rollup ever had is the fold of the records up to there. And what is
    below the watermark has its rollup."""
    for (namespace_id, counter), states in sorted(witness.rollups.items()):
        for through, text in sorted(states.items()):
            rollup = from_text(text)
            found = Folded(rollup.count, rollup.epoch, rollup.cleared_at_ns, rollup.total)
            expected = recorded.fold((namespace_id, counter), through)
            if found != expected:
                witness.violate(
                    "I3", f"{counter} through {through} is {found}, its records make {expected}"
                )
    shard_of = {
        (namespace_id, event.counter): shard
        for namespace_id, _, shard, events in witness.segments.values()
        for event in events
    }
    for key in recorded.counters():
        last = recorded.last_window(key, watermarks[shard_of[key]])
        if last >= 0 and max(witness.rollups.get(key, {}), default=-1) < last:
            witness.violate("I1", f"{key} has events through {last} and no rollup with them")


def _check_tokens(witness: Witness, recorded: RecordedEvents, history: Sequence[Call]) -> None:
    """I1 and I7, token by token: what callers were told is what the records say."""
    ids = {
        name: namespace.id
        for version in sorted(witness.versions)
        for name, namespace in snapshot_from_json(witness.versions[version]).namespaces.items()
    }
    calls: defaultdict[tuple[int, str, int, str], list[Call]] = defaultdict(list)
    for call in history:
        if call.call is not CallKind.GET:
            identity = (ids[call.namespace], call.counter, call.generation_time_ns, call.token)
            calls[identity].append(call)
    for identity, of_token in calls.items():
        counts = identity in recorded.identities
        told = next((each for each in of_token if each.outcome is Outcome.OK), None)
        if told is not None and not counts:
            witness.violate("I1", f"{identity} was acknowledged ({told.call}) and is not counted")
        refused = next((each for each in of_token if _denies(each)), None)
        if refused is not None and counts:
            witness.violate("I7", f"{identity} counts, and {refused.reason} said that it does not")
        if counts and all(each.outcome is Outcome.FAIL for each in of_token if each.is_write):
            witness.violate("I1", f"{identity} counts, and every call with it was refused")
    for identity in recorded.identities - calls.keys():
        witness.violate("I1", f"{identity} counts, and nobody sent it")


def _denies(call: Call) -> bool:
    return call.outcome is Outcome.FAIL and call.settles_token
