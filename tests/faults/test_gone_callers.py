"""F24: callers give up, go away or do not read. An event counts or does not (I1), others notice
nothing, and nothing of them stays behind in the server: no call, no file descriptor, no memory."""

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import rollup_service_pb2 as rollups_pb
from tally.verify.history import Outcome
from tests.calls import Calls, eventually, fresh_counter
from tests.history import EventId, History
from tests.load import under_load
from tests.processes import FAST_CONVERGENCE_S, ROOT, TallyProcess
from tests.scrape import Scrape
from tests.streamed_adds import batch_of

CALLERS_KILLED = 4
STREAMS_LEFT = 40
MEBIBYTE = 1 << 20
# While a caller does not read the 200 MB that are there for it.
HELD_BACK_MIB_MAX = 100.0
# Afterwards. Generous: answers under way leave holes, which are used again and not given back.
MEMORY_GROWTH_MIB_MAX = 200.0
# Sends adds over a stream for ever, and says how many batches were answered.
CALLER = """
import itertools, sys
from tests.calls import Calls
from tests.streamed_adds import batch_of
batches = (batch_of(sys.argv[2], number, 100) for number in itertools.count(1))
with Calls(sys.argv[1]) as calls:
    for answered, _ in enumerate(calls.counters.StreamAddCount(batches), 1):
        print(answered, flush=True)
"""


class Footprint:
    """What a process holds."""

    def __init__(self, tally: TallyProcess, metrics: str) -> None:
        self._process = psutil.Process(tally.process.pid)
        self._metrics = metrics
        self._before_mib = self.memory_mib()
        self._before_files = self._process.num_fds()
        self._before_threads = self._process.num_threads()

    def memory_mib(self) -> float:
        resident: int = self._process.memory_info().rss
        return resident / MEBIBYTE

    def assert_nothing_stays(self) -> None:
        """Once its callers are gone. gRPC keeps a few descriptors and threads of its own."""
        for gauge in ("tally_calls_in_flight", "tally_events_waiting"):
            eventually(lambda gauge=gauge: self._gauge(gauge), lambda value: value == 0)
        eventually(self._process.num_fds, lambda files: files <= self._before_files + 5)
        assert self._process.num_threads() <= self._before_threads + 10
        assert self.memory_mib() < self._before_mib + MEMORY_GROWTH_MIB_MAX

    def _gauge(self, name: str) -> float:
        return Scrape(self._metrics).total(name)


@pytest.fixture
def footprint(steady: TallyProcess, metrics: str) -> Footprint:
    with Calls(steady.address) as calls:  # what the first call brings is no leak
        calls.add("plays", fresh_counter())
    return Footprint(steady, metrics)


@pytest.mark.timeout(600)
async def test_calls_are_cancelled(steady: TallyProcess, footprint: Footprint) -> None:
    async with under_load(
        steady.address, late_s=(1.0, 4.0), cancels=0.4, pause_s=0.02, name=fresh_counter("f24")
    ) as load:
        while load.history.cancelled < 500:
            await load.acknowledged(20)
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=steady.address)
    # Nobody was told of these, and they count all the same.
    never_answered = given_up(load.history)
    assert any(load.history.outcomes[event] is Outcome.OK for event in never_answered)
    await asyncio.to_thread(footprint.assert_nothing_stays)


def given_up(history: History) -> set[EventId]:
    """The events of which no call was answered."""
    answered = {
        EventId(call.namespace, call.counter, call.generation_time_ns, call.token)
        for call in history.calls
        if call.is_write and call.outcome is not Outcome.UNKNOWN
    }
    return set(history.deltas) - answered


@pytest.mark.timeout(300)
def test_callers_are_killed(steady: TallyProcess, footprint: Footprint) -> None:
    counter, answered = fresh_counter(), 0
    for number in range(CALLERS_KILLED):
        # Tokens of their own, so that no two callers send the same event.
        name = f"{counter}-{number}"
        caller = subprocess.Popen(
            [sys.executable, "-c", CALLER, steady.address, name],
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        assert caller.stdout is not None
        for line in itertools.islice(caller.stdout, 20):
            answered = int(line)
        caller.kill()
        answered = max([answered, *map(int, caller.stdout.read().split())])
        caller.wait(10)
        caller.stdout.close()
        assert answered >= 20
        with Calls(steady.address) as calls:
            assert_converged(calls, name, at_least=100 * answered)
    footprint.assert_nothing_stays()


def assert_converged(calls: Calls, counter: str, *, at_least: int) -> None:
    """What was answered counts, what was not may, and all agree on it."""

    def read() -> tuple[int, int]:
        return calls.accurate("plays", counter), calls.get("plays", counter).count

    accurate, _ = eventually(read, lambda counts: counts[0] == counts[1] >= at_least)
    assert accurate >= at_least
    request = rollups_pb.AuditCounterRequest(namespace="plays", counter_name=counter)
    audit = calls.rollups.AuditCounter(request, timeout=30)
    assert audit.result == rollups_pb.AUDIT_RESULT_EQUAL


def test_streams_are_left_open_and_dropped(steady: TallyProcess, footprint: Footprint) -> None:
    """Their callers send and do not read, then the connections break."""
    more = threading.Event()
    counter = fresh_counter()

    def batches(number: int) -> Iterator[pb.StreamAddCountRequest]:
        yield batch_of(f"{counter}-{number}", 1, 500)
        more.wait(60)

    callers = [Calls(steady.address) for _ in range(STREAMS_LEFT)]
    streams = [
        calls.counters.StreamAddCount(batches(number)) for number, calls in enumerate(callers)
    ]
    with Calls(steady.address) as calls:
        for number in range(STREAMS_LEFT):
            eventually(
                lambda number=number: calls.accurate("plays", f"{counter}-{number}"),
                lambda count: count == 500,
            )
    assert all(stream.is_active() for stream in streams)
    for calls in callers:
        calls.channel.close()
    more.set()
    footprint.assert_nothing_stays()


def test_a_caller_that_does_not_read_is_held_back(
    steady: TallyProcess, footprint: Footprint
) -> None:
    offered, adds_per_batch, sent = 800, 2_000, 0
    refused = batch_of(fresh_counter(), 1, adds_per_batch)
    refused.namespace = "playz"  # each add is answered with that: over 200 MB in all

    def batches() -> Iterator[pb.StreamAddCountRequest]:
        nonlocal sent
        for number in range(1, offered + 1):
            refused.sequence_number = sent = number
            yield refused

    before_mib = footprint.memory_mib()
    with Calls(steady.address) as sending, Calls(steady.address) as others:
        stream = sending.counters.StreamAddCount(batches(), timeout=100)
        seen = -1
        while seen < sent or sent == 0:  # until no more goes out
            seen = sent
            time.sleep(1)
        assert sent < offered / 2
        assert footprint.memory_mib() < before_mib + HELD_BACK_MIB_MAX
        others.add("plays", fresh_counter())  # nobody else notices
        answered = 0
        for answer in stream:
            answered += 1
            assert answer.sequence_number == answered
            assert len(answer.outcomes) == adds_per_batch
        assert answered == sent == offered
    footprint.assert_nothing_stays()
