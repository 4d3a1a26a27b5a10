"""What folds leave behind of the past, held against the records: history rows and adjustments; and
what the workers' own audits made of all that."""

from collections.abc import Mapping
from itertools import pairwise

from counter.storage.cassandra.states import from_text
from counter.windows import Layout
from tests.simulation.recorded import CounterKey, Folded, RecordedEvents
from tests.simulation.witness import Witness


def check_history_rows(
    witness: Witness, layout: Layout, recorded: RecordedEvents, folded: Mapping[CounterKey, int]
) -> None:
    """I3: a row is the state at the end of its step, and says in which step the counter changed
    next. None is missing where history was kept all the time."""
    for (namespace_id, counter, step_ms), rows in sorted(witness.history_rows.items()):
        key = (namespace_id, counter)
        steps = _steps(layout, recorded, key, step_ms, folded.get(key, -1))
        following = dict(pairwise(steps))
        for step, text in sorted(rows.items()):
            witness.counted["rows of histories"] += 1
            until_step, _, state = text.partition(" ")
            found = from_text(state)
            last_window = layout.last_window_of_step(step, step_ms)
            expected = recorded.fold(key, last_window)
            if Folded.of(found) != expected or found.through_window != last_window:
                witness.violate(
                    "I3", f"{key} was {found} after {step}, its records make {expected}"
                )
            if int(until_step) != following.get(step, int(until_step)):
                witness.violate(
                    "I3", f"{key} changed after {step} in {following[step]}, not in {until_step}"
                )
    for key, through in folded.items():
        namespace = witness.unchanged(key[0])
        for kept in namespace.history if namespace is not None else ():
            rows = witness.history_rows.get((*key, kept.step_ms), {})
            steps = _steps(layout, recorded, key, kept.step_ms, through)
            for step in steps[:-1]:
                if step not in rows:
                    witness.violate("I3", f"{key} has no history of step {step}")


def check_adjustments(
    witness: Witness, recorded: RecordedEvents, folded: Mapping[CounterKey, int]
) -> None:
    """I3: every adjustment that is folded is noted, with who made it and why, and no other."""
    expected = {
        (*key, entry.time_ns, entry.token): (entry.delta, *entry.note)
        for key, through in folded.items()
        for entry in recorded.through(key, through)
        if entry.note is not None
    }
    witness.counted["adjustments folded"] += len(expected)
    for identity, note in expected.items():
        if witness.adjustments.get(identity) != note:
            witness.violate(
                "I3", f"{identity} is {note}, and noted as {witness.adjustments.get(identity)}"
            )
    for identity in witness.adjustments.keys() - expected.keys():
        if identity not in recorded.identities:
            witness.violate("I3", f"{identity} is noted as adjusted, and does not count")


def check_audits(witness: Witness) -> None:
    """An audit finds nothing where nothing is wrong. Only an adjustment of a count that was right
    is for it to find: then the count is not what the events say."""
    adjusted = {
        (namespace_id, event.counter)
        for namespace_id, _, _, events in witness.segments.values()
        for event in events
        if event.note is not None
    }
    names = {
        (each.name, counter)
        for namespace_id, counter in adjusted
        for version in witness.versions
        for each in [witness.snapshot(version).by_id.get(namespace_id)]
        if each is not None
    }
    for found in witness.audit_differences:
        if (found.get("namespace"), found.get("counter")) not in names:
            witness.violate("audit", f"found without reason: {found}")


def _steps(
    layout: Layout, recorded: RecordedEvents, key: CounterKey, step_ms: int, through: int
) -> list[int]:
    """In which the counter changed, up to a window."""
    windows = [window for window in recorded.windows(key) if window <= through]
    return sorted({layout.step_of(window, step_ms) for window in windows})
