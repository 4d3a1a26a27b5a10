"""What the plan says of the history comes true."""

from control_plane.planning.plan import Consequence
from counter.namespaces import HistoryStep
from counter.v1 import counter_service_pb2 as pb
from tests.unit.control_plane.live import MINUTE_MS, Live, comes_true


def step(minutes: int, *, kept: int) -> HistoryStep:
    return HistoryStep(step_ms=minutes * MINUTE_MS, retention_ms=kept * MINUTE_MS)


def known(answer: pb.GetCountHistoryResponse) -> list[bool]:
    """By step. The last one is not over."""
    return [point.known for point in answer.points][:-1]


@comes_true(("history.step", "added"))
async def test_a_history_begins_when_it_is_switched_on(live: Live) -> None:
    await live.define()
    await live.add_each_minute(10)
    await live.define(history=(step(1, kept=60),))
    await live.add_each_minute(10)
    answer = await live.history(minutes=19)
    assert known(answer) == [False] * 10 + [True] * 9
    assert {point.delta for point in answer.points[10:]} == {1}


@comes_true(("history.step", "the last removed"))
async def test_without_a_history_nothing_of_it_can_be_asked_for(live: Live) -> None:
    await live.define(history=(step(1, kept=60),))
    await live.add_each_minute(10)
    change = await live.define()
    assert change.consequence is Consequence.DATA_LOSS
    await live.add_each_minute(10)
    assert (await live.refusal(live.history(minutes=5))).reason == "HISTORY_OFF"
    request = pb.GetCountAtRequest(namespace="plays", counter_name="a")
    request.time.FromNanoseconds(live.clock.now_ns() - 12 * 60 * 10**9)
    assert (await live.refusal(live.stub.GetCountAt(request))).reason == "HISTORY_OFF"
    # What the hint says.
    await live.define(history=(step(1, kept=60),))
    await live.add_each_minute(5)
    assert known(await live.history(minutes=24)) == [True] * 9 + [False] * 11 + [True] * 4


@comes_true(("history.step", "removed"))
async def test_a_step_that_is_removed_cannot_be_asked_for(live: Live) -> None:
    minutes, fives = step(1, kept=60), step(5, kept=120)
    await live.define(history=(minutes, fives))
    await live.add_each_minute(20)
    assert all(known(await live.history(minutes=10, step_ms=MINUTE_MS)))
    change = await live.define(history=(fives,))
    assert change.consequence is Consequence.DATA_LOSS
    refusal = await live.refusal(live.history(minutes=10, step_ms=MINUTE_MS))
    assert refusal.reason == "STEP_NOT_KEPT"
    assert all(known(await live.history(minutes=10, step_ms=5 * MINUTE_MS)))


@comes_true(("history.step", "removed, finer ones stay"))
async def test_a_longer_step_is_then_made_of_shorter_ones_and_reaches_less_far(live: Live) -> None:
    minutes, fives = step(1, kept=10), step(5, kept=120)
    await live.define(history=(minutes, fives))
    await live.add_each_minute(40)
    await live.forget_history()
    answer = await live.history(minutes=30, step_ms=5 * MINUTE_MS)
    assert (answer.resolution.ToMilliseconds(), known(answer)) == (5 * MINUTE_MS, [True] * 6)
    change = await live.define(history=(minutes,))
    assert change.consequence is Consequence.DATA_LOSS
    answer = await live.history(minutes=30, step_ms=5 * MINUTE_MS)
    assert answer.resolution.ToMilliseconds() == MINUTE_MS
    # The 10 minutes that are kept hold one step as a whole.
    assert known(answer) == [False] * 5 + [True]


@comes_true(("history.retention", "shorter"))
async def test_a_shorter_retention_holds_for_what_is_written_from_then_on(live: Live) -> None:
    await live.define(history=(step(1, kept=60),))
    await live.add_each_minute(10)
    change = await live.define(history=(step(1, kept=10),))
    assert change.consequence is Consequence.DATA_LOSS
    await live.add_each_minute(30)
    await live.forget_history()
    found = known(await live.history(minutes=39))
    assert found[:8] == [True] * 8, "what was there stays"
    assert not any(found[12:27]), "what was written since is lost after the new time"
    assert all(found[-9:])
    await live.add_each_minute(35)
    await live.forget_history()
    assert not any(known(await live.history(minutes=74))[:60]), "and the rest after the old one"


@comes_true(("history.retention", "longer"))
async def test_a_longer_retention_brings_nothing_back(live: Live) -> None:
    await live.define(history=(step(1, kept=10),))
    await live.add_each_minute(30)
    await live.forget_history()
    await live.define(history=(step(1, kept=60),))
    found = known(await live.history(minutes=29))
    assert not any(found[:17])
    assert all(found[-9:])
    await live.add_each_minute(30)
    await live.forget_history()
    found = known(await live.history(minutes=59))
    assert not any(found[:28]), "what was there goes as before"
    assert all(found[-29:]), "what was written since stays"
