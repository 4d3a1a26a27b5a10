"""A watched folder, and stores that lose races and answers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from control_plane.files.mistakes import Mistake
from control_plane.folder import Folder
from control_plane.snapshots import Snapshots, Subscriber, Wanted
from counter.clock import ManualClock
from counter.errors import StoreUnavailable
from counter.namespaces import (
    About,
    Definition,
    Origin,
    Snapshot,
    Strategy,
    VersionInfo,
)
from counter.storage.memory.namespace_store import MemoryNamespaceStore
from counter.storage.ports import NamespaceStore

DEADLINE_S = 15


def write(directory: Path, name: str, rest: str = "", *, strategy: str = "eventual") -> None:
    (directory / f"{name}.yaml").write_text(f"namespace: {name}\nstrategy: {strategy}\n{rest}")


class Watched:
    """A folder and the versions that it makes, as one process has them."""

    def __init__(self, store: NamespaceStore, directory: Path) -> None:
        self.snapshots = Snapshots(store=store, clock=ManualClock())
        self.folder = Folder(directory, store=store, snapshots=self.snapshots)

    @property
    def current(self) -> Snapshot:
        return self.snapshots.current

    @property
    def mistakes(self) -> tuple[Mistake, ...]:
        return self.folder.mistakes

    def subscribe(self, check: Subscriber, *, follow: Subscriber | None = None) -> None:
        self.snapshots.subscribe(check, follow=follow)

    async def start(self) -> None:
        await self.folder.start()

    async def reload(self) -> tuple[Mistake, ...]:
        return await self.folder.reload()

    async def apply(self, *names: str) -> Snapshot:
        """By command, data loss allowed."""
        wanted = Wanted(
            definitions=[Definition(name=each, strategy=Strategy.EVENTUAL) for each in names],
            about=About(origin=Origin.APPLIED, author="oncall", reason="test"),
            allow_data_loss=True,
        )
        applied, _ = await self.snapshots.apply(wanted, expected_version=self.current.version)
        return applied


def make(store: NamespaceStore, directory: Path) -> Watched:
    return Watched(store, directory)


class RacedStore:
    """Another process stores its version just before each of the first puts."""

    def __init__(self, store: MemoryNamespaceStore, winners: list[Snapshot]) -> None:
        self._store = store
        self._winners = winners

    async def latest(self) -> Snapshot | None:
        return await self._store.latest()

    async def get(self, version: int) -> Snapshot | None:
        return await self._store.get(version)

    async def versions(self, *, before: int | None, limit: int) -> list[VersionInfo]:
        return await self._store.versions(before=before, limit=limit)

    async def put(self, snapshot: Snapshot) -> bool:
        if self._winners:
            assert await self._store.put(self._winners.pop(0))
        return await self._store.put(snapshot)


class FailingStore:
    def __init__(self, store: MemoryNamespaceStore) -> None:
        self._store = store
        self.fails_after_write = False
        self.is_down = False

    async def latest(self) -> Snapshot | None:
        if self.is_down:
            raise StoreUnavailable("the store is down")
        return await self._store.latest()

    async def get(self, version: int) -> Snapshot | None:
        return await self._store.get(version)

    async def versions(self, *, before: int | None, limit: int) -> list[VersionInfo]:
        return await self._store.versions(before=before, limit=limit)

    async def put(self, snapshot: Snapshot) -> bool:
        stored = await self._store.put(snapshot)
        if self.fails_after_write:
            raise StoreUnavailable("the store did not answer in time")
        return stored


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - files and threads set no event
            await asyncio.sleep(0.02)
