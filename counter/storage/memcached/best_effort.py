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
from dataclasses import dataclass, field

from counter.errors import StoreDamaged, StoreUnavailable, TallyError
from counter.storage.memcached.connection import Reply
from counter.storage.memcached.keys import counter_key, token_key
from counter.storage.memcached.servers import MemcachedServers
from counter.storage.ports import BestEffortAdd, BestEffortOutcome, CounterKey

_BIAS = 2**62
COUNT_LIMIT = 2**61
CALL_LIMIT = 2**59


@dataclass(kw_only=True, slots=True)
class _Step:
    """One command: the adds to a counter up to a clear, or a clear."""

    route: bytes
    clears: bool = False
    changes: bool = False  # False: all of it was counted before, it is only read
    total: int = 0
    # By position in the call: the sum of this step up to there, and whether it was a duplicate.
    parts: list[tuple[int, int, bool]] = field(default_factory=list)

    @property
    def delta(self) -> int:
        return _within(self.total, CALL_LIMIT)

    def command(self) -> bytes:
        if self.clears:
            return b"ms %b %d T0\r\n%d\r\n" % (self.route, len(str(_BIAS)), _BIAS)
        if not self.changes:
            return b"mg %b v\r\n" % self.route
        delta = self.delta
        return b"ma %b N0 J%d D%d M%b v\r\n" % (
            self.route,
            _BIAS + delta,
            abs(delta),
            b"D" if delta < 0 else b"I",
        )


class MemcachedBestEffortCounters:
    def __init__(self, servers: MemcachedServers) -> None:
        self._servers = servers
        self._counters = f"{servers.prefix}:n:"
        self._tokens = f"{servers.prefix}:t:"

    async def apply(
        self, adds: Sequence[BestEffortAdd], *, dedupe_ttl_ms: int
    ) -> list[BestEffortOutcome]:
        routes = {key: counter_key(self._counters, key) for key in {add.key for add in adds}}
        outcomes: list[BestEffortOutcome] = [(0, False)] * len(adds)
        seen = await self._seen(adds, routes, dedupe_ttl_ms, outcomes)
        steps = self._steps(adds, routes, seen)
        replies = await self._servers.ask(
            "incr", [step.route for step in steps], [step.command() for step in steps]
        )
        beyond: list[bytes] = []
        refused: list[int] = []  # fresh tokens of adds that were not done, for certain
        for step, reply in zip(steps, replies, strict=True):
            number = self._number(step.route, reply, 0 if step.clears else None)
            if isinstance(number, int) and abs(number) > COUNT_LIMIT:
                beyond.append(step.route)
            for position, so_far, duplicate in step.parts:
                if isinstance(number, TallyError):
                    outcomes[position] = number
                    if reply is not None and adds[position].dedupe_key and not duplicate:
                        refused.append(position)
                else:
                    count = number - step.delta + _within(so_far, CALL_LIMIT)
                    outcomes[position] = (_within(count, COUNT_LIMIT), duplicate)
        if beyond:
            await self._set_back(beyond)
        if refused:
            await self._servers.ask(
                "set",
                [routes[adds[at].key] for at in refused],
                [b"md %b\r\n" % self._token(adds[at]) for at in refused],
            )
        return outcomes

    async def read(self, keys: Sequence[CounterKey]) -> list[int]:
        routes = [counter_key(self._counters, key) for key in keys]
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
        routes: dict[CounterKey, bytes],
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
        token_routes = [routes[adds[at].key] for at in positions]
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

    def _steps(
        self,
        adds: Sequence[BestEffortAdd],
        routes: dict[CounterKey, bytes],
        seen: Sequence[bool | None],
    ) -> list[_Step]:
        steps: list[_Step] = []
        last: dict[CounterKey, _Step] = {}
        for position, ((key, delta, _), duplicate) in enumerate(zip(adds, seen, strict=True)):
            if duplicate is None:
                continue
            clears = delta is None and not duplicate
            step = last.get(key)
            if step is None or step.clears or clears:
                step = last[key] = _Step(route=routes[key], clears=clears)
                steps.append(step)
            if delta is not None and not duplicate:
                step.total += delta
                step.changes = True
            step.parts.append((position, step.total, duplicate))
        return steps

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


def _within(number: int, limit: int) -> int:
    if number > limit:
        return limit
    return number if number >= -limit else -limit
