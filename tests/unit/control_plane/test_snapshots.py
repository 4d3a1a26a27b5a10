"""The line of versions: applied, rolled back, cut over, raced for, watched."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from control_plane.planning.plan import Action
from control_plane.snapshots import Snapshots, Wanted, about_of
from counter.clock import ManualClock
from counter.errors import (
    ChangeImpossible,
    DataLossRefused,
    InvalidRequest,
    NamespaceUnknown,
    SetupError,
    ShadowOff,
    StoreUnavailable,
    VersionConflict,
    VersionUnknown,
)
from counter.namespaces import (
    EMPTY,
    About,
    Cardinality,
    Definition,
    Origin,
    Snapshot,
    Strategy,
)
from counter.storage.memory import MemoryNamespaceStore

ABOUT = About(origin=Origin.APPLIED, author="oncall", reason="a test")


class Store(MemoryNamespaceStore):
    """Can lose its answer after it has stored a version."""

    loses_answers = False
    stores_twice = False

    async def put(self, snapshot: Snapshot) -> bool:
        stored = await super().put(snapshot)
        if self.stores_twice:  # as a store does that repeats a write which seemed to fail
            stored = await super().put(snapshot)
        if self.loses_answers:
            raise StoreUnavailable("the answer was lost")
        return stored


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def snapshots(store: Store) -> Snapshots:
    return Snapshots(store=store, clock=ManualClock())


def definition(name: str, **values: object) -> Definition:
    return replace(Definition(name=name, strategy=Strategy.EVENTUAL), **values)  # type: ignore[arg-type]


def wanted(*definitions: Definition | str, **values: object) -> Wanted:
    full = [each if isinstance(each, Definition) else definition(each) for each in definitions]
    return replace(Wanted(definitions=full, about=ABOUT), **values)  # type: ignore[arg-type]


async def apply(snapshots: Snapshots, *definitions: Definition | str) -> Snapshot:
    applied, _ = await snapshots.apply(
        wanted(*definitions, allow_data_loss=True), expected_version=snapshots.current.version
    )
    return applied


async def test_before_the_first_version_nothing_is_there(snapshots: Snapshots) -> None:
    assert snapshots.current is EMPTY
    assert await snapshots.version(0) is EMPTY


async def test_applied_it_is_stored_and_current(snapshots: Snapshots, store: Store) -> None:
    followed: list[Snapshot] = []
    snapshots.subscribe(lambda _: None, follow=followed.append)
    with capture_logs() as logs:
        applied, planned = await snapshots.apply(wanted("a", "b"), expected_version=0)
    assert applied == await store.latest() == snapshots.current
    assert followed == [applied]
    assert (applied.version, applied.about) == (1, replace(ABOUT, created=2))
    assert applied.applied_at_ns == ManualClock().now_ns()
    assert [(each.namespace, each.action) for each in planned.changes] == [
        ("a", Action.CREATE),
        ("b", Action.CREATE),
    ]
    assert (logs[-1]["author"], logs[-1]["created"]) == ("oncall", ["a", "b"])


async def test_without_a_change_there_is_no_new_version(snapshots: Snapshots) -> None:
    await apply(snapshots, "a")
    applied, planned = await snapshots.apply(wanted("a"), expected_version=1)
    assert (applied.version, planned.changes) == (1, ())


@pytest.mark.parametrize("expected", [0, 2])
async def test_another_live_version_than_expected_changes_nothing(
    snapshots: Snapshots, store: Store, expected: int
) -> None:
    before = await apply(snapshots, "a")
    with pytest.raises(VersionConflict) as raised:
        await snapshots.apply(wanted("a", "b"), expected_version=expected)
    assert "Nothing was changed" in raised.value.message
    assert await store.latest() is before is snapshots.current


async def test_the_loser_of_a_race_is_told_who_won(store: Store) -> None:
    one, other = (Snapshots(store=store, clock=ManualClock()) for _ in range(2))
    await apply(one, "a")
    with pytest.raises(VersionConflict, match=r"Version 1 is live .* applied by oncall \(a test\)"):
        await other.apply(wanted("b"), expected_version=0)


async def test_of_many_admins_at_once_one_wins(store: Store) -> None:
    admins = [Snapshots(store=store, clock=ManualClock()) for _ in range(8)]
    results = await asyncio.gather(
        *(
            admin.apply(wanted(definition("a", owner=f"team {number}")), expected_version=0)
            for number, admin in enumerate(admins)
        ),
        return_exceptions=True,
    )
    conflicts = [each for each in results if isinstance(each, VersionConflict)]
    assert len(conflicts) == 7
    assert [each.version for each in await store.versions(before=None, limit=9)] == [1]


async def test_a_lost_answer_is_found_again_by_the_same_call(
    snapshots: Snapshots, store: Store
) -> None:
    await apply(snapshots, "a")
    store.loses_answers = True
    with pytest.raises(StoreUnavailable):
        await snapshots.apply(wanted("a", "b"), expected_version=1)
    assert snapshots.current.version == 1, "nobody follows what may not be stored"
    store.loses_answers = False
    applied, planned = await snapshots.apply(wanted("a", "b"), expected_version=1)
    assert applied.version == snapshots.current.version == 2
    assert [each.namespace for each in planned.changes] == ["b"]
    other = About(origin=Origin.APPLIED, author="somebody else", reason="a test")
    with pytest.raises(VersionConflict):
        await snapshots.apply(wanted("a", "b", about=other), expected_version=1)


async def test_a_put_that_lost_to_its_own_first_attempt(snapshots: Snapshots, store: Store) -> None:
    await apply(snapshots, "a")
    store.stores_twice = True
    applied, _ = await snapshots.apply(wanted("a", "b"), expected_version=1)
    assert applied == await store.latest() == snapshots.current


async def test_a_lost_answer_is_not_taken_for_another_version(
    snapshots: Snapshots, store: Store
) -> None:
    await apply(snapshots, "a")
    await apply(snapshots, "a", "b")
    with pytest.raises(VersionConflict):
        await snapshots.apply(wanted("a", "c"), expected_version=1)


async def test_what_is_impossible_changes_nothing(snapshots: Snapshots) -> None:
    before = await apply(snapshots, "a")
    low = definition("a", cardinality=Cardinality.LOW)
    with pytest.raises(ChangeImpossible, match="a: cardinality") as raised:
        await snapshots.apply(wanted(low, allow_data_loss=True), expected_version=1)
    assert "Nothing was changed" in raised.value.message
    assert snapshots.current is before


async def test_data_is_lost_only_when_that_is_allowed(snapshots: Snapshots) -> None:
    before = await apply(snapshots, "a", "b")
    with pytest.raises(DataLossRefused, match=r"b: .*--allow-data-loss"):
        await snapshots.apply(wanted("a"), expected_version=1)
    assert snapshots.current is before
    applied, _ = await snapshots.apply(wanted("a", allow_data_loss=True), expected_version=1)
    assert set(applied.namespaces) == {"a"}


async def test_what_cannot_be_served_changes_nothing(snapshots: Snapshots, store: Store) -> None:
    def refuse(snapshot: Snapshot) -> None:
        raise SetupError("namespace a needs a cache")

    snapshots.subscribe(refuse)
    with pytest.raises(InvalidRequest, match="a needs a cache") as raised:
        await snapshots.apply(wanted("a"), expected_version=0)
    assert raised.value.reason == "NAMESPACES_INVALID"
    assert await store.latest() is None


class TestRollback:
    async def test_the_next_version_is_equal_to_the_earlier_one(self, snapshots: Snapshots) -> None:
        first = await apply(snapshots, "a", "b")
        second = await apply(snapshots, definition("a", max_delta=7), "b")
        third, planned = await snapshots.rollback(
            1, expected_version=2, about=ABOUT, allow_data_loss=False
        )
        assert third.namespaces == first.namespaces
        assert third.info.content_hash == first.info.content_hash != second.info.content_hash
        assert third.about == About(
            origin=Origin.ROLLED_BACK, author="oncall", reason="a test", restores=1, changed=1
        )
        assert [each.namespace for each in planned.changes] == ["a"]

    async def test_a_deleted_namespace_has_its_id_again(self, snapshots: Snapshots) -> None:
        first = await apply(snapshots, "a", "b")
        await apply(snapshots, "a")
        third, planned = await snapshots.rollback(
            1, expected_version=2, about=ABOUT, allow_data_loss=False
        )
        assert third.namespaces == first.namespaces
        assert [(each.namespace, each.action) for each in planned.changes] == [
            ("b", Action.RESTORE)
        ]

    async def test_what_was_created_since_is_deleted_only_if_allowed(
        self, snapshots: Snapshots
    ) -> None:
        await apply(snapshots, "a")
        await apply(snapshots, "a", "b")
        with pytest.raises(DataLossRefused):
            await snapshots.rollback(1, expected_version=2, about=ABOUT, allow_data_loss=False)
        third, _ = await snapshots.rollback(
            1, expected_version=2, about=ABOUT, allow_data_loss=True
        )
        assert set(third.namespaces) == {"a"}

    async def test_an_unknown_version(self, snapshots: Snapshots) -> None:
        await apply(snapshots, "a")
        with pytest.raises(VersionUnknown, match="no version 7"):
            await snapshots.rollback(7, expected_version=1, about=ABOUT, allow_data_loss=False)

    async def test_a_lost_race(self, snapshots: Snapshots) -> None:
        await apply(snapshots, "a")
        await apply(snapshots, definition("a", max_delta=7))
        with pytest.raises(VersionConflict):
            await snapshots.rollback(1, expected_version=1, about=ABOUT, allow_data_loss=False)


class TestCutover:
    async def test_the_namespace_gets_the_strategy_of_its_shadow(
        self, snapshots: Snapshots
    ) -> None:
        hits = definition(
            "hits",
            strategy=Strategy.BEST_EFFORT,
            shadow=Strategy.EVENTUAL,
            dedupe_ttl_ms=1_000,
            max_delta=7,
        )
        first = await apply(snapshots, hits, "other")
        second = await snapshots.cutover("hits", expected_version=1, about=ABOUT)
        after = second.namespaces["hits"]
        assert (after.strategy, after.shadow, after.dedupe_ttl_ms) == (
            Strategy.EVENTUAL,
            None,
            None,
        )
        assert (after.id, after.max_delta) == (first.namespaces["hits"].id, 7)
        assert second.namespaces["other"] == first.namespaces["other"]
        assert second.about.origin is Origin.CUT_OVER

    async def test_a_lost_answer_is_found_again(self, snapshots: Snapshots, store: Store) -> None:
        hits = definition("hits", strategy=Strategy.BEST_EFFORT, shadow=Strategy.EVENTUAL)
        await apply(snapshots, hits)
        store.loses_answers = True
        with pytest.raises(StoreUnavailable):
            await snapshots.cutover("hits", expected_version=1, about=ABOUT)
        store.loses_answers = False
        again = await snapshots.cutover("hits", expected_version=1, about=ABOUT)
        assert again == await store.latest() == snapshots.current
        assert again.version == 2

    async def test_a_lost_race(self, snapshots: Snapshots) -> None:
        hits = definition("hits", strategy=Strategy.BEST_EFFORT, shadow=Strategy.EVENTUAL)
        await apply(snapshots, hits)
        before = await apply(snapshots, replace(hits, max_delta=7))
        with pytest.raises(VersionConflict):
            await snapshots.cutover("hits", expected_version=1, about=ABOUT)
        assert snapshots.current is before

    async def test_without_a_shadow(self, snapshots: Snapshots) -> None:
        await apply(snapshots, definition("hits", strategy=Strategy.BEST_EFFORT))
        with pytest.raises(ShadowOff, match="shadow: eventual"):
            await snapshots.cutover("hits", expected_version=1, about=ABOUT)

    async def test_an_unknown_namespace(self, snapshots: Snapshots) -> None:
        await apply(snapshots, "a")
        with pytest.raises(NamespaceUnknown):
            await snapshots.cutover("hits", expected_version=1, about=ABOUT)


async def test_versions_of_other_control_planes_are_followed(store: Store) -> None:
    one, other = (Snapshots(store=store, clock=ManualClock()) for _ in range(2))
    await apply(one, "a")
    await other.follower.look()
    assert other.current == one.current
    await apply(other, "a", "b")
    assert other.current.version == 2


async def test_who_waits_for_a_version_gets_the_latest(snapshots: Snapshots) -> None:
    await apply(snapshots, "a")
    assert (await snapshots.after(0)).version == 1
    waiting = asyncio.create_task(snapshots.after(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    await apply(snapshots, "a", "b")
    await apply(snapshots, "a", "b", "c")
    assert (await waiting).version == 3


async def test_each_version_stays_what_it_was(snapshots: Snapshots) -> None:
    chain = [await apply(snapshots, *names) for names in (["a"], ["a", "b"], ["b"])]
    for each in chain:
        assert await snapshots.version(each.version) == each
    infos = await snapshots.versions(before=3, limit=5)
    assert [each.version for each in infos] == [2, 1]


@pytest.mark.parametrize(("author", "reason"), [("", "why"), ("oncall", " "), ("x" * 101, "why")])
def test_a_version_has_an_author_and_a_reason(author: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        about_of(Origin.APPLIED, author=author, reason=reason)
    assert raised.value.reason == "NOTE_MALFORMED"
