"""Load for tests of the promise, and what must hold when it is over.

16 clients add positive and negative deltas to 200 counters, send a third of their calls twice or
more with the same token, to any of the servers, send some late, and clear now and then. After
convergence every counter is exact on the eventual and on the accurate path of every server, each
token's status is what its client saw, and nothing that was acknowledged is missing. The whole
history, with what was read meanwhile, then passes the rules of `tally verify`.
"""

import asyncio
import itertools
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter.v1 import rollup_service_pb2 as rollups_pb
from counter.v1 import rollup_service_pb2_grpc as rollups_grpc
from tally.verify.history import Call, CallKind, Outcome
from tests.calls import reason_of
from tests.history import EventId, History

CLIENTS = 16
# Each audit reads a shard's whole log.
COUNTERS_AUDITED = 25
CHECKED_AT_ONCE = 20
CONVERGED_WITHIN_S = 60.0
NS = 1_000_000_000
# On average, of a caller who gives up: about as long as a call takes.
_PATIENCE_S = 0.01

# A namespace that is deleted for a while, or takes smaller deltas only, refuses a call and says
# nothing of its token: another attempt may have been taken. An expired token is refused for ever.
_REFUSALS = {grpc.StatusCode.FAILED_PRECONDITION}


@dataclass(frozen=True, kw_only=True)
class Habits:
    """What the clients of a load do."""

    late_s: tuple[float, float]  # how old the tokens are that are sent late
    counters: int = 200
    name: str = "counter"  # of counters and clients: loads with different ones do not meet
    clears: float = 0.01  # of all events
    reads: float = 0.0  # of all calls, beyond the few that there always are
    events_least: int = 1_000  # before there is enough to be checked
    pause_s: float = 0.0  # of a client, between its calls
    cancels: float = 0.0  # of all calls: given up by their caller, before or after they are done


def token_message(event: EventId) -> pb.IdempotencyToken:
    message = pb.IdempotencyToken(token=event.token)
    message.generation_time.seconds, message.generation_time.nanos = divmod(event.time_ns, NS)
    return message


def open_channel(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(
        address,
        options=[
            ("grpc.initial_reconnect_backoff_ms", 50),
            ("grpc.max_reconnect_backoff_ms", 200),
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )


class Client:
    def __init__(
        self, number: int, addresses: Sequence[str], history: History, habits: Habits
    ) -> None:
        self.random = random.Random(number)
        self.name = f"{habits.name}-{number}"
        self.history = history
        self.tokens = itertools.count()
        self.habits = habits
        self.channels = [open_channel(address) for address in addresses]
        self.stubs = [pb_grpc.CounterServiceStub(channel) for channel in self.channels]
        self.sent: list[EventId] = []
        self.seen_ns: dict[tuple[str, str], int] = {}  # by counter: the last complete_through
        # Only this client writes to its own counter, so it knows what an accurate read must say.
        self.own = ("quotas", f"own-{self.name}")

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            kind = self.random.random()
            if self.sent and self.random.random() < self.habits.reads:
                await self.read_any_counter()
            elif kind < 0.03:
                await self.read_own_counter()
            elif kind < 0.05 and self.sent:
                await self.read_any_counter()
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
            if self.habits.pause_s:
                await asyncio.sleep(self.habits.pause_s)

    def new_event(self, kind: float) -> EventId:
        time_ns = time.time_ns()
        if kind < 0.15:  # later than the platform accepts, or about to be
            time_ns -= int(self.random.uniform(*self.habits.late_s) * NS)
        number = self.random.randrange(self.habits.counters)
        namespace = "plays" if number % 2 else "quotas"
        token = f"{self.name}-{next(self.tokens)}"
        event = EventId(namespace, f"{self.habits.name}-{number}", time_ns, token)
        is_clear = self.random.random() < self.habits.clears
        delta = None if is_clear else self.random.choice([-3, -1, 1, 2, 5, 1000])
        self.history.plan(event, delta)
        self.sent.append(event)
        return event

    async def send(self, event: EventId) -> None:
        delta = self.history.deltas[event]
        common = {
            "namespace": event.namespace,
            "counter_name": event.counter,
            "idempotency_token": token_message(event),
        }
        stub = self.random.choice(self.stubs)
        outcome, reason = Outcome.OK, ""
        invoked_ns = time.monotonic_ns()
        if delta is None:
            call = stub.ClearCount(pb.ClearCountRequest(**common), timeout=5)
        else:
            call = stub.AddCount(pb.AddCountRequest(delta=delta, **common), timeout=5)
        if self.random.random() < self.habits.cancels:
            patience_s = self.random.expovariate(1 / _PATIENCE_S)
            asyncio.get_running_loop().call_later(patience_s, call.cancel)
        try:
            answer = await call
            self.history.duplicates_seen += answer.duplicate
        except grpc.aio.AioRpcError as error:
            outcome, reason = Outcome.UNKNOWN, reason_of(error)
            self.history.refusals[reason] += 1
            if error.code() in _REFUSALS:
                outcome = Outcome.FAIL
            elif error.code() is grpc.StatusCode.UNAVAILABLE:
                await asyncio.sleep(max(0.05, self.habits.pause_s))
        except asyncio.CancelledError:
            if not call.cancelled():
                raise  # it is the client that is cancelled
            outcome = Outcome.UNKNOWN
            self.history.cancelled += 1
        self.history.record(
            Call(
                client=self.name,
                call=CallKind.CLEAR if delta is None else CallKind.ADD,
                namespace=event.namespace,
                counter=event.counter,
                invoked_ns=invoked_ns,
                completed_ns=time.monotonic_ns(),
                outcome=outcome,
                reason=reason,
                token=event.token,
                generation_time_ns=event.time_ns,
                delta=delta,
            )
        )

    async def read_own_counter(self) -> None:
        """Only this client writes to it, so an accurate read leaves little to be explained."""
        namespace, counter = self.own
        event = EventId(namespace, counter, time.time_ns(), f"own-{self.name}-{next(self.tokens)}")
        self.history.plan(event, 1)
        await self.send(event)
        await self.read(namespace, counter)

    async def read_any_counter(self) -> None:
        event = self.random.choice(self.sent[-200:])
        at_least_ns = self.seen_ns.get((event.namespace, event.counter))
        await self.read(event.namespace, event.counter, at_least_ns=at_least_ns)

    async def read(self, namespace: str, counter: str, *, at_least_ns: int | None = None) -> None:
        request = pb.GetCountRequest(namespace=namespace, counter_name=counter)
        if at_least_ns is not None:
            request.at_least.FromNanoseconds(at_least_ns)
        invoked_ns = time.monotonic_ns()
        try:
            value = (await self.random.choice(self.stubs).GetCount(request, timeout=5)).value
        except grpc.aio.AioRpcError:
            return
        call = read_call(self.name, namespace, counter, invoked_ns, value, at_least_ns)
        self.history.record(call)
        if call.complete_through_ns is not None:
            self.seen_ns[namespace, counter] = call.complete_through_ns


def read_call(
    client: str,
    namespace: str,
    counter: str,
    invoked_ns: int,
    value: pb.CountValue,
    at_least_ns: int | None = None,
) -> Call:
    """A read that has just been answered, as the history has it."""
    stamped = value.HasField("complete_through")
    return Call(
        client=client,
        call=CallKind.GET,
        namespace=namespace,
        counter=counter,
        invoked_ns=invoked_ns,
        completed_ns=time.monotonic_ns(),
        outcome=Outcome.OK,
        accurate=value.source == pb.SOURCE_ROLLUP_AND_TAIL,
        at_least_ns=at_least_ns,
        count=value.count,
        complete_through_ns=value.complete_through.ToNanoseconds() if stamped else None,
        epoch=value.epoch,
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
            invoked_ns = time.monotonic_ns()
            status = (await stub.GetTokenStatus(request, timeout=10)).status
            if status != pb.TOKEN_STATUS_PENDING:
                applied = status == pb.TOKEN_STATUS_APPLIED
                history.record(
                    Call(
                        client="settling",
                        call=CallKind.TOKEN_STATUS,
                        namespace=event.namespace,
                        counter=event.counter,
                        invoked_ns=invoked_ns,
                        completed_ns=time.monotonic_ns(),
                        outcome=Outcome.OK if applied else Outcome.FAIL,
                        token=event.token,
                        generation_time_ns=event.time_ns,
                    )
                )
                return
            assert time.monotonic() < ends, f"{event} stays pending"
            await asyncio.sleep(0.1)

    events = list(history.deltas)
    for start in range(0, len(events), 50):
        await asyncio.gather(*(settle(event) for event in events[start : start + 50]))


async def assert_counts(stub: pb_grpc.CounterServiceStub, history: History) -> None:
    last_ns = max(event.time_ns for event in history.deltas)

    async def read(namespace: str, counter: str, request: pb.GetCountRequest) -> pb.CountValue:
        invoked_ns = time.monotonic_ns()
        value = (await stub.GetCount(request, timeout=10)).value
        history.record(read_call("checking", namespace, counter, invoked_ns, value))
        return value

    async def assert_count(namespace: str, counter: str) -> None:
        expected = history.expected(namespace, counter)
        request = pb.GetCountRequest(namespace=namespace, counter_name=counter)
        ends = time.monotonic() + CONVERGED_WITHIN_S
        while True:  # no write happens any more: only folds make it fresher
            value = await read(namespace, counter, request)
            if value.complete_through.ToNanoseconds() >= last_ns:
                break
            assert time.monotonic() < ends, f"{counter} stays stale: {value}"
            await asyncio.sleep(0.05)
        assert (value.count, value.epoch) == expected, f"{namespace}/{counter}"
        request.max_staleness.FromNanoseconds(0)
        accurate = await read(namespace, counter, request)
        assert accurate.source == pb.SOURCE_ROLLUP_AND_TAIL
        assert (accurate.count, accurate.epoch) == expected, f"{namespace}/{counter}, accurate"

    await _of_each(history.counters(), assert_count)


async def assert_history(stub: pb_grpc.CounterServiceStub, history: History) -> None:
    """What was added in each step, and the count at the end of it, are what happened until then."""
    first_ns = min(event.time_ns for event in history.deltas)

    async def assert_steps(namespace: str, counter: str) -> None:
        request = pb.GetCountHistoryRequest(namespace=namespace, counter_name=counter)
        request.start.FromNanoseconds(first_ns)
        answer = await stub.GetCountHistory(request, timeout=10)
        assert answer.step.seconds == 60
        for point in answer.points:
            start_ns = point.start.ToNanoseconds()
            end_ns = start_ns + 60 * NS
            assert point.known
            assert (point.count, point.epoch) == history.expected(namespace, counter, end_ns)
            assert point.delta == sum(
                delta or 0
                for event, delta in history.deltas.items()
                if history.outcomes[event] is Outcome.OK
                and event[:2] == (namespace, counter)
                and start_ns <= event.time_ns < end_ns
            )
            at = pb.GetCountAtRequest(namespace=namespace, counter_name=counter)
            at.time.FromNanoseconds(min(end_ns - 1, answer.complete_through.ToNanoseconds()))
            value = (await stub.GetCountAt(at, timeout=10)).value
            through_ns = value.complete_through.ToNanoseconds() + 1
            assert (value.count, value.epoch) == history.expected(namespace, counter, through_ns)

    await _of_each([each for each in history.counters() if each[0] == "plays"], assert_steps)


async def _of_each(
    counters: Sequence[tuple[str, str]], check: Callable[[str, str], Awaitable[None]]
) -> None:
    """Some at a time: reads that come together cost a server little more than one."""
    for start in range(0, len(counters), CHECKED_AT_ONCE):
        await asyncio.gather(*(check(*each) for each in counters[start : start + CHECKED_AT_ONCE]))


async def assert_audits(address: str, history: History) -> None:
    """Computed again from the events that are kept, counters are what they are."""
    counters = history.counters()
    async with open_channel(address) as channel:
        stub = rollups_grpc.RollupServiceStub(channel)
        for namespace, counter in counters[:: max(1, len(counters) // COUNTERS_AUDITED)]:
            request = rollups_pb.AuditCounterRequest(namespace=namespace, counter_name=counter)
            audit = await stub.AuditCounter(request, timeout=30)
            assert audit.result == rollups_pb.AUDIT_RESULT_EQUAL, f"{namespace}/{counter}: {audit}"
            assert not audit.differences


class Load:
    """Clients at work, until `stop`."""

    def __init__(self, addresses: Sequence[str], habits: Habits) -> None:
        self.history = History()
        self._addresses = addresses
        self._events_least = habits.events_least
        self._clients = [
            Client(number, addresses, self.history, habits) for number in range(CLIENTS)
        ]
        self._stop = asyncio.Event()
        self._running = [asyncio.create_task(client.run(self._stop)) for client in self._clients]

    async def acknowledged(self, more: int, *, within_s: float = 60.0) -> None:
        """Waits until so many more events are acknowledged: the platform works."""
        before = self._acknowledged()
        ends = time.monotonic() + within_s
        while self._acknowledged() < before + more:
            assert time.monotonic() < ends, f"only {self._acknowledged() - before} in {within_s} s"
            await asyncio.sleep(0.05)

    async def refused(self, reason: str, more: int = 1, *, within_s: float = 60.0) -> None:
        """Waits until so many more writes are refused for this reason."""
        refusals = self.history.refusals
        before, ends = refusals[reason], time.monotonic() + within_s
        while refusals[reason] < before + more:
            assert time.monotonic() < ends, f"refused since then: {refusals}"
            await asyncio.sleep(0.05)

    def unanswered(self) -> list[EventId]:
        """What was sent, or is about to be, and has no outcome yet."""
        outcomes = self.history.outcomes
        return [event for event, outcome in outcomes.items() if outcome is Outcome.UNKNOWN]

    async def send_again(self, events: Sequence[EventId]) -> None:
        """The same tokens once more, each by one of the clients."""
        await asyncio.gather(
            *(self._clients[at % CLIENTS].send(event) for at, event in enumerate(events))
        )

    async def into_another_minute(self) -> None:
        """Waits until events of two minutes at least are acknowledged: steps of the history."""
        while len(self._minutes()) < 2:
            await self.acknowledged(50)

    async def enough(self) -> None:
        """Goes on until there is enough to be checked."""
        while not self._is_enough():
            await self.acknowledged(20)

    async def finish(self, *, converges_s: float, worker: str) -> None:
        """Goes on until there is enough to be checked, leaves the platform alone for as long as it
        may take to converge (I2), and checks."""
        await self.enough()
        await self.stop()
        await asyncio.sleep(converges_s)
        await self.check(worker=worker)

    async def stop(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._running)

    async def close(self) -> None:
        self._stop.set()
        await asyncio.gather(*self._running, return_exceptions=True)
        for client in self._clients:
            for channel in client.channels:
                await channel.close()

    async def check(self, *, worker: str) -> None:
        """Every token is settled as its client saw it, and all servers agree on every counter, on
        its history and on what its events add up to."""
        self._assert_no_violation()
        channels = [open_channel(address) for address in self._addresses]
        stubs = [pb_grpc.CounterServiceStub(channel) for channel in channels]
        try:
            await settle_all(stubs[0], self.history)
            self._assert_no_violation()
            for stub in stubs:
                await assert_counts(stub, self.history)
                await assert_history(stub, self.history)
            await assert_audits(worker, self.history)
        finally:
            for channel in channels:
                await channel.close()
        self._assert_no_violation()
        self._assert_it_was_a_test()

    def _assert_no_violation(self) -> None:
        violations = self.history.report().violations
        if violations:
            path = Path(tempfile.mkdtemp(prefix="tally-history-")) / "history.jsonl"
            self.history.save(path)
            first = "\n".join(str(each) for each in violations[:5])
            raise AssertionError(f"{first}\nAll of it: tally verify {path}")

    def _assert_it_was_a_test(self) -> None:
        """Tokens were sent twice and late, duplicates were told, and counters cleared."""
        assert self._is_enough()
        report = self.history.report()
        assert all(report.checked.values()), report.checked
        assert report.tokens_unsettled == 0
        assert report.counters_read_whole == report.counters

    def _is_enough(self) -> bool:
        history = self.history
        return (
            len(history.deltas) > self._events_least
            and history.writes > len(history.deltas) * 1.3
            and list(history.outcomes.values()).count(Outcome.FAIL) > 10
            and history.duplicates_seen > 10
            and any(delta is None for delta in history.deltas.values())
        )

    def _minutes(self) -> set[int]:
        return {event.time_ns // (60 * NS) for event in self.history.deltas}

    def _acknowledged(self) -> int:
        return list(self.history.outcomes.values()).count(Outcome.OK)


@asynccontextmanager
async def under_load(*addresses: str, **habits: Any) -> AsyncIterator[Load]:
    """By clients with these habits."""
    load = Load(addresses, Habits(**habits))
    try:
        yield load
    finally:
        await load.close()
