"""What a change would do: field by field, and what comes of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from control_plane.planning.changes import changes_between
from control_plane.planning.consequences import Consequence, Rule, actions, rule_for
from control_plane.planning.written import given
from counter.namespaces import (
    EMPTY,
    Definition,
    Namespace,
    Snapshot,
    Strategy,
    next_snapshot,
)

__all__ = [
    "Action",
    "Consequence",
    "FieldChange",
    "NamespaceChange",
    "Plan",
    "difference",
    "field_changes",
    "plan",
]


class Action(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    RESTORE = "restore"  # deleted since, and by a rollback there again with its counts


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldChange:
    field: str  # like `cache.ttl`; `history` once for each step that differs
    before: str  # as they would be written in YAML; empty: left out
    after: str
    consequence: Consequence
    explanation: str  # what comes of it, in a sentence
    hint: str = ""  # what to do instead, or about it


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceChange:
    namespace: str
    action: Action
    # Of a new namespace those that are not the default; of a restored one those that differ from
    # when it was deleted.
    fields: tuple[FieldChange, ...]
    own_consequence: Consequence  # of the action itself
    explanation: str = ""  # of the action itself

    @property
    def consequence(self) -> Consequence:
        return max([self.own_consequence, *(each.consequence for each in self.fields)])


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    base_version: int
    changes: tuple[NamespaceChange, ...] = ()  # by name

    @property
    def consequence(self) -> Consequence | None:
        return max((each.consequence for each in self.changes), default=None)


def plan(
    base: Snapshot, wanted: Iterable[Definition], ids: Mapping[str, int] = MappingProxyType({})
) -> Plan:
    """What `counter.namespaces.next_snapshot` with the same arguments would do."""
    # Made by the very function that applies, so the two cannot differ.
    planned = next_snapshot(base, wanted, applied_at_ns=base.applied_at_ns, ids=ids)
    before, after = base.namespaces, planned.namespaces
    changes = []
    for name in sorted(before.keys() | after.keys()):
        live, later = before.get(name), after.get(name)
        if later is None:
            assert live is not None, "it is in one of the two"
            changes.append(_deleted(live))
        elif live is not None and live.id == later.id:
            if fields := field_changes(live, later):
                changes.append(_changed(name, Action.CHANGE, fields))
        elif earlier := base.by_id.get(later.id):
            rule = _restoring(earlier, live)
            fields = field_changes(_completed(earlier, later), later)
            changes.append(_changed(name, Action.RESTORE, fields, rule))
        else:
            rule = _creating(base, name, ids)
            changes.append(_changed(name, Action.CREATE, _all_fields(later), rule))
    return Plan(base_version=base.version, changes=tuple(changes))


def difference(base: Snapshot, other: Snapshot) -> Plan:
    """What makes another version of this one: of two names with different ids, the earlier is
    deleted and the later created, unless the base has the other's still, or again."""
    known = {name: each.id for name, each in other.namespaces.items() if each.id < base.next_id}
    anew = [
        each
        for each in other.definitions
        if each.name not in known and each.name in base.namespaces
    ]
    names = {each.name for each in anew}
    kept = plan(base, [each for each in other.definitions if each.name not in names], known)
    created = plan(EMPTY, anew)
    changes = sorted((*kept.changes, *created.changes), key=lambda each: each.namespace)
    return Plan(base_version=base.version, changes=tuple(changes))


def field_changes(before: Definition, after: Definition) -> tuple[FieldChange, ...]:
    """Field by field, in the order in which they are written, and what comes of each."""
    found = []
    for change in changes_between(before, after):
        rule = rule_for(change)
        found.append(
            FieldChange(
                field=change.field,
                before=change.written_before,
                after=change.written_after,
                consequence=rule.consequence,
                explanation=rule.explanation.format_map(change.words),
                hint=rule.hint.format_map(change.words),
            )
        )
    return tuple(found)


def _changed(
    name: str, action: Action, fields: tuple[FieldChange, ...], rule: Rule | None = None
) -> NamespaceChange:
    return NamespaceChange(
        namespace=name,
        action=action,
        fields=fields,
        own_consequence=Consequence.HARMLESS if rule is None else rule.consequence,
        explanation="" if rule is None else rule.explanation,
    )


def _deleted(live: Namespace) -> NamespaceChange:
    is_best_effort = live.strategy is Strategy.BEST_EFFORT
    rule = actions.DELETED_BEST_EFFORT if is_best_effort else actions.DELETED
    return _changed(live.name, Action.DELETE, (), rule)


def _restoring(earlier: Namespace, live: Namespace | None) -> Rule:
    if live is not None:
        return actions.REPLACED
    is_best_effort = earlier.strategy is Strategy.BEST_EFFORT
    return actions.RESTORED_BEST_EFFORT if is_best_effort else actions.RESTORED


def _completed(retired: Namespace, later: Namespace) -> Namespace:
    """With what is not kept of a namespace that is deleted, and is of no consequence for one."""
    return replace(retired, description=later.description, owner=later.owner, limits=later.limits)


def _creating(base: Snapshot, name: str, ids: Mapping[str, int]) -> Rule:
    if name in ids:
        return actions.FORGOTTEN
    if any(each.name == name for each in base.retired):
        return actions.CREATED_AGAIN
    return actions.CREATED


def _all_fields(definition: Definition) -> tuple[FieldChange, ...]:
    return tuple(
        FieldChange(
            field=field, before="", after=text, consequence=Consequence.HARMLESS, explanation=""
        )
        for field, text in given(definition)
    )
