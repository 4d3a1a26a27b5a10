"""Which server has a key, and which settings are refused."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from counter.errors import SetupError
from counter.storage.memcached import MemcachedServers, MemcachedSettings


def mapped(names: tuple[str, ...]) -> list[str]:
    servers = MemcachedServers(MemcachedSettings(servers=names))
    return [servers.server_of(f"key-{at}".encode()).name for at in range(20_000)]


def test_all_processes_agree_whatever_the_order() -> None:
    names = ("10.0.0.1:11211", "10.0.0.2:11211", "cache-3:11211", "[::1]:11212")
    assert mapped(names) == mapped(tuple(reversed(names))) == mapped((*names[2:], *names[:2]))


def test_the_mapping_is_the_same_in_every_version() -> None:
    """Processes of two versions run side by side in an upgrade, and must not disagree."""
    names = ("10.0.0.1:11211", "10.0.0.2:11211", "10.0.0.3:11211")
    assert [name[7] for name in mapped(names)[:24]] == list("313233311233233223311213")


def test_keys_are_spread_evenly() -> None:
    spread = Counter(mapped(tuple(f"10.0.0.{at}:11211" for at in range(5))))
    assert len(spread) == 5
    assert all(0.16 < each / 20_000 < 0.24 for each in spread.values())


def test_without_one_server_only_its_keys_move() -> None:
    names = tuple(f"10.0.0.{at}:11211" for at in range(5))
    before, after = mapped(names), mapped(names[1:])
    moved = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert {old for old, _ in moved} == {names[0]}
    assert {new for _, new in moved} == set(names[1:])


@pytest.mark.parametrize(
    ("servers", "message"),
    [
        ((), "there are none"),
        (("cache",), "'cache' is not host:port"),
        ((":11211",), "':11211' is not host:port"),
        (("cache:0",), "'cache:0' is not host:port"),
        (("cache:65536",), "'cache:65536' is not host:port"),
        (("cache:1e3",), "is not host:port"),
        (("cache:²",), "is not host:port"),
        (("my cache:11211",), "is not host:port"),
        (("cache\0:11211",), "is not host:port"),
        (("a:1", "b:1", "a:1"), "named twice"),
    ],
)
def test_impossible_servers_are_refused(servers: tuple[str, ...], message: str) -> None:
    with pytest.raises(SetupError, match=message):
        MemcachedSettings(servers=servers)


@pytest.mark.parametrize("setting", ["timeout_ms", "connections_per_server", "probe_interval_ms"])
def test_a_setting_below_1_is_refused_by_name(setting: str) -> None:
    with pytest.raises(SetupError, match=f"memcached {setting} is 0"):
        MemcachedSettings(servers=("a:1",), **{setting: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "x" * 70])
async def test_an_unknown_host_is_refused_at_the_start(host: str) -> None:
    servers = MemcachedServers(MemcachedSettings(servers=(f"{host}:11211",)))
    with pytest.raises(SetupError, match=f"memcached server {host}:11211: there is no host"):
        await servers.start()


@asynccontextmanager
async def something_else(answer: bytes) -> AsyncIterator[str]:
    """A server that is no memcached: it answers whatever comes with the same."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1_000):
            writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"ERROR\r\n", b"-ERR unknown command\r\n", b"VA x\r\n"],
    ids=["http", "memcached without meta commands", "redis", "nonsense"],
)
async def test_another_kind_of_server_is_refused_at_the_start(answer: bytes) -> None:
    async with something_else(answer) as name:
        servers = MemcachedServers(MemcachedSettings(servers=(name,), timeout_ms=5_000))
        with pytest.raises(SetupError, match=rf"{name}: something answers there, but not as"):
            await servers.start()


async def test_memcached_with_too_many_connections_is_only_away() -> None:
    async with something_else(b"ERROR Too many open connections\r\n") as name:
        servers = MemcachedServers(MemcachedSettings(servers=(name,), timeout_ms=5_000))
        await servers.start()
        assert servers.problem() is not None
        assert "Too many open connections" in servers.problem()  # type: ignore[operator]
        await servers.close()
