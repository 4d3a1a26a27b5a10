"""Ownership: every shard has one owner, shares are fair, and little moves when workers change."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from counter.clock import ManualClock
from counter.storage.memory import MemoryMembership
from rollup_worker.ownership import MEMBER_TTL_S, Ownership, owner_of

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
    first = Ownership(membership, "first", shards=64)
    assert await first.shards() == list(range(64))  # alone
    second = Ownership(membership, "second", shards=64)
    of_second = await second.shards()
    assert 0 < len(of_second) < 64
    # The first one notices with its next beat; until then both fold, which is safe.
    beating = Ownership(membership, "first", shards=64)
    assert sorted([*await beating.shards(), *of_second]) == list(range(64))
    clock.advance_ms(MEMBER_TTL_S * 1_000 + 1)  # both fall silent, and the second comes back
    assert await Ownership(membership, "second", shards=64).shards() == list(range(64))


async def test_who_leaves_is_not_waited_for() -> None:
    membership = MemoryMembership()
    first, second = (Ownership(membership, name, shards=8) for name in ("first", "second"))
    await first.shards()
    await second.shards()
    await first.leave()
    assert await Ownership(membership, "second", shards=8).shards() == list(range(8))
