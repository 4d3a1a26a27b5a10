"""What must hold of a run, by what the stores hold in the end. Whatever callers were told is also
held against each other, by the rules of tally.verify, which see only the history."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from counter.namespaces import Origin
from counter.rollups import FoldRecord, Rollup
from counter.storage.cassandra.states import from_text
from counter.windows import Layout
from tally.verify.check import check
from tally.verify.history import Call, Outcome
from tests.simulation.past_checks import check_adjustments, check_audits, check_history_rows
from tests.simulation.recorded import CounterKey, Folded, RecordedEvents
from tests.simulation.served import Noted
from tests.simulation.witness import Witness


def check_run(
    witness: Witness, layout: Layout, noted: Sequence[Noted], watermarks: Mapping[int, int]
) -> None:
    records = _check_chains(witness, layout, watermarks)
    recorded = RecordedEvents(records, witness)
    folded = _folded_through(witness, recorded, watermarks)
    _check_rollups(witness, layout, recorded, folded)
    check_history_rows(witness, layout, recorded, folded)
    check_adjustments(witness, recorded, folded)
    check_audits(witness)
    _check_versions(witness)
    _check_tokens(witness, recorded, noted)
    for violation in check(calls_of(noted)).violations:
        witness.violate(violation.rule.value, f"history: {violation}")


def calls_of(noted: Sequence[Noted]) -> list[Call]:
    """The history. Namespaces with one name and different ids are different ones."""
    return [
        replace(call, namespace=f"{call.namespace}@{served.namespace_id}") for call, served in noted
    ]


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


def _folded_through(
    witness: Witness, recorded: RecordedEvents, watermarks: Mapping[int, int]
) -> dict[CounterKey, int]:
    """By counter: the window up to which everything must be written."""
    shard_of = {
        (namespace_id, event.counter): shard
        for namespace_id, _, shard, events in witness.segments.values()
        for event in events
    }
    return {key: watermarks[shard_of[key]] for key in recorded.counters()}


def _check_rollups(
    witness: Witness, layout: Layout, recorded: RecordedEvents, folded: Mapping[CounterKey, int]
) -> None:
    """I3: every state that a rollup ever had is the fold of the records up to there. And what is
    below the watermark has its rollup."""
    for key, states in sorted(witness.rollups.items()):
        for through, text in sorted(states.items()):
            rollup = from_text(text)
            expected = recorded.fold(key, through)
            if Folded.of(rollup) != expected:
                witness.violate(
                    "I3", f"{key} through {through} is {rollup}, its records make {expected}"
                )
            _check_recent(witness, layout, recorded, key, rollup)
    for key, through in folded.items():
        last = recorded.fold(key, through).changed_window
        if last >= 0 and max(witness.rollups.get(key, {}), default=-1) < last:
            witness.violate("I1", f"{key} has events through {last} and no rollup with them")


def _check_recent(
    witness: Witness,
    layout: Layout,
    recorded: RecordedEvents,
    key: CounterKey,
    rollup: Rollup,
) -> None:
    """What a rollup knows of single windows, for a rolling window."""
    if rollup.recent is None:
        return
    witness.counted["states of rolling windows"] += 1
    from_window = rollup.recent.from_window
    found = {window: delta for window, delta in rollup.recent.deltas if delta}
    expected = recorded.by_window(key, rollup.through_window, from_window)
    if found != expected:
        witness.violate("I3", f"{key} has {found} by window, its records make {expected}")
    namespace = witness.unchanged(key[0])
    if namespace is not None:
        first = rollup.through_window - namespace.recent_windows(layout.window_ms) + 1
        if from_window > first:
            witness.violate("I3", f"{key} knows windows from {from_window} on, and not {first}")


def _check_versions(witness: Witness) -> None:
    """I10: an id belongs to one name for ever, and who is created anew gets a new one."""
    names: dict[int, str] = {}
    before: dict[str, int] = {}
    for version in sorted(witness.versions):
        snapshot = witness.snapshot(version)
        now = {name: each.id for name, each in snapshot.namespaces.items()}
        for name, namespace_id in now.items():
            is_new = name not in before and snapshot.about.origin is not Origin.ROLLED_BACK
            if names.get(namespace_id, name) != name or (is_new and namespace_id in names):
                witness.violate(
                    "I10", f"version {version}: {name} has the id {namespace_id}, which was given"
                )
        names |= {namespace_id: name for name, namespace_id in now.items()}
        before = now


def _check_tokens(witness: Witness, recorded: RecordedEvents, noted: Sequence[Noted]) -> None:
    """I1 and I7, token by token: what callers were told is what the records say."""
    calls: defaultdict[tuple[int, str, int, str], list[Call]] = defaultdict(list)
    for call, served in noted:
        if not call.is_read:
            namespace_id = served.namespace_id
            identity = (namespace_id, call.counter, call.generation_time_ns, call.token)
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
