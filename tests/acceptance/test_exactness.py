"""The promise, over real gRPC, with the process killed (kill -9) in the middle, several times.

16 clients add positive and negative deltas to 200 counters, send a third of their calls twice or
more with the same token, send some late, and clear now and then. After convergence every counter is
exact on the eventual and on the accurate path, each token's status is what its client saw, and
nothing that was acknowledged is missing.
"""

import asyncio
import itertools
import random
import time
from pathlib import Path

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from tests.history import EventId, History, Outcome
from tests.processes import FAST, FAST_CONVERGENCE_S, TallyProcess

CLIENTS = 16
COUNTERS = 200
KILLS = 4
SECONDS_BETWEEN_KILLS = 3.0
CONVERGED_WITHIN_S = 30.0
NS = 1_000_000_000

_DEFINITELY_NOT = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
}


def token_message(event: EventId) -> pb.IdempotencyToken:
    message = pb.IdempotencyToken(token=event.token)
    message.generation_time.seconds, message.generation_time.nanos = divmod(event.time_ns, NS)
    return message


class Client:
    def __init__(self, number: int, address: str, history: History) -> None:
        self.random = random.Random(number)
        self.number = number
        self.history = history
        self.tokens = itertools.count()
        self.channel = grpc.aio.insecure_channel(
            address,
            options=[
                ("grpc.initial_reconnect_backoff_ms", 50),
                ("grpc.max_reconnect_backoff_ms", 200),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self.stub = pb_grpc.CounterServiceStub(self.channel)
        self.sent: list[EventId] = []
        # Only this client writes to its own counter, so it knows what an accurate read must say.
        self.own = ("quotas", f"own-{number}")

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            kind = self.random.random()
            if kind < 0.03:
                await self.check_own_counter()
            elif kind < 0.10 and self.sent:
                await self.send(self.random.choice(self.sent[-200:]))  # a retry, maybe very late
            else:
                event = self.new_event(kind)
                copies = 1 if self.random.random() < 2 / 3 else self.random.randint(2, 4)
                if self.random.random() < 0.5:
                    await asyncio.gather(*(self.send(event) for _ in range(copies)))
                else:
                    for _ in range(copies):
                        await self.send(event)

    def new_event(self, kind: float) -> EventId:
        time_ns = time.time_ns()
        if kind < 0.15:  # later than the platform accepts, or about to be
            time_ns -= int(self.random.uniform(1.0, 4.0) * NS)
        number = self.random.randrange(COUNTERS)
        namespace = "plays" if number % 2 else "quotas"
        token = f"client{self.number}-{next(self.tokens)}"
        event = EventId(namespace, f"counter-{number}", time_ns, token)
        delta = None if self.random.random() < 0.01 else self.random.choice([-3, -1, 1, 2, 5, 1000])
        self.history.deltas[event] = delta
        self.history.outcomes[event] = Outcome.UNKNOWN
        self.sent.append(event)
        return event

    async def send(self, event: EventId) -> None:
        delta = self.history.deltas[event]
        self.history.invoke(event, delta)
        common = {
            "namespace": event.namespace,
            "counter_name": event.counter,
            "idempotency_token": token_message(event),
        }
        try:
            if delta is None:
                answer = await self.stub.ClearCount(pb.ClearCountRequest(**common), timeout=5)
            else:
                request = pb.AddCountRequest(delta=delta, **common)
                answer = await self.stub.AddCount(request, timeout=5)
        except grpc.aio.AioRpcError as error:
            definitely_not = error.code() in _DEFINITELY_NOT
            self.history.complete(event, Outcome.FAIL if definitely_not else Outcome.UNKNOWN)
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                await asyncio.sleep(0.05)
        else:
            self.history.complete(event, Outcome.OK)
            self.history.duplicates_seen += answer.duplicate

    async def check_own_counter(self) -> None:
        """An accurate read includes the caller's own adds at once."""
        namespace, counter = self.own
        event = EventId(namespace, counter, time.time_ns(), f"own{self.number}-{next(self.tokens)}")
        self.history.deltas[event], self.history.outcomes[event] = 1, Outcome.UNKNOWN
        await self.send(event)
        mine = [o for e, o in self.history.outcomes.items() if (e.namespace, e.counter) == self.own]
        surely, maybe = mine.count(Outcome.OK), mine.count(Outcome.UNKNOWN)
        request = pb.GetCountRequest(namespace=namespace, counter_name=counter)
        try:
            count = (await self.stub.GetCount(request, timeout=5)).value.count
        except grpc.aio.AioRpcError:
            return
        if not surely <= count <= surely + maybe:
            self.history.contradictions.append(
                f"{self.own} reads {count}, not {surely} to {surely + maybe}"
            )


async def settle_all(stub: pb_grpc.CounterServiceStub, history: History) -> None:
    """Asks the platform what became of each token, until each has a definite answer."""

    async def settle(event: EventId) -> None:
        request = pb.GetTokenStatusRequest(
            namespace=event.namespace,
            counter_name=event.counter,
            idempotency_token=token_message(event),
        )
        ends = time.monotonic() + CONVERGED_WITHIN_S
        while True:
            status = (await stub.GetTokenStatus(request, timeout=10)).status
            if status != pb.TOKEN_STATUS_PENDING:
                history.settle(event, applied=status == pb.TOKEN_STATUS_APPLIED)
                return
            assert time.monotonic() < ends, f"{event} stays pending"
            await asyncio.sleep(0.1)

    events = list(history.deltas)
    for start in range(0, len(events), 50):
        await asyncio.gather(*(settle(event) for event in events[start : start + 50]))


async def assert_counts(stub: pb_grpc.CounterServiceStub, history: History) -> None:
    last_ns = max(event.time_ns for event in history.deltas)
    for namespace, counter in history.counters():
        expected = history.expected(namespace, counter)
        request = pb.GetCountRequest(namespace=namespace, counter_name=counter)
        ends = time.monotonic() + CONVERGED_WITHIN_S
        while True:  # no write happens any more: only folds make it fresher
            value = (await stub.GetCount(request, timeout=10)).value
            if value.complete_through.ToNanoseconds() >= last_ns:
                break
            assert time.monotonic() < ends, f"{counter} stays stale: {value}"
            await asyncio.sleep(0.05)
        assert (value.count, value.epoch) == expected, f"{namespace}/{counter}"
        request.max_staleness.FromNanoseconds(0)
        accurate = (await stub.GetCount(request, timeout=10)).value
        assert accurate.source == pb.SOURCE_ROLLUP_AND_TAIL
        assert (accurate.count, accurate.epoch) == expected, f"{namespace}/{counter}, accurate"


@pytest.mark.timeout(180)
async def test_every_acknowledged_event_is_counted_exactly_once_through_kills(
    tmp_path: Path,
) -> None:
    tally = TallyProcess(tmp_path, *FAST).start()
    history = History()
    clients = [Client(number, tally.address, history) for number in range(CLIENTS)]
    stop = asyncio.Event()
    running = [asyncio.create_task(client.run(stop)) for client in clients]
    try:
        for _ in range(KILLS):
            await asyncio.sleep(SECONDS_BETWEEN_KILLS)
            await asyncio.to_thread(tally.kill)
            await asyncio.sleep(0.2)
            await asyncio.to_thread(tally.start)
        await asyncio.sleep(SECONDS_BETWEEN_KILLS)
        stop.set()
        await asyncio.gather(*running)
        await asyncio.sleep(FAST_CONVERGENCE_S)  # I2: nobody reads or writes meanwhile
        # A token that was sent late counts as decided once its own window is folded.
        await settle_all(clients[0].stub, history)
        assert history.contradictions == []
        await assert_counts(clients[0].stub, history)
    finally:
        for client in clients:
            await client.channel.close()
        tally.end()
    seen = list(history.outcomes.values())
    # The faults took place: calls failed, tokens came late, duplicates were told.
    assert len(history.deltas) > 1_000
    assert history.calls > len(history.deltas) * 1.3
    assert seen.count(Outcome.FAIL) > 10
    assert history.duplicates_seen > 10
    assert any(delta is None for delta in history.deltas.values())
