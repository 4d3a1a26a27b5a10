"""What the SDK's calls on namespaces give: definitions, versions, plans, and who runs them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from clients.times import datetime_of
from clients.values import Cardinality, Strategy


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryStep:
    """The state of each counter at the end of each step is kept for some time."""

    step_ms: int
    retention_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceLimits:
    """What callers of a namespace may do at most; None: no limit of its own."""

    adds_per_s: int | None = None  # of the whole fleet
    reads_per_s: int | None = None  # likewise
    counters: int | None = None
    batch_items: int | None = None
    names: str | None = None  # a regular expression that a counter's whole name must match


@dataclass(frozen=True, kw_only=True, slots=True)
class Namespace:
    name: str
    id: int  # given at creation, never reused
    description: str
    owner: str
    strategy: Strategy | None  # None: one that this version of the SDK does not know
    cardinality: Cardinality | None  # likewise
    max_delta: int
    cache_ttl_ms: int
    cache_local_ttl_ms: int
    dedupe_ttl_ms: int | None  # best_effort only. None: tokens are not remembered
    history: tuple[HistoryStep, ...] = ()  # finest first; empty: no history is kept
    rolling_window_ms: int | None = None  # rolling_window only: how far back hits count
    limits: NamespaceLimits = NamespaceLimits()
    shadow: Strategy | None = None  # during a shadow phase: adds are written for it too


class Origin(StrEnum):
    """How a version came to be."""

    FOLDER = "folder"  # a change in the folder that a control plane watches
    APPLIED = "applied"
    ROLLED_BACK = "rolled_back"
    CUT_OVER = "cut_over"


@dataclass(frozen=True, kw_only=True, slots=True)
class Version:
    """A version of all namespaces, without them."""

    version: int
    applied_at_ns: int | None
    origin: Origin | None  # None: one that this version of the SDK does not know
    author: str
    reason: str
    content_hash: str  # of all definitions: equal hashes, equal namespaces
    restores: int | None  # rolled_back only: the version whose namespaces it has again
    namespaces: int  # how many there are
    # Compared with the version before it.
    created: int
    changed: int
    deleted: int

    @property
    def applied_at(self) -> datetime | None:
        """`applied_at_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.applied_at_ns)


@dataclass(frozen=True, kw_only=True, slots=True)
class Namespaces:
    """All namespaces of one version."""

    version: int
    applied_at_ns: int | None
    namespaces: tuple[Namespace, ...]
    about: Version | None = None  # who made the version, and why; only `watch_namespaces` says

    @property
    def applied_at(self) -> datetime | None:
        """`applied_at_ns` in UTC, rounded down to microseconds."""
        return datetime_of(self.applied_at_ns)


@dataclass(frozen=True, kw_only=True, slots=True)
class Mistake:
    """One mistake in a namespace file."""

    path: str
    line: int  # both count from 1
    column: int
    field: str  # like `cache.ttl`; empty when the whole file is meant
    message: str
    hint: str  # what to do about it


class Consequence(StrEnum):
    """What comes of a change."""

    HARMLESS = "harmless"  # nobody will notice but those who want the change
    COSTS = "costs"  # something becomes slower, shorter or refused, and no data is lost
    DATA_LOSS = "data_loss"  # counts or their history are lost or out of reach
    IMPOSSIBLE = "impossible"  # not on a live namespace


class Action(StrEnum):
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    RESTORE = "restore"  # deleted since, and by a rollback there again with its counts


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldChange:
    field: str  # like `cache.ttl`
    before: str  # as they are written in YAML; empty: left out
    after: str
    consequence: Consequence | None  # None: one that this version of the SDK does not know
    explanation: str  # what comes of it, in a sentence
    hint: str  # what to do instead, or about it; may be empty
    line: int | None  # where it is in the file, if it is; both count from 1
    column: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceChange:
    namespace: str
    action: Action | None  # None: one that this version of the SDK does not know
    consequence: Consequence | None  # the gravest of its fields and of the action; None: likewise
    explanation: str  # of the action itself
    fields: tuple[FieldChange, ...]  # of a new namespace those that are not the default
    path: str  # the file; empty if it is deleted or comes from an earlier version


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """What files, or an earlier version, would change."""

    base_version: int  # what it was compared with: the expected_version of an apply that does this
    mistakes: tuple[Mistake, ...]  # of the files; with any of them nothing can be applied
    changes: tuple[NamespaceChange, ...]  # empty without mistakes: nothing to do
    # The gravest of all changes. None: there are none, or one that this SDK does not know.
    consequence: Consequence | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ApplyResult:
    """What an apply or a rollback did."""

    version: Version  # the live one now; the expected one if there was nothing to change
    changes: tuple[NamespaceChange, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NamespaceTraffic:
    """What a server took on in one namespace, in the last seconds."""

    namespace: str
    adds_per_s: float
    reads_per_s: float
    limited_per_s: float  # adds and reads that a limit of the namespace refused
    counters: int | None  # about how many it has; None: nobody counts them


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """A live process of the fleet, as it describes itself."""

    process: str  # another one after each start
    program: str  # server, worker, control-plane, or serve for all in one
    version: int  # of the namespaces that it runs; 0: none yet
    refused_version: int | None  # a later one that it cannot run
    problem: str  # why it refuses that
    traffic: tuple[NamespaceTraffic, ...]  # of servers only


@dataclass(frozen=True, kw_only=True, slots=True)
class Processes:
    """The live processes of the fleet."""

    version: int  # the live one: what all of them should run
    processes: tuple[Process, ...]
