"""Somebody who spoils what memcached holds, while a fleet uses it: flushes it, fills it with
something else, and puts in other values than were there: garbage, those of other counters, and
those of a while ago."""

import random
import re
import socket
from collections import Counter
from urllib.parse import unquote_to_bytes

from tally.dev.memcached import Memcached
from tests.memcached_client import ANSWERED_WITHIN_S, ask

# Longer than memcached would keep it by itself.
KEPT_S = 60
_KEY = re.compile(rb"key=(\S+) ")


class Spoiler:
    def __init__(self, memcached: Memcached) -> None:
        self._memcached = memcached
        self._chance = random.Random(11)
        self._old: dict[bytes, bytes] = {}  # by key: the first value that was seen
        self.done: Counter[str] = Counter()

    def flush(self) -> None:
        assert ask(self._memcached, b"flush_all\r\n") == b"OK\r\n"
        self.done["flushed"] += 1

    def spoil(self) -> None:
        """Every counted key once, each in one of the ways."""
        for key in self._keys():
            value = self._get(key)
            if value is None:
                continue
            self._old.setdefault(key, value)
            way = self._chance.choice(["old", "other", "cut short", "garbage", "long"])
            spoilt = {
                "old": self._old[key],
                "other": self._chance.choice(list(self._old.values())),
                "cut short": value[: self._chance.randint(0, len(value))],
                "garbage": self._chance.randbytes(len(value)),
                "long": value + self._chance.randbytes(100_000),
            }[way]
            command = b"set %b 0 %d %d\r\n%b\r\n" % (key, KEPT_S, len(spoilt), spoilt)
            if ask(self._memcached, command) == b"STORED\r\n" and spoilt != value:
                self.done[way] += 1

    def crowd_out(self) -> None:
        """Writes other things, of all sizes, until memcached forgets what it had."""
        before = self.evictions()
        for number in range(200):
            ask(self._memcached, b"".join(self._filler(number, each) for each in range(1_000)))
            if self.evictions() > before + 5_000:
                self.done["crowded out"] += 1
                return

    def _filler(self, number: int, each: int) -> bytes:
        size = 20 + each % 300
        return b"set filler-%d-%d 0 0 %d noreply\r\n%b\r\n" % (number, each, size, b"." * size)

    def evictions(self) -> int:
        found = re.search(rb"STAT evictions (\d+)", ask(self._memcached, b"stats\r\n"))
        assert found is not None
        return int(found[1])

    def _keys(self) -> list[bytes]:
        """Of cached counts. Who asks for all keys can ask for nothing else on that connection."""
        where, dumped = (self._memcached.host, self._memcached.port), b""
        with socket.create_connection(where, timeout=ANSWERED_WITHIN_S) as connection:
            connection.sendall(b"lru_crawler metadump all\r\n")
            while not dumped.endswith(b"END\r\n"):
                dumped += connection.recv(65_536)
        keys = map(unquote_to_bytes, _KEY.findall(dumped))
        return [key for key in keys if b":c:" in key]

    def _get(self, key: bytes) -> bytes | None:
        answer = ask(self._memcached, b"get %b\r\n" % key)
        head, _, rest = answer.partition(b"\r\n")
        return rest.removesuffix(b"\r\nEND\r\n") if head.startswith(b"VALUE ") else None
