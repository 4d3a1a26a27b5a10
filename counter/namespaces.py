"""Namespaces: a tenant's counters, their strategy and their limits, as one versioned snapshot."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from hashlib import sha256
from types import MappingProxyType

import msgspec

from counter.decoding import UNREADABLE
from counter.errors import SetupError, StoreDamaged

NAMESPACE_NAME_BYTES_MAX = 64
MAX_DELTA_DEFAULT = 1_000_000
MAX_DELTA_LIMIT = 2**53
CACHE_TTL_MS_DEFAULT = 5_000
CACHE_LOCAL_TTL_MS_DEFAULT = 500
CACHE_TTL_MS_MAX = 3_600_000
# Each step of a history costs a row per counter and step in which the counter changed.
HISTORY_STEPS_MAX = 4
HISTORY_STEP_MS_MIN = 60_000
HISTORY_STEP_MS_MAX = 86_400_000
HISTORY_RETENTION_MS_MAX = 3_650 * 86_400_000
# Fewer steps than this are no history; more are too many rows for one counter.
HISTORY_RETENTION_STEPS_MIN = 10
HISTORY_RETENTION_STEPS_MAX = 100_000
# The deltas of its windows are in each rollup row, so a rolling window must stay small.
ROLLING_WINDOW_MS_MIN = 10_000
ROLLING_WINDOW_MS_MAX = 3_600_000
# Their deltas are in each rollup row, which every fold of the counter writes anew.
RECENT_WINDOWS_MAX = 720
LIMIT_PER_S_MAX = 100_000_000
LIMIT_COUNTERS_MAX = 1_000_000_000
LIMIT_NAMES_CHARACTERS_MAX = 200
# Deleted namespaces that are remembered, the last ones: a rollback brings them back.
RETIRED_MAX = 1_000


class Strategy(StrEnum):
    BEST_EFFORT = "best_effort"
    EVENTUAL = "eventual"
    ACCURATE = "accurate"
    ROLLING_WINDOW = "rolling_window"


class Cardinality(StrEnum):
    """How many counters a namespace expects: decides how many partitions its rollups have."""

    LOW = "low"  # under 10,000
    MEDIUM = "medium"  # under 1,000,000
    HIGH = "high"  # above


@dataclass(frozen=True, kw_only=True, slots=True)
class HistoryStep:
    """The state of each counter at the end of each step is kept for some time."""

    step_ms: int  # divides a day; whole minutes
    retention_ms: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What callers of a namespace may do at most; None: as much as the platform takes."""

    # Of the whole fleet. Each server allows its share.
    adds_per_s: int | None = None
    reads_per_s: int | None = None
    # Adds to further counters are refused.
    counters: int | None = None
    batch_items: int | None = None
    # A regular expression (RE2) that the whole name of a counter must match.
    names: str | None = None


NO_LIMITS = Limits()


@dataclass(frozen=True, kw_only=True, slots=True)
class Definition:
    """A namespace as an admin writes it."""

    name: str
    strategy: Strategy
    description: str = ""
    owner: str = ""
    cardinality: Cardinality = Cardinality.MEDIUM
    max_delta: int = MAX_DELTA_DEFAULT
    cache_ttl_ms: int = CACHE_TTL_MS_DEFAULT
    cache_local_ttl_ms: int = CACHE_LOCAL_TTL_MS_DEFAULT
    # best_effort only: how long a token is remembered. None: it is not.
    dedupe_ttl_ms: int | None = None
    # Finest first, each step a multiple of the one before and kept longer; empty: no history.
    history: tuple[HistoryStep, ...] = ()
    # rolling_window only: how far back hits count.
    rolling_window_ms: int | None = None
    limits: Limits = NO_LIMITS
    # best_effort only: adds are written for this strategy too, to be compared before a change.
    shadow: Strategy | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Namespace(Definition):
    """A definition with the id that its keys carry: given at creation, never reused."""

    id: int

    def recent_windows(self, window_ms: int) -> int:
        """How many windows' deltas its rollups keep: as many as fit in the rolling window."""
        if self.strategy is not Strategy.ROLLING_WINDOW:
            return 0
        assert self.rolling_window_ms is not None, "checked when it was loaded"
        return max(1, self.rolling_window_ms // window_ms)  # 1 or more: see check_windows


class Origin(StrEnum):
    """How a version came to be."""

    FOLDER = "folder"  # a change in the folder that a control plane watches
    APPLIED = "applied"
    ROLLED_BACK = "rolled_back"
    CUT_OVER = "cut_over"


@dataclass(frozen=True, kw_only=True, slots=True)
class About:
    """Who made a version and why, and what it did to the one before."""

    origin: Origin = Origin.FOLDER
    author: str = ""
    reason: str = ""
    restores: int = 0  # rolled_back only: the version whose namespaces it has again
    created: int = 0  # namespaces; those that a rollback brings back are among them
    changed: int = 0
    deleted: int = 0


NOBODY_SAID = About()


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionInfo:
    """A version without its namespaces, for lists."""

    version: int
    applied_at_ns: int
    content_hash: str
    namespaces: int  # how many
    about: About = NOBODY_SAID


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """All namespaces of one version. Valid as a whole, swapped as a whole (I10)."""

    version: int
    applied_at_ns: int
    next_id: int  # higher than every id ever given
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    # Deleted, the last one last. Nobody can call them, but their events that are not folded yet
    # still are: an add was acknowledged, and a rollback may bring the namespace back. What a fold
    # does not need is left out, because all versions carry them along.
    retired: tuple[Namespace, ...] = ()
    about: About = NOBODY_SAID
    # What the watched folder held when this version was made, as a content_hash: so that a folder
    # is applied when it changes, and not again after somebody went on from it by command.
    folder_hash: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "namespaces", MappingProxyType(dict(self.namespaces)))
        known = (*self.retired, *self.namespaces.values())
        object.__setattr__(self, "by_id", {each.id: each for each in known})

    # The retired ones too.
    by_id: Mapping[int, Namespace] = field(init=False, repr=False, compare=False)

    @property
    def definitions(self) -> list[Definition]:
        return [definition_of(each) for each in self.namespaces.values()]

    @property
    def info(self) -> VersionInfo:
        return VersionInfo(
            version=self.version,
            applied_at_ns=self.applied_at_ns,
            content_hash=content_hash(self.namespaces.values()),
            namespaces=len(self.namespaces),
            about=self.about,
        )


def definition_of(namespace: Namespace) -> Definition:
    return Definition(**{each.name: getattr(namespace, each.name) for each in fields(Definition)})


def content_hash(definitions: Iterable[Definition]) -> str:
    """Equal for equal definitions, whatever their order and their ids.

    Only what is not the default goes in: a field that a later Tally adds changes no hash.
    """
    plain = [
        _not_default(definition, Definition)
        for definition in sorted(definitions, key=lambda each: each.name)
    ]
    return sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()


def _not_default(value: Definition | Limits, kind: type[Definition | Limits]) -> dict[str, object]:
    found: dict[str, object] = {}
    for each in fields(kind):
        held = getattr(value, each.name)
        if held != each.default:
            found[each.name] = _not_default(held, Limits) if isinstance(held, Limits) else held
    return found


def check_windows(snapshot: Snapshot, window_ms: int) -> None:
    """Raises SetupError for what does not go with the length of the platform's windows, which
    whoever wrote the namespaces may not know."""
    for namespace in snapshot.namespaces.values():
        if namespace.history and namespace.history[0].step_ms < window_ms:
            raise SetupError(
                f"namespace {namespace.name}: history.step {namespace.history[0].step_ms} ms is "
                f"shorter than the platform's windows of {window_ms} ms: keep longer steps"
            )
        if namespace.rolling_window_ms is None:
            continue
        longest_ms = RECENT_WINDOWS_MAX * window_ms
        if not window_ms <= namespace.rolling_window_ms <= longest_ms:
            raise SetupError(
                f"namespace {namespace.name}: rolling_window.length {namespace.rolling_window_ms} "
                f"ms does not go with the platform's windows of {window_ms} ms: it must be from "
                f"{window_ms} ms to {longest_ms} ms"
            )


EMPTY = Snapshot(version=0, applied_at_ns=0, next_id=1)


def next_snapshot(
    current: Snapshot,
    definitions: Iterable[Definition],
    *,
    applied_at_ns: int,
    about: About = NOBODY_SAID,
    folder_hash: str | None = None,
    ids: Mapping[str, int] = MappingProxyType({}),
) -> Snapshot:
    """The snapshot that follows `current`; `current` itself if nothing changed.

    A name that is still there keeps its id; a new one, also one that was there before, gets a new
    id and so starts at 0. `ids` are those that names had in an earlier version: they get them
    again, and with them their counts, as long as they are live or retired.
    """
    next_id = current.next_id
    namespaces: dict[str, Namespace] = {}
    for definition in sorted(definitions, key=lambda each: each.name):
        known = current.namespaces.get(definition.name)
        earlier = current.by_id.get(ids.get(definition.name, 0))
        values = {each.name: getattr(definition, each.name) for each in fields(Definition)}
        if earlier is not None and earlier.name == definition.name:
            known = earlier
        if known is None:
            namespaces[definition.name] = Namespace(**values, id=next_id)
            next_id += 1
        else:
            namespaces[definition.name] = replace(known, **values)
    if namespaces == dict(current.namespaces):
        return current
    before = {each.id: each for each in current.namespaces.values()}
    after = {each.id: each for each in namespaces.values()}
    deleted = [each for each in before.values() if each.id not in after]
    retired = [each for each in current.retired if each.id not in after]
    retired += [replace(each, description="", owner="", limits=NO_LIMITS) for each in deleted]
    return Snapshot(
        version=current.version + 1,
        applied_at_ns=applied_at_ns,
        next_id=next_id,
        namespaces=namespaces,
        retired=tuple(retired[-RETIRED_MAX:]),
        folder_hash=current.folder_hash if folder_hash is None else folder_hash,
        about=replace(
            about,
            created=len(after.keys() - before.keys()),
            changed=sum(after[each] != before[each] for each in after.keys() & before.keys()),
            deleted=len(deleted),
        ),
    )


class _Stored(msgspec.Struct):
    version: int
    applied_at_ns: int
    next_id: int
    namespaces: list[Namespace]
    retired: list[Namespace] = []
    about: About = NOBODY_SAID
    folder_hash: str = ""


def snapshot_to_json(snapshot: Snapshot) -> bytes:
    return msgspec.json.encode(
        _Stored(
            snapshot.version,
            snapshot.applied_at_ns,
            snapshot.next_id,
            list(snapshot.namespaces.values()),
            list(snapshot.retired),
            snapshot.about,
            snapshot.folder_hash,
        )
    )


def snapshot_from_json(body: bytes) -> Snapshot:
    try:
        stored = msgspec.json.decode(body, type=_Stored)
    except UNREADABLE as error:
        raise _unreadable(error) from error
    return Snapshot(
        version=stored.version,
        applied_at_ns=stored.applied_at_ns,
        next_id=stored.next_id,
        namespaces={each.name: each for each in stored.namespaces},
        retired=tuple(stored.retired),
        about=stored.about,
        folder_hash=stored.folder_hash,
    )


def version_info_to_json(info: VersionInfo) -> bytes:
    return msgspec.json.encode(info)


def version_info_from_json(about: bytes) -> VersionInfo:
    try:
        return msgspec.json.decode(about, type=VersionInfo)
    except UNREADABLE as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> StoreDamaged:
    return StoreDamaged(
        f"a stored version of the namespaces cannot be read: {error}: if a newer Tally wrote it, "
        "run that one here too, else restore it from a backup"
    )
