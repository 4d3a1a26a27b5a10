"""A folder of namespaces: what becomes of it at a start, after an edit, after a command."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from control_plane.files.loader import Loaded, load_directory
from control_plane.folder import APPLY_ATTEMPTS_MAX
from counter.clock import ManualClock
from counter.errors import SetupError, StoreUnavailable
from counter.namespaces import (
    EMPTY,
    About,
    Definition,
    Origin,
    Snapshot,
    Strategy,
    next_snapshot,
)
from counter.storage.memory.namespace_store import MemoryNamespaceStore
from tests.unit.control_plane.folders import (
    DEADLINE_S,
    FailingStore,
    RacedStore,
    Watched,
    make,
    until,
    write,
)


class TestStart:
    async def test_first_start_gives_ids(self, watched: Watched) -> None:
        assert watched.current.version == 1
        assert watched.current.applied_at_ns == ManualClock().now_ns()
        assert {each.name: each.id for each in watched.current.namespaces.values()} == {
            "a": 1,
            "b": 2,
        }

    async def test_first_start_on_a_bad_directory_lists_all_mistakes(
        self, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        write(tmp_path, "a", "max_delta: 0\n")
        write(tmp_path, "b", strategy="Eventual")
        with capture_logs() as logs, pytest.raises(SetupError) as raised:
            await make(store, tmp_path).start()
        assert logs == [], "the error says it all"
        assert raised.value.message.splitlines()[1:] == [
            f"{tmp_path}/a.yaml:3:12: max_delta: '0' is out of range "
            "(write a number from 1 to 9007199254740992)",
            f"{tmp_path}/b.yaml:2:11: strategy: 'Eventual' is not a strategy "
            "(did you mean eventual?)",
        ]
        assert await store.latest() is None

    async def test_later_start_on_a_bad_directory_serves_the_last_good_version(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        write(tmp_path, "b", "max_delta: 0\n")
        again = make(store, tmp_path)
        followed: list[Snapshot] = []
        again.subscribe(lambda _: None, follow=followed.append)
        with capture_logs() as logs:
            await again.start()
        assert followed == [again.current]
        assert again.current == watched.current
        assert [each.field for each in again.mistakes] == ["max_delta"]
        assert [each["action"] for each in logs] == [
            "namespaces_taken",
            "namespace_mistake",
            "namespaces_kept",
        ]

    async def test_start_without_the_directory_serves_the_last_good_version(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        again = make(store, tmp_path / "nowhere")
        await again.start()
        assert again.current == watched.current
        assert again.mistakes

    async def test_restart_without_a_change_is_no_new_version(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        again = make(store, tmp_path)
        await again.start()
        assert again.current == watched.current

    async def test_restart_with_a_change_keeps_ids(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        write(tmp_path, "aa")
        again = make(store, tmp_path)
        await again.start()
        assert again.current.version == 2
        assert {each.name: each.id for each in again.current.namespaces.values()} == {
            "a": 1,
            "aa": 3,
            "b": 2,
        }

    async def test_stored_version_that_is_refused_does_not_matter_once_the_directory_is_good(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        def refuse_b(snapshot: Snapshot) -> None:
            if snapshot.namespaces["b"].max_delta > 5:
                raise SetupError("b needs a cache")

        refusing = make(store, tmp_path)
        refusing.subscribe(refuse_b)
        with pytest.raises(SetupError, match="b needs a cache"):
            await refusing.start()
        write(tmp_path, "b", "max_delta: 5\n")
        await refusing.start()
        assert refusing.current.namespaces["b"].max_delta == 5


class TestReload:
    async def test_version_goes_up_only_on_a_change(self, watched: Watched, tmp_path: Path) -> None:
        before = watched.current
        (tmp_path / "a.yaml").write_text("# a comment\nstrategy: eventual\nnamespace: a\n")
        assert await watched.reload() == ()
        assert watched.current is before
        write(tmp_path, "a", "max_delta: 7\n")
        assert await watched.reload() == ()
        assert watched.current.version == 2
        assert watched.current.namespaces["a"].max_delta == 7
        assert watched.current.namespaces["a"].id == before.namespaces["a"].id
        assert before.namespaces["a"].max_delta == 1_000_000

    async def test_a_deleted_file_deletes_nothing_and_says_how(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        before = watched.current
        (tmp_path / "b.yaml").unlink()
        (only,) = await watched.reload()
        assert (only.path, only.line) == (str(tmp_path), 1)
        assert "b" in only.message
        assert "tally apply" in only.hint
        assert "--allow-data-loss" in only.hint
        assert await store.latest() == watched.current == before

    async def test_deleted_by_command_the_folder_is_right_again(
        self, watched: Watched, tmp_path: Path
    ) -> None:
        (tmp_path / "b.yaml").unlink()
        assert await watched.reload()
        following = asyncio.create_task(watched.folder.settle())
        await asyncio.sleep(0)
        await watched.apply("a")
        await until(lambda: not watched.mistakes)
        following.cancel()
        assert watched.current.version == 2
        assert [each.name for each in watched.current.retired] == ["b"]

    async def test_created_again_is_another_id(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        (tmp_path / "b.yaml").unlink()
        await watched.apply("a")
        await watched.reload()
        write(tmp_path, "b")
        with capture_logs() as logs:
            await watched.reload()
        assert watched.current.namespaces["b"].id == 3
        assert await store.latest() == watched.current
        assert logs[-1]["action"] == "namespaces_applied"
        assert (logs[-1]["created"], logs[-1]["changed"], logs[-1]["deleted"]) == (["b"], [], [])

    @pytest.mark.parametrize(
        "spoil",
        [
            lambda directory: write(directory, "b", "max_delta: 0\n"),
            lambda directory: (directory / "b.yaml").write_text("namespace: b\nstrat"),
            lambda directory: (directory / "b.yaml").write_text(""),
            lambda directory: write(directory, "b", "cardinality: low\n"),
            lambda directory: write(directory, "b", strategy="best_effort"),
            lambda directory: [each.unlink() for each in directory.iterdir()],
        ],
        ids=["range", "half", "empty", "cardinality", "strategy", "no-files"],
    )
    async def test_bad_directory_changes_nothing(
        self,
        watched: Watched,
        store: MemoryNamespaceStore,
        tmp_path: Path,
        spoil: Callable[[Path], object],
    ) -> None:
        before = watched.current
        write(tmp_path, "a", "max_delta: 7\n")  # good in itself, but not applied alone
        spoil(tmp_path)
        mistakes = await watched.reload()
        assert mistakes
        assert watched.mistakes == mistakes
        assert watched.current is before
        assert await store.latest() is before

    async def test_what_was_decided_by_command_stays_until_the_folder_changes(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        """A rollback is not undone by a restart, nor by a folder that is saved unchanged."""
        write(tmp_path, "c")
        await watched.reload()
        about = About(origin=Origin.ROLLED_BACK, author="oncall", reason="c was too early")
        await watched.snapshots.rollback(1, expected_version=2, about=about, allow_data_loss=True)
        assert set(watched.current.namespaces) == {"a", "b"}
        write(tmp_path, "c")
        assert await watched.reload() == ()
        again = make(store, tmp_path)
        with capture_logs() as logs:
            await again.start()
        assert (again.current.version, set(again.current.namespaces)) == (3, {"a", "b"})
        [left] = [each for each in logs if each["action"] == "folder_left"]
        assert left["live"] == "rolled back to version 1 by oncall (c was too early)"
        write(tmp_path, "d")
        assert await again.reload() == ()
        assert set(again.current.namespaces) == {"a", "b", "c", "d"}

    async def test_of_two_control_planes_on_a_folder_the_slower_one_undoes_nothing(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        slower = make(store, tmp_path)
        await slower.start()
        write(tmp_path, "c")
        await watched.reload()
        about = About(origin=Origin.ROLLED_BACK, author="oncall", reason="c was too early")
        await watched.snapshots.rollback(1, expected_version=2, about=about, allow_data_loss=True)
        assert await slower.reload() == ()
        assert slower.current == watched.current
        assert set(slower.current.namespaces) == {"a", "b"}

    async def test_a_command_through_the_slower_control_plane_stays(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        slower = make(store, tmp_path)
        await slower.start()
        write(tmp_path, "c")
        await watched.reload()
        await slower.snapshots.follower.look()
        applied = await slower.apply("a", "b", "c", "d")
        assert await slower.reload() == ()
        assert await store.latest() == slower.current == applied

    async def test_a_command_does_not_settle_what_is_wrong_in_the_folder(
        self, watched: Watched, tmp_path: Path
    ) -> None:
        (tmp_path / "b.yaml").unlink()
        before = await watched.reload()
        await watched.apply("a", "b", "d")
        after = await watched.reload()
        assert len(before) == 1
        assert [each for each in after if "deletes the namespace b" in each.message]

    async def test_an_edit_that_a_command_came_before_is_applied(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        write(tmp_path, "c")
        winner = next_snapshot(
            watched.current,
            [*watched.current.definitions, Definition(name="c", strategy=Strategy.ACCURATE)],
            applied_at_ns=5,
        )
        racing = make(RacedStore(store, [winner]), tmp_path)
        await racing.snapshots.follower.look()
        assert await racing.reload() == ()
        assert racing.current.version == 3
        assert racing.current.namespaces["c"].strategy is Strategy.EVENTUAL

    async def test_what_was_read_later_is_applied_later(
        self, watched: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reading, go_on = threading.Event(), threading.Event()

        def slow(path: Path) -> Loaded:
            loaded = load_directory(path)
            if not reading.is_set():
                reading.set()
                go_on.wait(DEADLINE_S)
            return loaded

        monkeypatch.setattr("control_plane.folder.load_directory", slow)
        write(tmp_path, "a", "max_delta: 8\n")
        first = asyncio.create_task(watched.reload())
        await until(reading.is_set)
        write(tmp_path, "a", "max_delta: 9\n")
        second = asyncio.create_task(watched.reload())
        await asyncio.sleep(0.1)
        go_on.set()
        await asyncio.gather(first, second)
        assert watched.current.namespaces["a"].max_delta == 9

    async def test_a_folder_that_went_back_while_nobody_watched_is_applied(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        write(tmp_path, "a", "max_delta: 7\n")
        await watched.reload()
        write(tmp_path, "a")
        again = make(store, tmp_path)
        await again.start()
        assert again.current.version == 3
        assert again.current.namespaces == (await store.get(1)).namespaces  # type: ignore[union-attr]

    async def test_each_mistake_is_logged_once(self, watched: Watched, tmp_path: Path) -> None:
        with capture_logs() as logs:
            write(tmp_path, "b", "max_delta: 0\n")
            await watched.reload()
            await watched.reload()
            write(tmp_path, "a", "max_delta: 0\n")
            await watched.reload()
            write(tmp_path, "a")
            write(tmp_path, "b")
            await watched.reload()
        assert [each["action"] for each in logs] == [
            "namespace_mistake",
            "namespace_mistake",
            "namespaces_valid",
        ]
        assert logs[0]["mistake"].startswith(f"{tmp_path}/b.yaml:3:12: max_delta: ")
        assert logs[1]["mistake"].startswith(f"{tmp_path}/a.yaml:3:12: max_delta: ")
        assert watched.mistakes == ()

    async def test_check_sees_a_snapshot_first_and_may_refuse_it(
        self, watched: Watched, store: MemoryNamespaceStore, tmp_path: Path
    ) -> None:
        before = watched.current
        seen: list[int] = []

        def refuse(snapshot: Snapshot) -> None:
            seen.append(snapshot.version)
            assert watched.current is before
            raise SetupError("c needs a cache that this server does not have")

        followed: list[Snapshot] = []
        watched.subscribe(refuse, follow=followed.append)
        write(tmp_path, "c")
        (only,) = await watched.reload()
        assert only.message == "c needs a cache that this server does not have"
        assert (seen, followed) == ([2], [])
        assert watched.current is before
        assert await store.latest() is before

    async def test_lost_race_starts_again_from_the_winner(
        self, watched: Watched, tmp_path: Path, store: MemoryNamespaceStore
    ) -> None:
        write(tmp_path, "c")
        other = [
            Definition(name="a", strategy=Strategy.EVENTUAL, owner="somebody else"),
            Definition(name="b", strategy=Strategy.EVENTUAL),
        ]
        winner = next_snapshot(watched.current, other, applied_at_ns=5)
        raced = RacedStore(store, [winner])
        racing = make(raced, tmp_path)
        racing.snapshots.current = watched.current
        assert await racing.reload() == ()
        assert racing.current.version == 3
        assert racing.current.namespaces["c"].id == 3

    async def test_lost_race_against_a_new_namespace_does_not_delete_it(
        self, watched: Watched, tmp_path: Path, store: MemoryNamespaceStore
    ) -> None:
        write(tmp_path, "c")
        other = [
            *watched.current.definitions,
            Definition(name="d", strategy=Strategy.EVENTUAL),
        ]
        winner = next_snapshot(watched.current, other, applied_at_ns=5)
        racing = make(RacedStore(store, [winner]), tmp_path)
        (only,) = await racing.reload()
        assert "d" in only.message
        assert await store.latest() == winner

    async def test_races_are_bounded(
        self, watched: Watched, tmp_path: Path, store: MemoryNamespaceStore
    ) -> None:
        write(tmp_path, "c")
        winners: list[Snapshot] = []
        latest = watched.current
        for number in range(APPLY_ATTEMPTS_MAX):
            definitions = [
                Definition(name="a", strategy=Strategy.EVENTUAL, owner=f"team {number}"),
                Definition(name="b", strategy=Strategy.EVENTUAL),
            ]
            latest = next_snapshot(latest, definitions, applied_at_ns=5)
            winners.append(latest)
        racing = make(RacedStore(store, winners), tmp_path)
        racing.snapshots.current = watched.current
        with pytest.raises(StoreUnavailable, match="another process"):
            await racing.reload()
        assert racing.current is watched.current
        assert await racing.reload() == ()

    async def test_store_failure_changes_nothing_and_can_be_repeated(
        self, watched: Watched, tmp_path: Path, store: MemoryNamespaceStore
    ) -> None:
        failing = FailingStore(store)
        changing = make(failing, tmp_path)
        followed: list[Snapshot] = []
        changing.subscribe(lambda _: None, follow=followed.append)
        await changing.start()
        before = changing.current
        assert followed == [before]
        write(tmp_path, "c")
        failing.fails_after_write = True
        with pytest.raises(StoreUnavailable):
            await changing.reload()
        assert changing.current is before
        assert followed == [before], "nobody follows what may not be stored"
        failing.fails_after_write = False
        assert await changing.reload() == ()
        assert (changing.current.version, set(changing.current.namespaces)) == (2, {"a", "b", "c"})
        assert followed == [before, changing.current]


def test_before_the_start_nothing_is_there(tmp_path: Path) -> None:
    assert make(MemoryNamespaceStore(), tmp_path).current is EMPTY
