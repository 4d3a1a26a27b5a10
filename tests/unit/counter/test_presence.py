"""Presence: what processes say of themselves, who takes calls, and what happens while the store is
away."""

import asyncio
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

import counter.presence
from counter.clock import ManualClock
from counter.errors import StoreUnavailable
from counter.presence import (
    PROBLEM_CHARS_MAX,
    TRAFFIC_MAX,
    TTL_S,
    NamespaceTraffic,
    Presence,
    ProcessReport,
    decode,
    encode,
)
from counter.storage.memory import MemoryMembership
from tests.tampered import Tampered

PLAYS = NamespaceTraffic(
    namespace="plays", adds_per_s=1.5, reads_per_s=2.5, limited_per_s=0.5, counters=7
)
SERVER = ProcessReport(
    program="server",
    version=7,
    refused_version=8,
    problem="namespace plays needs memcached",
    traffic=(PLAYS,),
)


@pytest.fixture
def membership(clock: ManualClock) -> MemoryMembership:
    return MemoryMembership(monotonic_ns=clock.now_ns)


def process(membership: Any, name: str, program: str) -> Presence:
    return Presence(membership, name, lambda: ProcessReport(program=program))


async def test_everybody_reads_what_each_said_last(membership: MemoryMembership) -> None:
    said = ProcessReport()
    first = Presence(membership, "first", lambda: said)
    await first.beat()
    said = SERVER
    for each in msgspec.structs.fields(ProcessReport):
        assert getattr(said, each.name) != each.default, each.name
    await first.beat()
    other = Presence(membership, "other", lambda: ProcessReport(program="worker"))
    await other.beat()
    expected = {"first": SERVER, "other": ProcessReport(program="worker")}
    assert await first.processes() == expected
    assert await other.processes() == expected


async def test_servers_are_counted_with_each_beat(
    membership: MemoryMembership, clock: ManualClock
) -> None:
    server = process(membership, "server 1", "server")
    assert server.servers_alive == 1, "before the first beat"
    for name, program in (
        ("server 2", "server"),
        ("all in one", "serve"),
        ("worker", "worker"),
        ("control plane", "control-plane"),
        ("of the future", "proxy"),
    ):
        await process(membership, name, program).beat()
    await server.beat()
    assert server.servers_alive == 3
    clock.advance_ms(TTL_S * 1_000 - 1)
    await server.beat()
    assert server.servers_alive == 3
    clock.advance_ms(1)  # the others fell silent
    await server.beat()
    assert server.servers_alive == 1
    assert list(await server.processes()) == ["server 1"]


async def test_nobody_divides_by_no_servers(membership: MemoryMembership) -> None:
    worker = process(membership, "worker", "worker")
    await worker.beat()
    assert worker.servers_alive == 1


@pytest.mark.parametrize(
    "unreadable",
    [b"", b"\xc1", encode(SERVER)[:-1], encode(SERVER) + b"\x00", msgspec.msgpack.encode([7])],
)
async def test_a_report_that_cannot_be_read_is_as_good_as_none(
    membership: MemoryMembership, unreadable: bytes
) -> None:
    await membership.beat("odd", unreadable, ttl_s=60)
    server = process(membership, "server", "server")
    await server.beat()
    assert server.servers_alive == 1
    assert await server.processes() == {"odd": None, "server": ProcessReport(program="server")}


def test_versions_that_run_side_by_side_read_each_other() -> None:
    fields: list[Any] = msgspec.msgpack.decode(encode(SERVER))
    later = [*fields[:-1], [[*fields[-1][0], "new of traffic"]], "new of processes"]
    assert decode(msgspec.msgpack.encode(later)) == SERVER
    earlier = msgspec.msgpack.encode(["server", 7])
    assert decode(earlier) == ProcessReport(program="server", version=7)


def test_a_report_stays_small() -> None:
    """The busiest namespaces are in it, and the beginning of a problem."""
    traffic = [
        NamespaceTraffic(
            namespace=f"{number:064}",
            adds_per_s=float(number % 7),
            reads_per_s=float(number),
            limited_per_s=0.1,
            counters=10**9,
        )
        for number in range(1_000)
    ]
    long = ProcessReport(program="server", problem="é" * 10_000, traffic=tuple(traffic))
    body = encode(long)
    assert len(body) < 16_384
    found = decode(body)
    assert found is not None
    assert found.problem == "é" * PROBLEM_CHARS_MAX
    busiest = sorted(traffic, key=lambda each: each.adds_per_s + each.reads_per_s)[-TRAFFIC_MAX:]
    assert sorted(found.traffic, key=lambda each: each.namespace) == sorted(
        busiest, key=lambda each: each.namespace
    )


class Away:
    """A membership that fails while it is told to."""

    def __init__(self, membership: MemoryMembership) -> None:
        self.is_away = False
        self.calls = 0
        self.called = asyncio.Event()
        self.port: Any = Tampered("membership", membership, self._around)

    async def _around(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        self.called.set()
        if self.is_away:
            raise StoreUnavailable("no node answers")
        return await call(*args, **kwargs)

    async def wait_for_calls(self, calls: int) -> None:
        until = self.calls + calls
        while self.calls < until:
            self.called.clear()
            await self.called.wait()


async def test_while_the_store_is_away_the_last_number_of_servers_stays(
    membership: MemoryMembership, clock: ManualClock
) -> None:
    away = Away(membership)
    server = process(away.port, "server 1", "server")
    await process(membership, "server 2", "server").beat()
    await server.beat()
    assert server.servers_alive == 2
    away.is_away = True
    clock.advance_ms(TTL_S * 1_000)
    with pytest.raises(StoreUnavailable):
        await server.beat()
    with pytest.raises(StoreUnavailable):
        await server.processes()
    assert server.servers_alive == 2
    away.is_away = False
    await server.beat()
    assert server.servers_alive == 1


async def test_it_beats_on_through_failures_and_tells_each_of_them_once(
    membership: MemoryMembership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter.presence, "BEAT_EVERY_S", 0)
    away = Away(membership)
    server = process(away.port, "server", "server")
    running = asyncio.create_task(server.run())
    with capture_logs() as logs:
        await away.wait_for_calls(6)
        assert logs == []
        for failures in (1, 2):
            away.is_away = True
            await away.wait_for_calls(6)
            assert [each["action"] for each in logs] == ["presence_failed"] * failures
            away.is_away = False
            await away.wait_for_calls(6)
    assert (logs[0]["problem"], logs[0]["log_level"]) == ("no node answers", "warning")
    assert not running.done()
    running.cancel()
    assert [member for member, _ in await membership.live()] == ["server"]


async def test_who_leaves_is_gone_at_once(membership: MemoryMembership) -> None:
    first, second = (process(membership, name, "server") for name in ("first", "second"))
    await first.beat()
    await second.beat()
    assert second.servers_alive == 2
    await first.leave()
    await second.beat()
    assert second.servers_alive == 1
    assert list(await second.processes()) == ["second"]


async def test_who_cannot_say_that_it_leaves_leaves_all_the_same(
    membership: MemoryMembership,
) -> None:
    away = Away(membership)
    server = process(away.port, "server", "server")
    await server.beat()
    away.is_away = True
    with capture_logs() as logs:
        await server.leave()
    assert [each["action"] for each in logs] == ["left"]
