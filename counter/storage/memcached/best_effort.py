"""Counters of best_effort, shared by the fleet: numbers in memcached, and nothing else.

**What is stored** is count + 2^62 in decimal: memcached's numbers have no sign, `decr` stops at 0,
and numbers from 2^63 on are not safe (memcached takes them for text when a minus sign lies in the
memory behind them). Counts stay within +-2^61: one beyond is set back to the limit by whoever sees
it, and what one call adds to one counter is cut off at +-2^59, so a number would have to be pushed
over four times before anybody looks to reach an end.

**Creating** is part of the add: memcached makes the counter with its first value if it is missing,
in one step, so two that come first at the same time are both counted.

**Tokens** are entries that are added before the counter is changed; the add of one that is there
already fails, and that add is a duplicate. A crash or a lost answer between the two errs on the
low side: the token is there, the change may not be, and a repetition is taken for a duplicate.
(Where the server itself says that it did not change the counter, the token is removed again.)
They are on the server of their counter, so that a server that loses one loses the other too. A
token is remembered for at least its time, up to two seconds more (memcached knows whole seconds).

**One call is few round trips:** one for the tokens, if there are any, and one for the counters, in
which all adds to one counter are one command. The count after each add is computed back from that
command's answer.
"""

from collections.abc import Sequence
from functools import lru_cache

from counter.errors import StoreDamaged, StoreUnavailable, TallyError
from counter.storage.memcached.connection import Reply
from counter.storage.memcached.keys import counter_keys, token_key
from counter.storage.memcached.servers import MemcachedServers
from counter.storage.ports import BestEffortAdd, BestEffortOutcome, CounterKey

_BIAS = 2**62
COUNT_LIMIT = 2**61
CALL_LIMIT = 2**59
# The length of each number within the limit, and so the first line of nearly all answers.
_NUMBER = b"VA %d" % len(str(_BIAS))
_CLEAR = b" %d T0\r\n%d\r\n" % (len(str(_BIAS)), _BIAS)


class _Step:
    """One command: the adds to a counter up to a clear, or a clear."""

    __slots__ = ("changes", "clears", "key", "positions", "total")

    def __init__(self, key: CounterKey, clears: bool) -> None:
        self.key = key
        self.clears = clears
        self.changes = False  # all of it was counted before, it is only read
        self.total = 0
        self.positions: list[int] = []  # in the call

    def command(self, route: bytes) -> bytes:
        if self.changes:
            return b"ma " + route + _change(self.total)
        if self.clears:
            return b"ms " + route + _CLEAR
        return b"mg %b v\r\n" % route


class MemcachedBestEffortCounters:
    def __init__(self, servers: MemcachedServers) -> None:
        self._servers = servers
        self._counters = f"{servers.prefix}:n:"
        self._tokens = f"{servers.prefix}:t:"

    async def apply(
        self, adds: Sequence[BestEffortAdd], *, dedupe_ttl_ms: int
    ) -> list[BestEffortOutcome]:
        outcomes: list[BestEffortOutcome] = [(0, False)] * len(adds)
        seen = await self._seen(adds, dedupe_ttl_ms, outcomes)
        steps, sums = _steps(adds, seen)
        routes = counter_keys(self._counters, [step.key for step in steps])
        commands = [step.command(route) for step, route in zip(steps, routes, strict=True)]
        replies = await self._servers.ask("incr", routes, commands)
        beyond: list[bytes] = []
        refused: list[int] = []  # fresh tokens of adds that were not done, for certain
        for step, route, reply in zip(steps, routes, replies, strict=True):
            number = self._number(route, reply, 0 if step.clears else None)
            positions = step.positions
            if not isinstance(number, int):
                for at in positions:
                    outcomes[at] = number
                    if reply is not None and adds[at].dedupe_key and not seen[at]:
                        refused.append(at)
                continue
            if not -COUNT_LIMIT <= number <= COUNT_LIMIT:
                beyond.append(route)
            elif len(positions) == 1:  # most of them: the same as below
                outcomes[positions[0]] = (number, seen[positions[0]] is True)
                continue
            before = number - _within(step.total, CALL_LIMIT)
            for at in positions:
                count = before + _within(sums[at], CALL_LIMIT)
                outcomes[at] = (_within(count, COUNT_LIMIT), seen[at] is True)
        if beyond:
            await self._set_back(beyond)
        if refused:
            await self._servers.ask(
                "set",
                counter_keys(self._counters, [adds[at].key for at in refused]),
                [b"md %b\r\n" % self._token(adds[at]) for at in refused],
            )
        return outcomes

    async def read(self, keys: Sequence[CounterKey]) -> list[int]:
        routes = counter_keys(self._counters, keys)
        replies = await self._servers.ask(
            "get", routes, [b"mg %b v\r\n" % route for route in routes]
        )
        counts = []
        for route, reply in zip(routes, replies, strict=True):
            number = self._number(route, reply)
            if isinstance(number, TallyError):
                raise number
            counts.append(_within(number, COUNT_LIMIT))
        return counts

    async def _seen(
        self,
        adds: Sequence[BestEffortAdd],
        dedupe_ttl_ms: int,
        outcomes: list[BestEffortOutcome],
    ) -> list[bool | None]:
        """By add: whether its token was there; None and an error as outcome if nobody knows."""
        seen: list[bool | None] = [False] * len(adds)
        positions = [at for at, add in enumerate(adds) if add.dedupe_key is not None]
        if not positions:
            return seen
        # Memcached's clock ticks once a second: one second more, so that it is not too short.
        ttl_s = -(-dedupe_ttl_ms // 1_000) + 1
        token_routes = counter_keys(self._counters, [adds[at].key for at in positions])
        replies = await self._servers.ask(
            "add",
            token_routes,
            [b"ms %b 0 T%d ME\r\n\r\n" % (self._token(adds[at]), ttl_s) for at in positions],
        )
        for at, route, reply in zip(positions, token_routes, replies, strict=True):
            if reply is not None and reply[0] in (b"HD", b"NS"):
                seen[at] = reply[0] == b"NS"
            else:
                seen[at] = None
                outcomes[at] = self._away(route, reply)
        return seen

    async def _set_back(self, routes: Sequence[bytes]) -> None:
        """To the limit, unless somebody else changed it meanwhile: he then sees it too."""
        replies = await self._servers.ask(
            "get", routes, [b"mg %b c v\r\n" % route for route in routes]
        )
        changed, commands = [], []
        for route, reply in zip(routes, replies, strict=True):
            number = self._number(route, reply)
            if reply is None or isinstance(number, TallyError) or abs(number) <= COUNT_LIMIT:
                continue
            value = _BIAS + _within(number, COUNT_LIMIT)
            cas = reply[0].rpartition(b" c")[2]
            changed.append(route)
            commands.append(b"ms %b %d T0 C%b\r\n%d\r\n" % (route, len(str(value)), cas, value))
        await self._servers.ask("set", changed, commands)

    def _token(self, add: BestEffortAdd) -> bytes:
        assert add.dedupe_key is not None
        return token_key(self._tokens, add.key, add.dedupe_key)

    def _number(
        self, route: bytes, reply: Reply | None, stored: int | None = None
    ) -> int | TallyError:
        """The count that an answer tells; `stored` is what a write without a number wrote."""
        if reply is not None:
            line, data = reply
            if line == _NUMBER and data.isdigit():
                return int(data) - _BIAS
            if line == b"HD" and stored is not None:
                return stored
            if line == b"EN":
                return 0
            if line.startswith(b"VA ") and data.strip().isdigit():
                return int(data) - _BIAS
            if line.startswith((b"VA ", b"CLIENT_ERROR")):
                return StoreDamaged(f"memcached has no number at {route.decode()}: clear it")
        return self._away(route, reply)

    def _away(self, route: bytes, reply: Reply | None) -> StoreUnavailable:
        name = self._servers.server_of(route).name
        if reply is None:
            return StoreUnavailable(
                f"memcached server {name} did not answer: this may have been counted or not",
                retry_after_ms=1_000,
            )
        return StoreUnavailable(
            f"memcached server {name} refused: {reply[0].decode(errors='replace')}",
            retry_after_ms=1_000,
        )


def _steps(
    adds: Sequence[BestEffortAdd], seen: Sequence[bool | None]
) -> tuple[list[_Step], list[int]]:
    """The commands in order, and by position in the call what its step adds up to there."""
    steps: list[_Step] = []
    sums = [0] * len(adds)
    last: dict[CounterKey, _Step] = {}
    for position, (key, delta, _) in enumerate(adds):
        duplicate = seen[position]
        if duplicate is None:
            continue
        clears = delta is None and not duplicate
        step = last.get(key)
        # What follows a clear is a command of its own, and so is the clear.
        if step is None or step.clears or clears:
            step = last[key] = _Step(key, clears)
            steps.append(step)
        if delta is not None and not duplicate:
            step.total += delta
            step.changes = True
        sums[position] = step.total
        step.positions.append(position)
    return steps, sums


@lru_cache(maxsize=1_024)
def _change(total: int) -> bytes:
    """What follows the key in a command: most adds are of a few sizes."""
    delta = _within(total, CALL_LIMIT)
    direction = b"D" if delta < 0 else b"I"
    return b" N0 J%d D%d M%b v\r\n" % (_BIAS + delta, abs(delta), direction)


def _within(number: int, limit: int) -> int:
    if number > limit:
        return limit
    return number if number >= -limit else -limit
