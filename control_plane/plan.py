"""What a change would do: field by field, and what comes of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from types import MappingProxyType

from counter.namespaces import Definition, Snapshot


class Consequence(IntEnum):
    """The higher, the graver."""

    HARMLESS = 1  # nobody will notice but those who want the change
    COSTS = 2  # something becomes slower, shorter or refused, and no data is lost
    DATA_LOSS = 3  # counts or their history are lost or out of reach
    IMPOSSIBLE = 4  # not on a live namespace


class Action(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    RESTORE = "restore"  # deleted since, and by a rollback there again with its counts


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldChange:
    field: str  # like `cache.ttl`
    before: str  # as they would be written in YAML; empty: left out
    after: str
    consequence: Consequence
    explanation: str  # what comes of it, in a sentence
    hint: str = ""  # what to do instead, or about it


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceChange:
    namespace: str
    action: Action
    fields: tuple[FieldChange, ...]  # of a new namespace those that are not the default
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
    raise NotImplementedError
