"""A change that can be read is not always one that can be made: mistakes against what is live."""

from collections.abc import Iterable

from control_plane.files.loader import Loaded, Source
from control_plane.files.mistakes import START, Mistake, mistake
from control_plane.planning.plan import (
    Action,
    Consequence,
    FieldChange,
    NamespaceChange,
    Plan,
    field_changes,
)
from counter.namespaces import Snapshot


def report(mistakes: Iterable[Mistake]) -> str:
    """One line per mistake: `path:line:column: field: message (hint)`."""
    return "\n".join(map(str, mistakes))


def impossible_changes(current: Snapshot, loaded: Loaded) -> tuple[Mistake, ...]:
    """What cannot be changed on live namespaces; those that are not in `loaded` are left out."""
    found = []
    for definition in loaded.definitions:
        live = current.namespaces.get(definition.name)
        if live is None:
            continue
        source = loaded.sources[definition.name]
        for change in field_changes(live, definition):
            if change.consequence is Consequence.IMPOSSIBLE:
                message = f"cannot change {_from_to(change)}: {change.explanation}"
                found.append(_mistake(source, change, message, change.hint))
    return tuple(sorted(found))


def data_loss_mistakes(planned: Plan, loaded: Loaded) -> tuple[Mistake, ...]:
    """What would lose data, for a folder that is watched: there is nobody whom it could ask."""
    found = []
    for change in planned.changes:
        allow = f"'tally apply {loaded.origin or 'DIR'} --allow-data-loss' does it all the same"
        if change.own_consequence is Consequence.DATA_LOSS:
            found.append(_of_namespace(change, loaded, allow))
        for field in change.fields:
            if field.consequence is Consequence.DATA_LOSS:
                hint = f"{field.hint}; {allow}" if field.hint else allow
                message = f"{_doing(field)} loses data: {field.explanation}"
                found.append(_mistake(loaded.sources[change.namespace], field, message, hint))
    return tuple(sorted(found))


def _of_namespace(change: NamespaceChange, loaded: Loaded, allow: str) -> Mistake:
    does = "deletes" if change.action is Action.DELETE else "replaces"
    message = f"{does} the namespace {change.namespace}: {change.explanation}"
    source = loaded.sources.get(change.namespace)
    if source is None:
        hint = f"put {change.namespace}.yaml back; {allow}"
        return mistake(loaded.origin, START, message, hint)
    return mistake(source.path, source.position("namespace"), message, allow, field="namespace")


def _mistake(source: Source, change: FieldChange, message: str, hint: str) -> Mistake:
    return mistake(source.path, source.position(change.field), message, hint, field=change.field)


def _from_to(change: FieldChange) -> str:
    return f"from {change.before} to {change.after}"


def _doing(change: FieldChange) -> str:
    return f"changing {_from_to(change)}" if change.after else f"removing {change.before}"
