"""The live snapshot of a process: where it comes from, and how it changes while running (I10)."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from control_plane.check import check_against, report
from control_plane.loader import Loaded, load_directory
from control_plane.mistakes import START, Mistake, mistake
from control_plane.watch import POLL_MS, SETTLE_MS, changes
from counter.clock import Clock
from counter.errors import InvalidRequest, SetupError, StoreUnavailable, TallyError
from counter.metrics import NAMESPACE_MISTAKES, NAMESPACES, NAMESPACES_VERSION
from counter.namespaces import EMPTY, Snapshot, next_snapshot
from counter.storage.ports import NamespaceStore

APPLY_ATTEMPTS_MAX = 5
RETRY_MS = 1_000

Subscriber = Callable[[Snapshot], None]

_log = structlog.get_logger()


class Snapshots:
    """Holds the live snapshot, and replaces it by what the directory says when that is valid.

    The store is the truth: a snapshot is stored first and becomes `current` after that, so that
    ids survive a restart and no two processes give the same version to different namespaces.
    """

    # Read on every request: a plain attribute, replaced whole and never changed in place.
    current: Snapshot
    # What is wrong with the directory as it is now; empty when `current` is what it says.
    mistakes: tuple[Mistake, ...]

    def __init__(
        self, *, store: NamespaceStore, directory: str | os.PathLike[str], clock: Clock
    ) -> None:
        self.current = EMPTY
        self.mistakes = ()
        self.directory = Path(directory)
        self._store = store
        self._clock = clock
        self._checks: list[Subscriber] = []
        self._followers: list[Subscriber] = []
        self._changing = asyncio.Lock()
        NAMESPACES_VERSION.at().watch(self, lambda snapshots: snapshots.current.version)
        NAMESPACES.at().watch(self, lambda snapshots: len(snapshots.current.namespaces))
        NAMESPACE_MISTAKES.at().watch(self, lambda snapshots: len(snapshots.mistakes))

    def subscribe(self, check: Subscriber, *, follow: Subscriber | None = None) -> None:
        """Has `check` called before a snapshot is stored, and `follow` when it becomes current.

        A check that raises SetupError or InvalidRequest refuses the snapshot: nothing changes, and
        what it says is among the mistakes. A check must not switch over: until the snapshot is
        stored its new ids may still be given to other namespaces. `follow` may, and must not
        raise; no other task runs between it and the change of `current`. Subscribe before `start`.
        """
        self._checks.append(check)
        if follow is not None:
            self._followers.append(follow)

    async def start(self) -> None:
        """Makes the first snapshot current.

        With a new store a bad directory raises SetupError with all mistakes. Later a bad directory
        does no harm: the last good snapshot is served from the store, and the mistakes are logged.
        """
        stored = await self._store.latest()
        async with self._changing:
            mistakes = await self._load_and_apply()
        if not mistakes:
            return
        if stored is None:
            raise SetupError(
                f"The namespaces in {self.directory} cannot be used, and there is no earlier "
                f"version to serve. Correct this and start again:\n{report(mistakes)}"
            )
        try:
            self._run_checks(stored)
        except (SetupError, InvalidRequest) as refusal:
            raise SetupError(
                f"Version {stored.version} of the namespaces cannot be served: {refusal.message}\n"
                f"Nor can those in {self.directory}. Correct this and start again:\n"
                f"{report(mistakes)}"
            ) from refusal
        self._switch(stored)
        self._note(mistakes)
        _log.warning(
            "the directory has mistakes: serving the last good version",
            action="namespaces_kept",
            version=stored.version,
            mistakes=len(mistakes),
        )

    async def reload(self) -> tuple[Mistake, ...]:
        """Applies the directory as a new version; if it is bad, changes nothing and says why.

        Raises StoreUnavailable when the store cannot take the new version; `current` is then what
        it was, and reloading again is safe.
        """
        async with self._changing:
            mistakes = await self._load_and_apply()
            self._note(mistakes)
            return mistakes

    async def watch(
        self, stop: asyncio.Event, *, poll_ms: int = POLL_MS, settle_ms: int = SETTLE_MS
    ) -> None:
        """Reloads after every change in the directory, until `stop` is set."""
        settled = changes(self.directory, stop, poll_ms=poll_ms, settle_ms=settle_ms)
        async with contextlib.aclosing(settled):
            async for _ in settled:
                await self._reload_until_stored(stop)

    async def _reload_until_stored(self, stop: asyncio.Event) -> None:
        # The files will not change again just because the store was away: only we can try again.
        while not stop.is_set():
            try:
                await self.reload()
                return
            except TallyError as error:
                _log.error(
                    "namespaces not applied: trying again",
                    action="namespaces_not_stored",
                    reason=error.reason,
                    cause=error.message,
                    retry_ms=RETRY_MS,
                )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), RETRY_MS / 1_000)

    async def _load_and_apply(self) -> tuple[Mistake, ...]:
        loaded = await asyncio.to_thread(load_directory, self.directory)
        return loaded.mistakes or await self._apply(loaded)

    async def _apply(self, loaded: Loaded) -> tuple[Mistake, ...]:
        for _ in range(APPLY_ATTEMPTS_MAX):
            latest = await self._store.latest() or EMPTY
            if mistakes := check_against(latest, loaded):
                return mistakes
            snapshot = next_snapshot(latest, loaded.definitions, applied_at_ns=self._clock.now_ns())
            if snapshot.version == self.current.version:
                return ()
            try:
                self._run_checks(snapshot)
            except (SetupError, InvalidRequest) as refusal:
                return (_refused(loaded, refusal),)
            if snapshot is latest or await self._store.put(snapshot):
                self._switch(snapshot)
                _log_change(latest, snapshot)
                return ()
            # Another process stored this version first: start again from its snapshot.
        raise StoreUnavailable(
            f"The namespaces in {self.directory} were not applied: {APPLY_ATTEMPTS_MAX} times "
            "another process stored a new version first. Reload again.",
            retry_after_ms=RETRY_MS,
        )

    def _run_checks(self, snapshot: Snapshot) -> None:
        for check in self._checks:
            check(snapshot)

    def _switch(self, snapshot: Snapshot) -> None:
        self.current = snapshot
        for follow in self._followers:
            follow(snapshot)

    def _note(self, mistakes: tuple[Mistake, ...]) -> None:
        """Keeps the mistakes for the status, and logs those that were not there before."""
        for each in mistakes:
            if each not in self.mistakes:
                _log.error(
                    "mistake in namespaces",
                    action="namespace_mistake",
                    mistake=str(each),
                )
        if self.mistakes and not mistakes:
            _log.info("namespaces are valid again", action="namespaces_valid")
        self.mistakes = mistakes


def _log_change(latest: Snapshot, snapshot: Snapshot) -> None:
    before, now = latest.namespaces, snapshot.namespaces
    _log.info(
        "namespaces applied",
        action="namespaces_applied",
        version=snapshot.version,
        namespaces=len(now),
        created=sorted(now.keys() - before.keys()),
        changed=sorted(each for each in now.keys() & before.keys() if now[each] != before[each]),
        deleted=sorted(before.keys() - now.keys()),
    )


def _refused(loaded: Loaded, refusal: TallyError) -> Mistake:
    hint = "change the namespace, or give the server what it needs and start it again"
    return mistake(loaded.origin, START, refusal.message, hint)
