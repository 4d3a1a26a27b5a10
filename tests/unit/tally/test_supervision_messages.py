"""What supervisor and process tell each other, from both ends of the line."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tally.config import load
from tally.supervision.child import Lifeline
from tally.supervision.children import Child
from tally.supervision.messages import (
    BEAT_S,
    LENGTH,
    Family,
    FromChild,
    Ready,
    Refused,
    Sample,
    Scrape,
    Scraped,
    Serving,
    Stop,
    Task,
    decode_task,
    encode,
    encode_task,
    frames,
    from_child,
    to_child,
)
from tests.processes import free_port

Line = tuple[socket.socket, socket.socket]  # the supervisor's end, and the process's

FAMILY = Family("tally_adds", "Adds.", "counter", "", [Sample("tally_adds_total", {"a": "b"}, 3.0)])
CONFIG = """\
cassandra:
  contact_points: [{host}]
  port: {port}
  data_center: datacenter1
"""


def task_for(home: Path, host: str = "127.0.0.1") -> Task:
    """A process on a Cassandra that is not there."""
    file = home / "fleet.yaml"
    file.write_text(CONFIG.format(host=host, port=free_port()))
    return Task(
        number=2,
        config=load(file),
        listen=f"127.0.0.1:{free_port()}",
        log_format="text",
        bind_first=True,
    )


@pytest.fixture
def line() -> Iterator[Line]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.settimeout(10)
    with closing(ours), closing(theirs):
        yield ours, theirs


@pytest.fixture
def lifeline(line: Line) -> Iterator[Lifeline]:
    """Of a process; the supervisor is `line[0]`."""
    lifeline = Lifeline(line[1])
    yield lifeline
    line[0].close()
    lifeline.close()


class Recorded:
    """What a process was told, and when it was."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._changed = threading.Condition()

    def of(self, name: str) -> Callable[[], None]:
        def call() -> None:
            with self._changed:
                self.calls.append(name)
                self._changed.notify_all()

        return call

    def wait_for(self, *calls: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.calls == list(calls), 10), self.calls


def heard_from(line: socket.socket) -> Iterator[FromChild]:
    return (from_child.decode(body) for body in frames(line))


@pytest.mark.parametrize(
    "message",
    [
        Ready(("on a store",)),
        Serving("waiting"),
        Serving(None),
        Refused("no"),
        Scraped(7, [FAMILY]),
    ],
)
def test_what_a_process_says_arrives(line: Line, message: FromChild) -> None:
    line[1].sendall(encode(message) * 2)
    heard = heard_from(line[0])
    assert [next(heard), next(heard)] == [message, message]


def test_what_a_supervisor_says_arrives(line: Line) -> None:
    line[0].sendall(encode(Scrape(3)) + encode(Stop()))
    bodies = frames(line[1])
    assert [to_child.decode(next(bodies)), to_child.decode(next(bodies))] == [Scrape(3), Stop()]


def test_long_messages_arrive_whole(line: Line) -> None:
    long = Scraped(1, [FAMILY] * 100_000)  # far more than the kernel takes at once
    sending = threading.Thread(target=line[1].sendall, args=(encode(long),))
    sending.start()
    assert next(heard_from(line[0])) == long
    sending.join()


@pytest.mark.parametrize("left", [0, 2, 10])
def test_a_line_that_breaks_ends_the_messages(line: Line, left: int) -> None:
    """At an end of a message, in its length, or in the middle of it."""
    line[1].sendall(encode(Serving(None)) + encode(Serving("a long problem"))[:left])
    line[1].close()
    assert list(heard_from(line[0])) == [Serving(None)]


def test_a_task_travels_with_its_config(tmp_path: Path) -> None:
    task = task_for(tmp_path)
    assert decode_task(encode_task(task)[LENGTH.size :]) == task


def test_a_process_without_a_supervisor_has_no_task(line: Line, lifeline: Lifeline) -> None:
    line[0].close()
    assert lifeline.task() is None
    lifeline.refuse("nobody hears it")
    lifeline.close()  # and it does not wait for ever


def test_a_process_says_how_it_is_when_that_changes(line: Line, lifeline: Lifeline) -> None:
    for problem in ("starting", "waiting", "waiting", None, None, "stopping"):
        lifeline.tell(problem)
    lifeline.ready(["on a store"])
    lifeline.refuse("no")
    lifeline.close()
    line[1].close()
    said = [Serving("waiting"), Serving(None), Serving("stopping"), Ready(("on a store",))]
    assert list(heard_from(line[0])) == [*said, Refused("no")]


async def test_a_process_beats_and_a_deaf_supervisor_costs_no_memory(
    line: Line,
    lifeline: Lifeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beats = 0

    async def no_time(_: float) -> None:
        nonlocal beats
        beats += 1
        if beats == 100_000:
            raise asyncio.CancelledError

    lifeline.tell(None)
    with monkeypatch.context() as patched:
        patched.setattr("tally.supervision.child.asyncio.sleep", no_time)
        with suppress(asyncio.CancelledError):
            await lifeline.beat()
    assert beats == 100_000
    assert lifeline._outgoing.qsize() <= 1
    heard = heard_from(line[0])
    assert [next(heard) for _ in range(3)] == [Serving(None)] * 3


def test_a_process_answers_and_stops_when_it_is_told_to(line: Line, lifeline: Lifeline) -> None:
    told = Recorded()
    lifeline.listen(scrape=lambda: [FAMILY], stop=told.of("stop"), orphaned=told.of("orphaned"))
    line[0].sendall(encode(Scrape(1)) + encode(Scrape(2)) + encode(Stop()))
    heard = heard_from(line[0])
    assert [next(heard), next(heard)] == [Scraped(1, [FAMILY]), Scraped(2, [FAMILY])]
    told.wait_for("stop")
    line[0].close()
    told.wait_for("stop", "stop", "orphaned")


def test_metrics_that_fail_do_not_cut_the_line(line: Line, lifeline: Lifeline) -> None:
    def fail() -> list[Family]:
        raise ValueError("a gauge of ours")

    told = Recorded()
    lifeline.listen(scrape=fail, stop=told.of("stop"), orphaned=told.of("orphaned"))
    line[0].sendall(encode(Scrape(1)) + encode(Stop()))
    assert next(heard_from(line[0])) == Scraped(1, [])
    told.wait_for("stop")


async def until(condition: Callable[[], bool], within_s: float = 60.0) -> None:
    ends = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends
        await asyncio.sleep(0.02)


async def test_a_real_process_waits_beats_is_scraped_and_ends_when_told(tmp_path: Path) -> None:
    heard = 0

    def count() -> None:
        nonlocal heard
        heard += 1

    child = await Child.start(task_for(tmp_path), count)
    try:
        assert child.problem == "starting"
        await until(lambda: str(child.problem).startswith("waiting for Cassandra"))
        names = {family.name for family in await child.scrape()}
        assert {"process_resident_memory_bytes", "tally_background_failures"} <= names
        before = heard
        await until(lambda: heard >= before + 2, within_s=20 * BEAT_S)
        assert not child.is_ready
        child.stop()
        ended = await asyncio.wait_for(child.wait(), 60)
        assert (ended.code, ended.refusal) == (0, None)
    finally:
        child.kill()


async def test_a_real_process_that_cannot_start_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    child = await Child.start(task_for(tmp_path, host="no-such-host.invalid"), lambda: None)
    try:
        ended = await asyncio.wait_for(child.wait(), 60)
    finally:
        child.kill()
    assert ended.code == 1
    assert ended.refusal is not None
    assert ended.refusal.startswith(f"{tmp_path}/fleet.yaml:2:")
    assert "cassandra.contact_points" in ended.refusal
    assert "tally:" not in capfd.readouterr().err  # that is for the supervisor to say, once


async def test_a_real_process_ends_with_its_supervisor(tmp_path: Path) -> None:
    child = await Child.start(task_for(tmp_path), lambda: None)
    try:
        await until(lambda: child.problem != "starting")
        child._writer.close()  # as the kernel does for a supervisor that was killed
        assert (await asyncio.wait_for(child._process.wait(), 60)) == 0
    finally:
        child.kill()
