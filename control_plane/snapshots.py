"""The line of versions: what is live, and how it is followed by the next (I10).

A version is stored first and becomes `current` after that. The store gives each number once, so of
two that want to follow the same version one wins, and the other is refused: what it planned was
planned on something that is no longer live. Nothing is ever merged.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import structlog

from control_plane.planning.plan import Action, Consequence, NamespaceChange, Plan, plan
from counter.clock import Clock
from counter.errors import (
    ChangeImpossible,
    DataLossRefused,
    InvalidRequest,
    NamespaceUnknown,
    SetupError,
    ShadowOff,
    VersionConflict,
    VersionUnknown,
)
from counter.metrics import NAMESPACES, NAMESPACES_VERSION
from counter.namespace_follower import NamespaceFollower
from counter.namespaces import (
    EMPTY,
    About,
    Definition,
    Origin,
    Snapshot,
    VersionInfo,
    content_hash,
    next_snapshot,
)
from counter.notes import check_note
from counter.storage.ports import NamespaceStore

CHANGES_SHOWN_MAX = 5

Subscriber = Callable[[Snapshot], None]

_log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What the next version is to hold."""

    definitions: Sequence[Definition]
    about: About
    allow_data_loss: bool = False
    # Of a rollback: the ids that the names had.
    ids: Mapping[str, int] = field(default_factory=dict)
    # Of the watched folder: what it holds. None: this does not come from there.
    folder_hash: str | None = None


class Settled(NamedTuple):
    """What the watched folder held when it was dealt with last, and the version that was live."""

    folder_hash: str
    version: int


class Snapshots:
    # Read on every request: a plain attribute, replaced whole and never changed in place.
    current: Snapshot

    def __init__(self, *, store: NamespaceStore, clock: Clock) -> None:
        self.current = EMPTY
        self.settled = Settled("", 0)
        self._store = store
        self._clock = clock
        self._checks: list[Subscriber] = []
        self._followers: list[Subscriber] = []
        self._changing = asyncio.Lock()
        self._changed = asyncio.Event()
        self.follower = NamespaceFollower(store, check=self._check, switch=self._switch)
        NAMESPACES_VERSION.at().watch(self, lambda snapshots: snapshots.current.version)
        NAMESPACES.at().watch(self, lambda snapshots: len(snapshots.current.namespaces))

    def subscribe(
        self, check: Subscriber | None = None, *, follow: Subscriber | None = None
    ) -> None:
        """Has `check` called before a snapshot is stored, and `follow` when it becomes current.

        A check that raises SetupError or InvalidRequest refuses the snapshot: nothing changes. A
        check must not switch over: until the snapshot is stored its new ids may still be given to
        other namespaces. `follow` may, and must not raise; no other task runs between it and the
        change of `current`. Subscribe before the start.
        """
        if check is not None:
            self._checks.append(check)
        if follow is not None:
            self._followers.append(follow)

    async def apply(self, wanted: Wanted, *, expected_version: int) -> tuple[Snapshot, Plan]:
        """Makes this the next version; the live one stays if it is the same already.

        Raises and changes nothing if another version than the expected one is live, if the change
        is impossible or loses data that it may not lose, or if it cannot be served. Raises
        StoreUnavailable when it is not known whether the version was stored: the same call again
        is safe, and finds its own version if it was.
        """
        async with self._changing:
            latest = await self._store.latest() or EMPTY
            if latest.version != expected_version:
                return await self._own_or_conflict(latest, wanted, expected_version)
            planned = plan(latest, wanted.definitions, wanted.ids)
            _check_consequence(planned, allow_data_loss=wanted.allow_data_loss)
            snapshot = next_snapshot(
                latest,
                wanted.definitions,
                applied_at_ns=self._clock.now_ns(),
                about=wanted.about,
                folder_hash=wanted.folder_hash or self.folder_hash_of(latest),
                ids=wanted.ids,
            )
            try:
                self._check(snapshot)
            except SetupError as refusal:
                raise InvalidRequest("NAMESPACES_INVALID", "files", refusal.message) from refusal
            if snapshot is not latest:
                if not await self._store.put(snapshot):
                    latest = await self._store.latest() or EMPTY
                    return await self._own_or_conflict(latest, wanted, expected_version)
                _log_change(snapshot, planned)
            self.follower.take(snapshot)
            return snapshot, planned

    async def rollback(
        self, version: int, *, expected_version: int, about: About, allow_data_loss: bool
    ) -> tuple[Snapshot, Plan]:
        """Makes the next version equal to an earlier one; see `apply`."""
        earlier = await self.version(version)
        wanted = Wanted(
            definitions=earlier.definitions,
            about=replace(about, origin=Origin.ROLLED_BACK, restores=version),
            allow_data_loss=allow_data_loss,
            ids={name: each.id for name, each in earlier.namespaces.items()},
        )
        return await self.apply(wanted, expected_version=expected_version)

    async def cutover(self, name: str, *, expected_version: int, about: About) -> Snapshot:
        """Ends a shadow phase: the namespace gets the strategy of its shadow; see `apply`."""
        expected = await self.version(expected_version)
        namespace = expected.namespaces.get(name)
        if namespace is None:
            raise NamespaceUnknown(f"There is no namespace {name}: ListNamespaces tells which are.")
        if namespace.shadow is None:
            raise ShadowOff(
                f"Namespace {name} is in no shadow phase: apply it with 'shadow: eventual' first."
            )
        definitions = [
            replace(each, strategy=namespace.shadow, shadow=None, dedupe_ttl_ms=None)
            if each.name == name
            else each
            for each in expected.definitions
        ]
        wanted = Wanted(
            definitions=definitions,
            about=replace(about, origin=Origin.CUT_OVER),
            # Counts from before the phase stay behind: that is what a cutover means.
            allow_data_loss=True,
        )
        snapshot, _ = await self.apply(wanted, expected_version=expected_version)
        return snapshot

    async def version(self, version: int) -> Snapshot:
        """Any version; 0 is the live one."""
        if version in (0, self.current.version):
            return self.current
        snapshot = await self._store.get(version)
        if snapshot is None:
            raise VersionUnknown(
                f"There is no version {version} of the namespaces: {self.current.version} is live."
            )
        return snapshot

    async def versions(self, *, before: int | None, limit: int) -> list[VersionInfo]:
        return await self._store.versions(before=before, limit=limit)

    async def after(self, version: int) -> Snapshot:
        """The live version once it is later than this one; those in between are missed."""
        while self.current.version <= version:
            await self._changed.wait()
        return self.current

    def folder_hash_of(self, latest: Snapshot) -> str:
        """What the watched folder held when it was last dealt with: here, or, if the latest version
        is news, before a restart or by another control plane."""
        if latest.version > self.settled.version:
            return latest.folder_hash
        return self.settled.folder_hash

    def _check(self, snapshot: Snapshot) -> None:
        for check in self._checks:
            check(snapshot)

    def _switch(self, snapshot: Snapshot) -> None:
        self.current = snapshot
        for follow in self._followers:
            follow(snapshot)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _own_or_conflict(
        self, latest: Snapshot, wanted: Wanted, expected_version: int
    ) -> tuple[Snapshot, Plan]:
        """The latest, if an earlier attempt, whose answer was lost, stored just this."""
        about = replace(latest.about, created=0, changed=0, deleted=0)
        if (
            latest.version != expected_version + 1
            or latest.about.origin is Origin.FOLDER
            or about != wanted.about
            or content_hash(latest.definitions) != content_hash(wanted.definitions)
        ):
            raise _conflict(latest, expected_version)
        self.follower.take(latest)
        before = await self._store.get(expected_version) or EMPTY
        return latest, plan(before, wanted.definitions, wanted.ids)


def about_of(origin: Origin, *, author: str, reason: str) -> About:
    """Raises InvalidRequest where nobody or no reason is named."""
    check_note(author=author, reason=reason)
    return About(origin=origin, author=author, reason=reason)


def how(about: About) -> str:
    """`applied by oncall (reason)`."""
    if about.origin is Origin.FOLDER:
        return "made by a change in the watched folder"
    done = {
        Origin.APPLIED: "applied",
        Origin.ROLLED_BACK: f"rolled back to version {about.restores}",
        Origin.CUT_OVER: "cut over",
    }
    return f"{done[about.origin]} by {about.author} ({about.reason})"


def _conflict(latest: Snapshot, expected_version: int) -> VersionConflict:
    if latest.version < expected_version:
        return VersionConflict(
            f"Version {latest.version} is the latest, and {expected_version} was expected: is this "
            "the right server? Nothing was changed."
        )
    return VersionConflict(
        f"Version {latest.version} is live by now, and {expected_version} was expected: it was "
        f"{how(latest.about)}. Nothing was changed: plan again, then decide."
    )


def _check_consequence(planned: Plan, *, allow_data_loss: bool) -> None:
    match planned.consequence:
        case Consequence.IMPOSSIBLE:
            raise ChangeImpossible(
                f"Not on live namespaces: {_explained(planned, Consequence.IMPOSSIBLE)}. "
                "Nothing was changed."
            )
        case Consequence.DATA_LOSS if not allow_data_loss:
            raise DataLossRefused(
                f"This would lose data: {_explained(planned, Consequence.DATA_LOSS)}. Nothing was "
                "changed: allow it with allow_data_loss (--allow-data-loss), or leave it out."
            )


def _explained(planned: Plan, consequence: Consequence) -> str:
    explanations = [
        f"{change.namespace}: {explanation}"
        for change in planned.changes
        for explanation in _explanations(change, consequence)
    ]
    more = len(explanations) - CHANGES_SHOWN_MAX
    shown = explanations[:CHANGES_SHOWN_MAX] + ([f"and {more} more"] if more > 0 else [])
    return "; ".join(each.rstrip(".") for each in shown)


def _explanations(change: NamespaceChange, consequence: Consequence) -> list[str]:
    own = [change.explanation] if change.own_consequence is consequence else []
    return own + [
        f"{each.field}: {each.explanation}" + (f" ({each.hint})" if each.hint else "")
        for each in change.fields
        if each.consequence is consequence
    ]


def _log_change(snapshot: Snapshot, planned: Plan) -> None:
    def names(*actions: Action) -> list[str]:
        return [each.namespace for each in planned.changes if each.action in actions]

    _log.info(
        "namespaces applied",
        action="namespaces_applied",
        version=snapshot.version,
        origin=str(snapshot.about.origin),
        author=snapshot.about.author,
        reason=snapshot.about.reason,
        namespaces=len(snapshot.namespaces),
        created=names(Action.CREATE, Action.RESTORE),
        changed=names(Action.CHANGE),
        deleted=names(Action.DELETE),
    )
