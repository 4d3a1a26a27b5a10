"""A folder that is watched: files that change while somebody reads them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from counter.namespaces import (
    Strategy,
)
from counter.storage.memory.namespace_store import MemoryNamespaceStore
from tests.unit.control_plane.folders import (
    DEADLINE_S,
    FailingStore,
    Watched,
    make,
    until,
    write,
)


@asynccontextmanager
async def watching(watched: Watched) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(watched.folder.watch(stop, poll_ms=500, settle_ms=50))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(DEADLINE_S):
            await task


class TestWatch:
    async def test_change_is_picked_up(self, watched: Watched, tmp_path: Path) -> None:
        async with watching(watched):
            write(tmp_path, "c")
            await until(lambda: "c" in watched.current.namespaces)
            write(tmp_path, "c", "max_delta: 7\n")
            await until(lambda: watched.current.namespaces["c"].max_delta == 7)

    async def test_write_and_rename(self, watched: Watched, tmp_path: Path) -> None:
        async with watching(watched):
            temporary = tmp_path / ".a.yaml.tmp"
            temporary.write_text("namespace: a\nstrategy: accurate\n")
            temporary.rename(tmp_path / "a.yaml")
            await until(lambda: watched.current.namespaces["a"].strategy is Strategy.ACCURATE)
        assert watched.current.version == 2

    async def test_change_before_the_watch_began(self, watched: Watched, tmp_path: Path) -> None:
        write(tmp_path, "c")
        async with watching(watched):
            await until(lambda: "c" in watched.current.namespaces)

    async def test_half_written_file_keeps_the_old_snapshot_until_it_is_whole(
        self, watched: Watched, tmp_path: Path
    ) -> None:
        async with watching(watched):
            with (tmp_path / "a.yaml").open("w") as stream:
                stream.write("namespace: a\nstrat")
                stream.flush()
                await until(lambda: bool(watched.mistakes))
                assert watched.current.version == 1
                stream.write("egy: accurate\n")
            await until(lambda: watched.current.version == 2)
            assert watched.mistakes == ()
        assert watched.current.namespaces["a"].strategy is Strategy.ACCURATE

    async def test_directory_that_is_moved_away_and_put_back(
        self, watched: Watched, tmp_path: Path, store: MemoryNamespaceStore
    ) -> None:
        directory = tmp_path / "namespaces"
        directory.mkdir()
        write(directory, "a")
        write(directory, "b")
        moved = make(store, directory)
        await moved.start()
        async with watching(moved):
            directory.rename(tmp_path / "away")
            await until(lambda: bool(moved.mistakes))
            assert set(moved.current.namespaces) == {"a", "b"}
            directory.mkdir()
            write(directory, "a")
            write(directory, "b")
            await until(lambda: not moved.mistakes)
            write(directory, "d")
            await until(lambda: "d" in moved.current.namespaces)

    async def test_without_file_notices_it_polls(
        self, watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def no_notices(*_: object, **__: object) -> AsyncIterator[None]:
            raise OSError("inotify watch limit reached")
            yield

        monkeypatch.setattr("control_plane.watch.awatch", no_notices)
        with capture_logs() as logs:
            async with watching(watched):
                await until(lambda: bool(logs))
                write(tmp_path, "c")
                await until(lambda: "c" in watched.current.namespaces)
        assert [each["action"] for each in logs] == ["namespaces_polled", "namespaces_applied"]

    async def test_store_that_is_down_is_tried_again(
        self, store: MemoryNamespaceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("control_plane.folder.RETRY_MS", 20)
        write(tmp_path, "a")
        failing = FailingStore(store)
        watched = make(failing, tmp_path)
        await watched.start()
        failing.is_down = True
        write(tmp_path, "c")
        with capture_logs() as logs:
            async with watching(watched):
                await until(lambda: bool(logs))
                failing.is_down = False
                await until(lambda: "c" in watched.current.namespaces)
        assert logs[0]["action"] == "namespaces_not_stored"

    async def test_stop_set_by_others_is_left_alone_on_cancel(self, watched: Watched) -> None:
        stop = asyncio.Event()
        task = asyncio.create_task(watched.folder.watch(stop, poll_ms=200, settle_ms=10))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.3)
        assert not stop.is_set()
