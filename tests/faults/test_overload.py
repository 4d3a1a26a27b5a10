"""F20: far more load than it can take, on a store that is slow. What is too much is refused at once
with a time to come back, nothing is queued without a limit, what is taken still gets through, and
when it is over all is as before."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import psutil
import pytest

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from tests.calls import fresh_counter, reason_of, refusal_of, token
from tests.faults.slow_store import FREE_S, HELD_S, slow_store
from tests.load import open_channel, under_load
from tests.processes import TallyProcess, free_port
from tests.scrape import Scrape

EVENTS_WAITING_MAX = 100_000
CALLS = 15_000  # at once; 10,000 are taken
ADDS = 5_000  # of a batch
TURNS = 4  # of the slow store, in each phase
# As many calls as fit in its queue: that is what it can take.
AT_ONCE = EVENTS_WAITING_MAX // ADDS - 1
TIMES_TOO_MUCH = 5
DEADLINE_S = 20.0
CONVERGENCE_S = 1.0 + 5.0 + 0.5  # with the default settings
# Of what it takes when there is not too much. It also has to say no to all the others, and shares
# its processors with those who ask.
GOODPUT_MIN = 0.25
MEMORY_GROWTH_MIB_MAX = 500.0
_NAME = "counter-00000000"


@dataclass
class Offered:
    """Batches, each to a counter of its own: what became of them."""

    prefix: str
    sent: int = 0
    taken: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    _template: bytes = b""
    _made_s: float = 0.0

    def next_batch(self) -> tuple[str, bytes]:
        """Names have the same length, so that a batch costs next to nothing to make."""
        if time.monotonic() > self._made_s + 0.2:
            items = [
                pb.AddCountItem(counter_name=_NAME, delta=1, idempotency_token=token())
                for _ in range(ADDS)
            ]
            request = pb.BatchAddCountRequest(namespace="plays", items=items)
            self._template, self._made_s = request.SerializeToString(), time.monotonic()
        self.sent += 1
        name = f"{self.prefix}{self.sent:0{len(_NAME) - len(self.prefix)}d}"
        return name, self._template.replace(_NAME.encode(), name.encode())

    async def send(self, call: grpc.aio.UnaryUnaryMultiCallable) -> None:
        name, request = self.next_batch()
        try:
            answer = pb.BatchAddCountResponse.FromString(await call(request, timeout=DEADLINE_S))
        except grpc.aio.AioRpcError as error:
            self.reasons[reason_of(error)] += 1
            if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED:
                seen = refusal_of(error)
                assert seen.retry_after_s is not None
                assert "nothing of this call was written" in seen.message
                self.refused.append(name)
            else:
                self.unknown.append(name)
            return
        if all(each.code == 0 for each in answer.outcomes):
            self.taken.append(name)
        else:
            self.reasons.update(each.reason for each in answer.outcomes if each.code)
            self.unknown.append(name)


@asynccontextmanager
async def watched_queue(metrics: str) -> AsyncIterator[list[float]]:
    """How many events wait, asked for all the time."""
    seen: list[float] = []

    async def watch() -> None:
        while True:
            scraped = await asyncio.to_thread(Scrape, metrics)
            seen.append(scraped.total("tally_events_waiting"))
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def offer_what_it_can_take(call: grpc.aio.UnaryUnaryMultiCallable, ends_s: float) -> Offered:
    offered = Offered("fits-")

    async def send_on() -> None:
        while time.monotonic() < ends_s:
            await offered.send(call)

    await asyncio.gather(*(send_on() for _ in range(AT_ONCE)))
    return offered


async def offer_too_much(
    call: grpc.aio.UnaryUnaryMultiCallable, ends_s: float, batches_per_s: float
) -> Offered:
    """Open loop: nobody waits for an answer before sending the next one."""
    offered, sending = Offered("much-"), set()
    began_s = time.monotonic()
    while time.monotonic() < ends_s:
        for _ in range(int((time.monotonic() - began_s) * batches_per_s) - offered.sent):
            sending.add(asyncio.create_task(offered.send(call)))
        await asyncio.sleep(0.01)
    await asyncio.gather(*sending)
    return offered


@pytest.fixture
def own_metrics() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def unhurried(tmp_path: Path, own_metrics: str) -> Iterator[TallyProcess]:
    """With the settings that users have: tokens are good for some seconds."""
    process = TallyProcess(tmp_path, "--metrics", own_metrics)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.mark.timeout(900)
async def test_far_too_much_load_on_a_slow_store(unhurried: TallyProcess, own_metrics: str) -> None:
    process = psutil.Process(unhurried.process.pid)
    before = process.memory_info().rss
    phase_s = TURNS * (HELD_S + FREE_S)
    async with (
        open_channel(unhurried.address) as channel,
        under_load(unhurried.address, late_s=(5.0, 15.0), pause_s=0.2) as load,
    ):
        call = channel.unary_unary("/counter.v1.CounterService/BatchAddCount")
        async with watched_queue(own_metrics) as waiting:
            with slow_store(unhurried.data) as slow:
                fits = await offer_what_it_can_take(call, time.monotonic() + phase_s)
                per_s = len(fits.taken) / phase_s
                ends_s = time.monotonic() + phase_s
                much = await offer_too_much(call, ends_s, TIMES_TOO_MUCH * per_s)
                assert slow.turns >= 2 * TURNS
            grown_mib = (process.memory_info().rss - before) / (1 << 20)
        await load.acknowledged(20)  # it is over, and all is as before
        await load.finish(converges_s=CONVERGENCE_S, worker=unhurried.address)
        await assert_counted(channel, fits)
        await assert_counted(channel, much)
    assert fits.refused == []
    assert len(much.refused) > 10
    assert max(waiting) > EVENTS_WAITING_MAX / 2
    assert max(waiting) <= EVENTS_WAITING_MAX
    assert len(much.taken) >= len(fits.taken) * GOODPUT_MIN
    assert grown_mib < MEMORY_GROWTH_MIB_MAX


async def assert_counted(channel: grpc.aio.Channel, offered: Offered) -> None:
    """What was taken counts, all of it; of what was refused, nothing does."""
    stub = pb_grpc.CounterServiceStub(channel)
    for names, wanted in ((offered.taken, ADDS), (offered.refused, 0)):
        for start in range(0, len(names), 1_000):
            some = names[start : start + 1_000]
            request = pb.BatchGetCountRequest(namespace="plays", counter_name=some)
            request.max_staleness.FromNanoseconds(0)
            values = (await stub.BatchGetCount(request, timeout=60)).values
            assert [value.count for value in values] == [wanted] * len(some)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_more_calls_at_once_than_are_taken(steady: TallyProcess) -> None:
    """What cannot be kept is turned away, and nothing of that counts. They wait in their sockets
    while the process stands still, and are all there when it goes on."""
    counter, channels = fresh_counter(), [open_channel(steady.address) for _ in range(20)]
    stubs = [pb_grpc.CounterServiceStub(channel) for channel in channels]
    for stub in stubs:  # connected
        await stub.GetCount(pb.GetCountRequest(namespace="quotas", counter_name=counter))
    codes: Counter[str] = Counter()

    async def add(number: int) -> None:
        request = pb.AddCountRequest(namespace="quotas", counter_name=counter, delta=1)
        try:
            await stubs[number % len(stubs)].AddCount(request, timeout=300)
        except grpc.aio.AioRpcError as error:
            codes[error.code().name] += 1
        else:
            codes["OK"] += 1

    steady.pause()
    adding = [asyncio.create_task(add(number)) for number in range(CALLS)]
    await asyncio.sleep(1)
    steady.resume()
    await asyncio.gather(*adding)
    turned_away = codes["RESOURCE_EXHAUSTED"]
    assert turned_away > 0
    assert turned_away + codes["OK"] == len(adding)
    answer = await stubs[0].GetCount(pb.GetCountRequest(namespace="quotas", counter_name=counter))
    assert answer.value.count == codes["OK"]
    for channel in channels:
        await channel.close()
