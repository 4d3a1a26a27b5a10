"""F8 and F9: the clock of the process is ahead, behind, drifts or steps.

On the embedded product server and worker have one clock, and the store's is a steady one that was
set at the start. Counts stay right whatever clocks do (I1); adds are refused with the reason,
health says NOT_SERVING, and all goes on by itself when the clock is right again.
"""

import asyncio
import random
import re
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2

from tally import CounterClient
from tests.calls import NS_PER_S, Calls, fresh_counter, refusal, token
from tests.faults.injected import Faults
from tests.faults.marks import watched_marks
from tests.load import Load, under_load
from tests.processes import FAST_CONVERGENCE_S, TallyProcess, run_tally

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = ("counter.v1.CounterService", "counter.v1.RollupService", "")
HOUR_S = 3_600.0
# By how much it steps, and how the refusal says so. Processes may differ by 300 ms.
STEPS = {
    5.0: "s ahead of the store's",
    -5.0: "s behind the store's",
    HOUR_S: "3600.0 s ahead of the store's",
    -HOUR_S: "3600.0 s behind the store's",
}


async def wait_health(tally: TallyProcess, wanted: int) -> None:
    for service in SERVICES:
        await asyncio.to_thread(tally.wait_health, service, wanted)


async def stepped(
    ahead_s: float, said: str, load: Load, tally: TallyProcess, faults: Faults
) -> None:
    """The clock steps and stays wrong, then steps back to the right time."""
    await load.acknowledged(30)
    faults.set_clock(ahead_s=ahead_s)
    await wait_health(tally, NOT_SERVING)
    with Calls(tally.address) as calls:
        counter = fresh_counter()
        seen = refusal(lambda: calls.add("quotas", counter, 1, token(age_s=-ahead_s)))
        assert (seen.code, seen.reason) == (grpc.StatusCode.UNAVAILABLE, "CLOCK_SKEWED")
        assert said in seen.message
        assert seen.retry_after_s is not None
        assert calls.accurate("quotas", counter) == 0  # reads go on
    status = await asyncio.to_thread(run_tally, "--server", tally.address, "status")
    assert said in status.stdout + status.stderr
    await load.refused("CLOCK_SKEWED")
    faults.set_clock()
    await wait_health(tally, SERVING)


@pytest.mark.timeout(600)
async def test_the_clock_steps_while_it_runs(tally: TallyProcess, faults: Faults) -> None:
    async with (
        watched_marks(tally.address),
        under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.2) as load,
    ):
        faults.set_clock(ahead_s=0.2)  # within what is allowed: nothing happens
        await load.acknowledged(50)
        assert load.history.refusals["CLOCK_SKEWED"] == 0
        for ahead_s, said in STEPS.items():
            await stepped(ahead_s, said, load, tally, faults)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)


@pytest.mark.timeout(600)
async def test_the_clock_drifts_and_jumps(tally: TallyProcess, faults: Faults) -> None:
    chance = random.Random(9)
    async with (
        watched_marks(tally.address),
        under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.2) as load,
    ):
        for gains_s_per_s in (0.1, -0.1):
            await load.acknowledged(30)
            faults.set_clock(gains_s_per_s=gains_s_per_s)
            await wait_health(tally, NOT_SERVING)
            assert abs(faults.clock_ahead_s()) > 0.3
            faults.set_clock()
            await wait_health(tally, SERVING)
        refused = load.history.refusals["CLOCK_SKEWED"]
        for _ in range(200):
            faults.set_clock(ahead_s=chance.choice([0.0, 0.25, -0.25, 1.0, -1.0, HOUR_S, -HOUR_S]))
            await asyncio.sleep(0.02)
        assert load.history.refusals["CLOCK_SKEWED"] > refused
        faults.set_clock()
        await wait_health(tally, SERVING)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)


@pytest.mark.timeout(600)
async def test_started_with_a_clock_that_is_an_hour_ahead(
    tally: TallyProcess, faults: Faults
) -> None:
    """It takes the clock for right: callers' tokens are late, and are told so. Started again with
    the right time, it takes no adds until that hour has passed. Every count stays right."""
    counter = fresh_counter()

    async def add_by_sdk() -> None:
        async with CounterClient(tally.address, namespace="quotas") as client:
            for _ in range(20):  # the SDK follows the platform's clock
                await client.add(counter, 1)

    async with (
        watched_marks(tally.address) as marks,
        under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.05) as load,
    ):
        await load.enough()
        assert tally.stop() == 0
        faults.set_clock(ahead_s=HOUR_S)
        await asyncio.to_thread(tally.start)
        await load.refused("TOKEN_EXPIRED", 20)
        await load.stop()
        await add_by_sdk()
        await marks.reach("closed_through", time.time_ns() + int((HOUR_S - 60) * NS_PER_S))

        assert tally.stop() == 0
        faults.set_clock()
        tally.start(wait=False)
        await asyncio.to_thread(tally.wait_health, SERVICES[0], NOT_SERVING)
        with Calls(tally.address) as calls:
            seen = refusal(lambda: calls.add("quotas", fresh_counter(), 1, token()))
            assert (seen.code, seen.reason) == (grpc.StatusCode.UNAVAILABLE, "CLOCK_SKEWED")
            assert "windows are closed up to 35" in seen.message
            assert calls.accurate("quotas", counter) == 20
        assert re.search(r"action=not_serving .*windows are closed up to 35", tally.log.read_text())

        assert tally.stop() == 0
        faults.set_clock(ahead_s=HOUR_S)  # an hour later
        await asyncio.to_thread(tally.start)
        await add_by_sdk()
        with Calls(tally.address) as calls:
            assert calls.accurate("quotas", counter) == 40
        await load.check(worker=tally.address)
