"""Rules for a change against what is live: what can be read is not always what can be applied."""

from collections.abc import Iterable

from control_plane.loader import Loaded
from control_plane.mistakes import START, Mistake, listed, mistake
from counter.namespaces import Definition, Namespace, Snapshot, Strategy

NAMES_SHOWN_MAX = 3


def report(mistakes: Iterable[Mistake]) -> str:
    """One line per mistake: `path:line:column: field: message (hint)`."""
    return "\n".join(map(str, mistakes))


def check_against(current: Snapshot, loaded: Loaded) -> tuple[Mistake, ...]:
    """What keeps a directory from replacing the live snapshot; empty if nothing does."""
    return check_changes(current, loaded) + _check_removal(current, loaded)


def check_changes(current: Snapshot, loaded: Loaded) -> tuple[Mistake, ...]:
    """The rules for each namespace on its own; those that are not in `loaded` are left out."""
    found: list[Mistake] = []
    for definition in loaded.definitions:
        live = current.namespaces.get(definition.name)
        if live is None:
            continue
        source = loaded.sources[definition.name]
        for field, message, hint in _forbidden_changes(live, definition):
            found.append(mistake(source.path, source.position(field), message, hint, field=field))
    return tuple(sorted(found))


def _forbidden_changes(live: Namespace, wanted: Definition) -> Iterable[tuple[str, str, str]]:
    if live.cardinality is not wanted.cardinality:
        message = f"cannot change from {live.cardinality} to {wanted.cardinality}"
        hint = (
            f"it is fixed once a namespace is created: write 'cardinality: {live.cardinality}', "
            "or create a namespace under another name"
        )
        yield "cardinality", message, hint
    if (live.strategy is Strategy.BEST_EFFORT) is not (wanted.strategy is Strategy.BEST_EFFORT):
        message = (
            f"cannot change from {live.strategy} to {wanted.strategy} on a live namespace: "
            "the counts of best_effort are kept elsewhere"
        )
        hint = (
            "create a namespace under another name, or delete this one: its counts start at 0 "
            "when it is created again"
        )
        yield "strategy", message, hint


def _check_removal(current: Snapshot, loaded: Loaded) -> tuple[Mistake, ...]:
    """A directory without any of the live namespaces is most likely the wrong one."""
    live = sorted(current.namespaces)
    if not live or any(each.name in current.namespaces for each in loaded.definitions):
        return ()
    more = len(live) - NAMES_SHOWN_MAX
    names = live if more <= 0 else [*live[:NAMES_SHOWN_MAX], f"{more} more"]
    message = f"would remove every live namespace: {listed(names)}"
    hint = (
        "is this the right directory? To replace them all, add the new ones first and remove "
        "the old ones in a second change"
    )
    return (mistake(loaded.origin, START, message, hint),)
