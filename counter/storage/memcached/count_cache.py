"""Counts with their stamps, shared by the fleet.

A value is a version byte, a checksum, and (count, complete_through, epoch, cleared_at, end). The
checksum covers the counter's full name too: a value that is damaged, was written by another
version, belongs to another name with the same hash, or answers another question than ours, is a
miss. It keeps mistakes out, not attackers: who can write to memcached can write what it likes.

**The end** is the wall clock of whoever wrote it plus the time to live, in milliseconds, because
memcached only knows whole seconds. The clocks of a fleet differ by up to max_clock_skew from the
store's, so an entry may live that much longer or shorter; memcached's own limit, the time to live
rounded up to seconds (2 at least), holds whatever the clocks say. This moves how old an answer
may be, never whether it is right: that is what its stamp is for.

**An older stamp does not replace a newer one.** A new entry is an `add`, which fails where one is;
then the present one is read and replaced by compare-and-swap if its stamp is not newer. That costs
a put of absent keys nothing, and others two more round trips. If somebody else is faster, his
value stays: he read at about the same time.
"""

from collections.abc import Sequence
from typing import Annotated

import msgspec
from xxhash import xxh3_64_digest

from counter.clock import NS_PER_MS, Clock, SystemClock
from counter.keys import namespace_prefix
from counter.rollups import CachedCount
from counter.storage.memcached.connection import MISS
from counter.storage.memcached.keys import counter_keys
from counter.storage.memcached.servers import MemcachedServers
from counter.storage.ports import CounterKey

_VERSION = b"\x01"
_HEAD_BYTES = 9  # version, checksum
# Memcached's clock ticks once a second: what is to live for one second may be gone at once.
_TTL_S_MIN = 2

_encode = msgspec.msgpack.Encoder().encode
# The count as an integer if that has 64 bits, else as the bytes of a larger one.
_Epoch = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_decode = msgspec.msgpack.Decoder(tuple[int | bytes, int, _Epoch, int, int]).decode


class MemcachedCountCache:
    def __init__(self, servers: MemcachedServers, *, clock: Clock | None = None) -> None:
        self._servers = servers
        self._start = f"{servers.prefix}:c:"
        self._clock = clock or SystemClock()

    async def get(self, keys: Sequence[CounterKey]) -> list[CachedCount | None]:
        routes = counter_keys(self._start, keys)
        replies = await self._servers.ask(
            "get", routes, [b"mg %b v\r\n" % route for route in routes]
        )
        now_ms = self._clock.now_ns() // NS_PER_MS
        found: list[CachedCount | None] = []
        last_id, prefix = -1, b""
        for (namespace_id, counter), reply in zip(keys, replies, strict=True):
            if reply is None or reply is MISS:
                found.append(None)
                continue
            if namespace_id != last_id:  # those of one namespace come together
                last_id, prefix = namespace_id, namespace_prefix(namespace_id)
            entry = _decoded(prefix, counter, reply[1])
            found.append(entry[0] if entry is not None and entry[1] > now_ms else None)
        return found

    async def put(self, items: Sequence[tuple[CounterKey, CachedCount]], *, ttl_ms: int) -> None:
        newest: dict[CounterKey, CachedCount] = {}
        for key, count in items:
            present = newest.get(key)
            if present is None or present.complete_through_ns <= count.complete_through_ns:
                newest[key] = count
        ends_ms = self._clock.now_ns() // NS_PER_MS + ttl_ms
        ttl_s = max(_TTL_S_MIN, -(-ttl_ms // 1_000))
        routes = counter_keys(self._start, newest)
        values = [encoded(key, count, ends_ms) for key, count in newest.items()]
        replies = await self._servers.ask(
            "add",
            routes,
            [
                b"ms %b %d T%d ME\r\n%b\r\n" % (route, len(value), ttl_s, value)
                for route, value in zip(routes, values, strict=True)
            ],
        )
        taken = [
            (key, count, route, value)
            for (key, count), route, value, reply in zip(
                newest.items(), routes, values, replies, strict=True
            )
            if reply is not None and reply[0] == b"NS"
        ]
        if taken:
            await self._replace(taken, ttl_s)

    async def _replace(
        self, taken: Sequence[tuple[CounterKey, CachedCount, bytes, bytes]], ttl_s: int
    ) -> None:
        routes = [route for _, _, route, _ in taken]
        replies = await self._servers.ask(
            "get", routes, [b"mg %b c v\r\n" % route for route in routes]
        )
        replaced: list[bytes] = []
        commands: list[bytes] = []
        for (key, count, route, value), reply in zip(taken, replies, strict=True):
            if reply is None or not reply[0].startswith(b"VA "):
                continue  # gone again: it may be lost
            present = decoded(key, reply[1])
            if present is None or present[0].complete_through_ns <= count.complete_through_ns:
                cas = reply[0].rpartition(b" c")[2]
                replaced.append(route)
                commands.append(
                    b"ms %b %d T%d C%b\r\n%b\r\n" % (route, len(value), ttl_s, cas, value)
                )
        if commands:
            await self._servers.ask("set", replaced, commands)


def encoded(key: CounterKey, count: CachedCount, ends_ms: int) -> bytes:
    number: int | bytes = count.count
    if not -(2**63) <= count.count < 2**63:
        number = count.count.to_bytes(count.count.bit_length() // 8 + 1, "big", signed=True)
    body = _encode((number, count.complete_through_ns, count.epoch, count.cleared_at_ns, ends_ms))
    namespace_id, counter = key
    return _head(namespace_prefix(namespace_id), counter, body) + body


def decoded(key: CounterKey, value: bytes) -> tuple[CachedCount, int] | None:
    """The count and when it ends; None if it is not what we would have written for this key."""
    namespace_id, counter = key
    return _decoded(namespace_prefix(namespace_id), counter, value)


def _decoded(prefix: bytes, counter: str, value: bytes) -> tuple[CachedCount, int] | None:
    body = value[_HEAD_BYTES:]
    if not value.startswith(_head(prefix, counter, body)):
        return None
    try:
        number, complete_through_ns, epoch, cleared_at_ns, ends_ms = _decode(body)
    except msgspec.DecodeError:
        return None
    if isinstance(number, bytes):
        number = int.from_bytes(number, "big", signed=True)
    return CachedCount(number, complete_through_ns, epoch, cleared_at_ns), ends_ms


def _head(prefix: bytes, counter: str, body: bytes) -> bytes:
    """The version and the checksum; `prefix` is that of the counter's namespace."""
    return _VERSION + xxh3_64_digest(body + prefix + counter.encode())
