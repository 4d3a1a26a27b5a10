"""Ownership: every shard has one owner, shares are fair, and little moves when workers change."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counter.clock import ManualClock
from counter.storage.memory import MemoryMembership
from rollup_worker.ownership import MEMBER_TTL_S, Ownership, owner_of
from rollup_worker.report import PROBLEM_CHARS_MAX, Report, ShardReport, decode, encode

members = st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=8, unique=True)


@given(members, st.integers(0, 4_095), st.randoms())
def test_all_agree_on_the_owner_whatever_the_order(names: list[str], shard: int, chance) -> None:  # type: ignore[no-untyped-def]
    owner = owner_of(shard, names)
    assert owner in names
    shuffled = list(names)
    chance.shuffle(shuffled)
    assert owner_of(shard, shuffled) == owner


@given(members, st.integers(0, 4_095))
def test_only_the_shards_of_who_left_change_hands(names: list[str], shard: int) -> None:
    owner = owner_of(shard, names)
    for gone in names:
        rest = [each for each in names if each != gone]
        if rest and gone != owner:
            assert owner_of(shard, rest) == owner


def test_shares_are_fair() -> None:
    names = [f"host-{number}" for number in range(4)]
    shares = Counter(owner_of(shard, names) for shard in range(4_096))
    assert all(900 < share < 1_150 for share in shares.values())


async def test_two_workers_share_and_one_takes_over_from_one_that_died() -> None:
    clock = ManualClock()
    membership = MemoryMembership(monotonic_ns=clock.now_ns)
    first, second = (Ownership(membership, name, shards=64) for name in ("first", "second"))
    assert first.shards == []  # before its first beat
    await first.beat(Report())
    assert first.shards == list(range(64))  # alone
    await second.beat(Report())
    assert 0 < len(second.shards) < 64
    # The first one notices with its next beat; until then both fold, which is safe.
    assert first.shards == list(range(64))
    await first.beat(Report())
    assert sorted([*first.shards, *second.shards]) == list(range(64))
    clock.advance_ms(MEMBER_TTL_S * 1_000 + 1)  # both fall silent, and the second comes back
    await second.beat(Report())
    assert second.shards == list(range(64))


async def test_who_leaves_is_not_waited_for() -> None:
    membership = MemoryMembership()
    first, second = (Ownership(membership, name, shards=8) for name in ("first", "second"))
    await first.beat(Report())
    await second.beat(Report())
    await first.leave()
    await second.beat(Report())
    assert second.shards == list(range(8))


async def test_all_are_known_with_what_they_said_last() -> None:
    membership = MemoryMembership()
    first, second = (Ownership(membership, name, shards=8) for name in ("first", "second"))
    stuck = ShardReport(shard=3, folded_events=7, problem="it is broken")
    await first.beat(Report(passes_in_parallel=2, shards=(stuck,)))
    await second.beat(Report(passes_in_parallel=1))
    now = Report(passes_in_parallel=4, problem="and now this")
    assert await second.fleet(now) == {
        "first": Report(passes_in_parallel=2, shards=(stuck,)),
        "second": now,
    }


async def test_who_has_not_beaten_yet_knows_itself() -> None:
    alone = Ownership(MemoryMembership(), "alone", shards=8)
    assert await alone.fleet(Report()) == {"alone": Report()}


@pytest.mark.parametrize("body", [b"", b"\xc1", b"{}", b"\x93\x01\xa1x\x91\x01", b"\x91\xa1x"])
async def test_a_report_that_cannot_be_read_is_none(body: bytes) -> None:
    """A worker of another version is alive and owns its shards all the same."""
    membership = MemoryMembership()
    await membership.beat("other", body, ttl_s=60)
    own = Ownership(membership, "own", shards=64)
    await own.beat(Report())
    assert 0 < len(own.shards) < 64
    assert await own.fleet(Report()) == {"other": None, "own": Report()}


def test_a_report_of_a_later_version_is_read_as_far_as_it_is_known() -> None:
    later = [1, "p", [[5, 1, 2, 3, 4, 5.0, 6, "q", "more"]], {"more": 1}]
    assert decode(msgspec.msgpack.encode(later)) == Report(
        passes_in_parallel=1,
        problem="p",
        shards=(
            ShardReport(
                shard=5,
                folded_events=1,
                duplicate_events=2,
                conflicting_events=3,
                last_pass_events=4,
                last_pass_ms=5.0,
                batch_counters=6,
                problem="q",
            ),
        ),
    )


def test_a_report_stays_small_when_everything_is_broken() -> None:
    broken = tuple(ShardReport(shard=shard, problem="x" * 10_000) for shard in range(4_096))
    body = encode(Report(problem="y" * 10_000, shards=broken))
    assert len(body) < 500_000
    report = decode(body)
    assert report is not None
    assert all(each.problem for each in report.shards)
    assert report.shards[0].problem == "x" * PROBLEM_CHARS_MAX
