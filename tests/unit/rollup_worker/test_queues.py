"""The queues: one entry per shard, the oldest first, none twice at once."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rollup_worker.queues import Queues, Turn
from tests.tampered import settle


class Seconds:
    """A monotonic clock that is told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


def test_the_oldest_watermark_goes_first() -> None:
    queues = Queues(passes_max=4)
    queues.offer(range(4), 10, [5, 3, 10, 4])
    turns = [queues.pick() for _ in range(4)]
    assert turns == [Turn(1, 10), Turn(3, 10), Turn(0, 10), None]  # shard 2 is folded


def test_windows_that_close_meanwhile_are_one_turn() -> None:
    queues = Queues(passes_max=4)
    for closed_through in range(5, 1_000):
        queues.offer([0], closed_through, [4])
    assert queues.depth(0) == 995
    assert queues.pick() == Turn(0, 999)
    assert queues.pick() is None


def test_a_shard_is_never_folded_twice_at_once() -> None:
    queues = Queues(passes_max=4)
    queues.offer([0], 5, [0])
    turn = queues.pick()
    assert turn is not None
    queues.offer([0], 6, [0])
    assert queues.pick() is None
    queues.finish(turn, folded_through=5, has_more=False)
    assert queues.pick() == Turn(0, 6)


def test_a_pass_that_left_something_is_followed_by_another() -> None:
    queues = Queues(passes_max=4)
    queues.offer([0], 5, [0])
    turn = queues.pick()
    assert turn is not None
    queues.finish(turn, folded_through=2, has_more=True)
    assert queues.depth(0) == 3
    assert queues.pick() == Turn(0, 5)


def test_a_pass_that_found_nothing_worth_a_record_waits_for_the_next_close() -> None:
    queues = Queues(passes_max=4)
    queues.offer([0], 5, [4])
    turn = queues.pick()
    assert turn is not None
    queues.finish(turn, folded_through=4, has_more=False)
    queues.offer([0], 5, [4])
    assert queues.pick() is None
    assert queues.depth(0) == 1
    queues.offer([0], 6, [4])
    assert queues.pick() == Turn(0, 6)


def test_neither_mark_goes_back() -> None:
    queues = Queues(passes_max=4)
    queues.offer([0], 9, [7])
    queues.offer([0], 8, [3])  # as another worker saw it some time ago
    assert queues.depth(0) == 2
    assert queues.pick() == Turn(0, 9)


def test_what_another_worker_folded_is_not_folded_again() -> None:
    queues = Queues(passes_max=4)
    queues.offer([0, 1], 9, [7, 7])
    queues.offer([0, 1], 9, [9, 7])
    assert queues.pick() == Turn(1, 9)
    assert queues.pick() is None


def test_only_so_many_at_once() -> None:
    queues = Queues(passes_max=3)
    queues.offer(range(5), 9, [0] * 5)
    turns = [queues.pick() for _ in range(4)]
    assert turns[3] is None
    queues.allow(1)
    for turn in turns[:2]:
        assert turn is not None
        queues.finish(turn, folded_through=9, has_more=False)
        assert queues.pick() is None  # there is one under way yet
    assert turns[2] is not None
    queues.finish(turns[2], folded_through=9, has_more=False)
    assert queues.pick() == Turn(3, 9)
    assert queues.pick() is None


def test_shards_that_keep_up_are_folded_one_after_the_other() -> None:
    queues = Queues(passes_max=4)
    queues.offer([0, 1, 2], 9, [8, 8, 7])
    behind = queues.pick()
    assert behind == Turn(2, 9)
    assert queues.pick() is None
    assert queues._seconds_to_wait() is None  # nothing but the end of a turn changes that
    queues.offer([0, 1, 2], 10, [8, 8, 7])  # the next window closes before they had their turns
    assert [queues.pick(), queues.pick(), queues.pick()] == [Turn(0, 10), Turn(1, 10), None]


def test_a_shard_that_failed_rests_and_holds_up_nobody(seconds: Seconds) -> None:
    queues = Queues(passes_max=1, monotonic_s=seconds)
    queues.offer([0, 1], 9, [0, 5])
    turn = queues.pick()
    assert turn == Turn(0, 9)
    queues.rest(turn, 2.0)
    assert queues.resting() == 1
    other = queues.pick()
    assert other == Turn(1, 9)
    queues.finish(other, folded_through=9, has_more=False)
    seconds.now += 1.9
    assert queues.pick() is None
    seconds.now += 0.2
    assert queues.pick() == turn
    queues.finish(turn, folded_through=9, has_more=False)
    assert queues.resting() == 0


def test_a_shard_that_changed_hands_has_no_turn_any_more() -> None:
    queues = Queues(passes_max=4)
    queues.offer([0, 1], 9, [0, 0])
    turn = queues.pick()
    assert turn == Turn(0, 9)
    queues.offer([], 10, [0, 0])
    assert queues.depth(0) is queues.depth(1) is None
    assert queues.pick() is None
    queues.finish(turn, folded_through=3, has_more=True)  # which is still its right to say
    assert queues.pick() is None
    queues.offer([0], 10, [3, 0])  # and back
    assert queues.pick() == Turn(0, 10)


# Waiting.


async def taking(queues: Queues) -> asyncio.Task[Turn | None]:
    task = asyncio.create_task(queues.take())
    await settle()
    return task


@pytest.mark.parametrize(
    "happens",
    [
        lambda queues, turn: queues.offer([0, 1], 9, [9, 5]),
        lambda queues, turn: queues.finish(turn, folded_through=5, has_more=True),
    ],
)
async def test_who_waits_is_woken(happens: Callable[[Queues, Turn], None]) -> None:
    queues = Queues(passes_max=2)
    queues.offer([0], 9, [0, 0])
    turn = queues.pick()
    assert turn is not None
    waiting = await taking(queues)
    assert not waiting.done()
    happens(queues, turn)
    assert await asyncio.wait_for(waiting, 10) is not None


async def test_who_waits_for_room_is_woken_when_more_are_allowed() -> None:
    queues = Queues(passes_max=1)
    queues.offer([0, 1], 9, [0, 1])
    assert queues.pick() == Turn(0, 9)
    waiting = await taking(queues)
    assert not waiting.done()
    queues.allow(2)
    assert await asyncio.wait_for(waiting, 10) == Turn(1, 9)


async def test_who_waits_is_woken_when_a_shard_has_rested() -> None:
    queues = Queues(passes_max=1)
    queues.offer([0], 9, [0])
    turn = queues.pick()
    assert turn is not None
    queues.rest(turn, 0.02)
    assert await asyncio.wait_for(queues.take(), 10) == turn


async def test_closed_queues_give_no_turns() -> None:
    queues = Queues(passes_max=2)
    queues.offer([0], 9, [0, 0])
    turn = queues.pick()
    assert turn is not None
    waiting = await taking(queues)
    queues.close()
    assert await asyncio.wait_for(waiting, 10) is None
    queues.finish(turn, folded_through=5, has_more=True)
    assert queues.pick() is None
    assert await queues.take() is None


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8), st.integers(1, 8))
@settings(deadline=None)
def test_many_takers_get_each_shard_once(watermarks: list[int], takers: int) -> None:
    async def take_all() -> list[Turn | None]:
        queues = Queues(passes_max=takers)
        tasks = [asyncio.create_task(queues.take()) for _ in range(takers)]
        await settle()
        queues.offer(range(len(watermarks)), 52, watermarks)  # all of them are behind
        await settle()
        queues.close()
        return await asyncio.gather(*tasks)

    turns = [turn for turn in asyncio.run(take_all()) if turn is not None]
    oldest_first = sorted(range(len(watermarks)), key=lambda shard: (watermarks[shard], shard))
    assert sorted(turn.shard for turn in turns) == sorted(oldest_first[:takers])


SHARDS = 4


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens in whatever order, against what a reader of the docstrings expects."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = Seconds()
        self.passes_max = 2
        self.queues = Queues(passes_max=self.passes_max, monotonic_s=self.seconds)
        self.closed_through = 0
        self.watermarks = [0] * SHARDS  # as the store has them
        self.owned: set[int] = set()
        self.under_way: dict[int, Turn] = {}
        self.rests_until: dict[int, float] = {}

    @rule(owned=st.sets(st.integers(0, SHARDS - 1)), closes=st.integers(0, 5))
    def offer(self, owned: set[int], closes: int) -> None:
        for shard in self.owned - owned:  # what is known of a shard goes with it
            if shard not in self.under_way:
                self.rests_until.pop(shard, None)
        self.owned = owned
        self.closed_through += closes
        self.queues.offer(owned, self.closed_through, self.watermarks)

    @rule(passes_max=st.integers(1, SHARDS))
    def allow(self, passes_max: int) -> None:
        self.passes_max = passes_max
        self.queues.allow(passes_max)

    @rule()
    def pick(self) -> None:
        room = len(self.under_way) < self.passes_max
        turn = self.queues.pick()
        if turn is None:
            return
        assert room
        assert turn.shard in self.owned
        assert turn.shard not in self.under_way
        assert turn.closed_through == self.closed_through > self.watermarks[turn.shard]
        assert self.rests_until.get(turn.shard, 0.0) <= self.seconds.now
        self.under_way[turn.shard] = turn

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), folded=st.integers(1, 5))
    def finish(self, data: st.DataObject, folded: int) -> None:
        turn = self._end(data)
        through = min(self.watermarks[turn.shard] + folded, turn.closed_through)
        self.watermarks[turn.shard] = max(self.watermarks[turn.shard], through)
        self.rests_until.pop(turn.shard, None)
        self.queues.finish(turn, folded_through=through, has_more=through < turn.closed_through)

    @precondition(lambda self: self.under_way)
    @rule(data=st.data(), rest_s=st.floats(0.1, 5.0))
    def fail(self, data: st.DataObject, rest_s: float) -> None:
        turn = self._end(data)
        if turn.shard in self.owned:
            self.rests_until[turn.shard] = self.seconds.now + rest_s
        self.queues.rest(turn, rest_s)

    @rule(seconds=st.floats(0.1, 3.0))
    def wait(self, seconds: float) -> None:
        self.seconds.now += seconds

    @invariant()
    def everything_is_folded_in_the_end_oldest_first(self) -> None:
        for shard in self.owned - set(self.under_way):
            depth = self.queues.depth(shard)
            assert depth is not None
            assert depth >= 0
        assert len(self.queues._entries) <= SHARDS

    def teardown(self) -> None:
        for turn in self.under_way.values():
            self.queues.finish(turn, folded_through=0, has_more=True)
        self.seconds.now += 10
        self.queues.allow(SHARDS)
        self.queues.offer(range(SHARDS), self.closed_through + 2, self.watermarks)
        picked = [self.queues.pick() for _ in range(SHARDS)]
        oldest_first = sorted(range(SHARDS), key=lambda shard: (self.watermarks[shard], shard))
        assert [turn.shard for turn in picked if turn is not None] == oldest_first

    def _end(self, data: st.DataObject) -> Turn:
        shard = data.draw(st.sampled_from(sorted(self.under_way)))
        return self.under_way.pop(shard)


TestAnyOrder = AnyOrder.TestCase
