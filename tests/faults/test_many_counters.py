"""F19: all the load on one counter, and one add each on very many. Every count is exact, folds keep
up (I2), and memory has a limit."""

import asyncio
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tally import Add, CounterClient
from tests.calls import fresh_counter
from tests.faults.marks import watched_marks
from tests.load import under_load
from tests.processes import FAST, FAST_CONVERGENCE_S, TallyProcess

ADDS_PER_CALL = 5_000
CALLERS = 4
PATIENCE_S = 120.0  # of the SDK, for one call


def delta_of(number: int) -> int:
    """Different for neighbours, so that a count under another's name shows."""
    return number % 997 + 1


def peak_mib(tally: TallyProcess) -> float:
    status = Path(f"/proc/{tally.process.pid}/status").read_text()
    [line] = [each for each in status.splitlines() if each.startswith("VmHWM:")]
    return int(line.split()[1]) / 1_024


async def assert_one_add_each(tally: TallyProcess, counters: int) -> None:
    """Adds once to each, and reads all of them back: when they are folded, from their rollups."""
    prefix = fresh_counter()
    names = [f"{prefix}-{number}" for number in range(counters)]
    async with (
        watched_marks(tally.address) as marks,
        CounterClient(tally.address, namespace="plays", timeout_s=PATIENCE_S) as client,
    ):
        calls = iter(range(0, counters, ADDS_PER_CALL))

        async def add() -> None:
            for start in calls:  # shared: whoever is free takes the next one
                numbers = range(start, min(start + ADDS_PER_CALL, counters))
                adds = [Add(names[number], delta_of(number)) for number in numbers]
                outcomes = await client.batch_add(adds)
                assert [each.error for each in outcomes if each.error is not None] == []

        await asyncio.gather(*(add() for _ in range(CALLERS)))
        added_ns = time.time_ns()
        for shard in range(2):
            await marks.reach(f"watermark of shard {shard}", added_ns)
        wrong = []
        for start in range(0, counters, ADDS_PER_CALL):
            some = names[start : start + ADDS_PER_CALL]
            values = await client.batch_get(some)
            wrong += [
                (name, value.count)
                for number, (name, value) in enumerate(zip(some, values, strict=True), start)
                if value.count != delta_of(number)
            ]
        assert wrong == []


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[TallyProcess]:
    process = TallyProcess(tmp_path, *FAST)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.mark.timeout(900)
async def test_100_000_counters(quick: TallyProcess) -> None:
    await assert_one_add_each(quick, 100_000)
    assert peak_mib(quick) < 600


@pytest.mark.long
@pytest.mark.timeout(3_600)
async def test_a_million_counters(quick: TallyProcess) -> None:
    await assert_one_add_each(quick, 1_000_000)
    assert peak_mib(quick) < 1_200


@pytest.mark.timeout(900)
async def test_one_counter_with_all_the_load(quick: TallyProcess) -> None:
    """Checked add by add for some of it; and in sum for very much more."""
    hot, added = fresh_counter("hot"), 0
    async with (
        under_load(quick.address, late_s=(1.0, 4.0), counters=1, pause_s=0.05) as load,
        CounterClient(quick.address, namespace="plays", timeout_s=PATIENCE_S) as client,
    ):

        async def add() -> int:
            outcomes = await client.batch_add([Add(hot, 3) for _ in range(ADDS_PER_CALL)])
            assert [each.error for each in outcomes if each.error is not None] == []
            return 3 * len(outcomes)

        for _ in range(10):
            added += sum(await asyncio.gather(*(add() for _ in range(CALLERS))))
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=quick.address)
        assert (await client.get(hot, max_staleness=timedelta(0))).count == added
        assert peak_mib(quick) < 600
