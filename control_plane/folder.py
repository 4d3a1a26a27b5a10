"""A folder of namespace files that is watched: each change of it becomes the next version.

It is applied when it *changes*, not whenever it differs from what is live: after a rollback, a
cutover or an apply by command the folder differs, on purpose, until somebody edits it again. To
tell the two apart across restarts each version keeps a hash of what the folder held when it was
made.

A watched folder cannot ask anybody. So it may not lose data: such a change is a mistake that says
by which command it can be made.
"""

import asyncio
import contextlib
import os
from pathlib import Path

import structlog

from control_plane.files.loader import Loaded, load_directory
from control_plane.files.mistakes import START, Mistake, mistake
from control_plane.planning.check import data_loss_mistakes, impossible_changes, report
from control_plane.planning.plan import plan
from control_plane.snapshots import Settled, Snapshots, Wanted, how
from control_plane.watch import POLL_MS, SETTLE_MS, changes
from counter.errors import (
    InvalidRequest,
    SetupError,
    StoreUnavailable,
    TallyError,
    VersionConflict,
)
from counter.metrics import NAMESPACE_MISTAKES
from counter.namespaces import EMPTY, About, Origin, content_hash
from counter.storage.ports import NamespaceStore

APPLY_ATTEMPTS_MAX = 5
RETRY_MS = 1_000

_log = structlog.get_logger()


class Folder:
    # What is wrong with the folder as it is now; empty when it was applied.
    mistakes: tuple[Mistake, ...]

    def __init__(
        self, path: str | os.PathLike[str], *, store: NamespaceStore, snapshots: Snapshots
    ) -> None:
        self.path = Path(path)
        self.mistakes = ()
        self._store = store
        self._snapshots = snapshots
        self._reading = asyncio.Lock()
        self._told_version = 0
        NAMESPACE_MISTAKES.at().watch(self, lambda folder: len(folder.mistakes))

    async def start(self) -> None:
        """Makes the folder's namespaces current, or the latest ones if it has not changed.

        With a new store a bad folder raises SetupError with all mistakes. Later a bad folder does
        no harm: the last good version is served from the store, and the mistakes are logged.
        """
        stored = await self._store.latest()
        mistakes = await self._load_and_apply()
        if not mistakes:
            return
        if stored is None:
            raise SetupError(
                f"The namespaces in {self.path} cannot be used, and there is no earlier version "
                f"to serve. Correct this and start again:\n{report(mistakes)}"
            )
        try:
            await self._snapshots.follower.look()
        except (SetupError, InvalidRequest) as refusal:
            raise SetupError(
                f"Version {stored.version} of the namespaces cannot be served: {refusal.message}\n"
                f"Nor can those in {self.path}. Correct this and start again:\n{report(mistakes)}"
            ) from refusal
        self._note(mistakes)
        _log.warning(
            "the folder has mistakes: serving the last good version",
            action="namespaces_kept",
            version=self._snapshots.current.version,
            mistakes=len(mistakes),
        )

    async def reload(self) -> tuple[Mistake, ...]:
        """Applies the folder as a new version; if it is bad, changes nothing and says why.

        Raises StoreUnavailable when the store cannot take the new version; reloading again is
        safe.
        """
        mistakes = await self._load_and_apply()
        self._note(mistakes)
        return mistakes

    async def watch(
        self, stop: asyncio.Event, *, poll_ms: int = POLL_MS, settle_ms: int = SETTLE_MS
    ) -> None:
        """Reloads after every change in the folder, until `stop` is set."""
        settled = changes(self.path, stop, poll_ms=poll_ms, settle_ms=settle_ms)
        async with contextlib.aclosing(settled):
            async for _ in settled:
                await self._reload_until_stored(stop)

    async def settle(self) -> None:
        """Looks for ever whether a new version, made by command, settles what was wrong here."""
        while True:
            await self._snapshots.after(self._snapshots.current.version)
            if self.mistakes:
                with contextlib.suppress(TallyError):  # the mistakes stay until the next look
                    await self.reload()

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
        async with self._reading:  # or what was read first could be applied last
            loaded = await asyncio.to_thread(load_directory, self.path)
            return loaded.mistakes or await self._apply(loaded)

    async def _apply(self, loaded: Loaded) -> tuple[Mistake, ...]:
        held = content_hash(loaded.definitions)
        for _ in range(APPLY_ATTEMPTS_MAX):
            latest = await self._store.latest() or EMPTY
            if held == self._snapshots.folder_hash_of(latest):
                await self._snapshots.follower.look()
                self._settle(held)
                self._tell_if_left(held)
                return ()
            planned = plan(latest, loaded.definitions)
            mistakes = impossible_changes(latest, loaded) or data_loss_mistakes(planned, loaded)
            if mistakes:
                return mistakes
            wanted = Wanted(
                definitions=loaded.definitions,
                about=About(origin=Origin.FOLDER),
                folder_hash=held,
            )
            try:
                await self._snapshots.apply(wanted, expected_version=latest.version)
            except VersionConflict:
                continue  # another process stored this version first: start again from its snapshot
            except InvalidRequest as refusal:
                return (_refused(loaded, refusal),)
            self._settle(held)
            return ()
        raise StoreUnavailable(
            f"The namespaces in {self.path} were not applied: {APPLY_ATTEMPTS_MAX} times another "
            "process stored a new version first. Reload again.",
            retry_after_ms=RETRY_MS,
        )

    def _settle(self, held: str) -> None:
        self._snapshots.settled = Settled(held, self._snapshots.current.version)

    def _tell_if_left(self, held: str) -> None:
        current = self._snapshots.current
        if current.version != self._told_version and content_hash(current.definitions) != held:
            self._told_version = current.version
            _log.warning(
                "the folder is not what is live: it is applied again when it changes",
                action="folder_left",
                version=current.version,
                live=how(current.about),
            )

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


def _refused(loaded: Loaded, refusal: TallyError) -> Mistake:
    hint = "change the namespace, or give the server what it needs and start it again"
    return mistake(loaded.origin, START, refusal.message, hint)
