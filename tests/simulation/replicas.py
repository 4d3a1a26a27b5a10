"""Three replicas of every row, and the quorums over them.

Plain writes go to all replicas and are done when two have answered; rows are kept by their
timestamps. Reads ask two, and the third if one of them cannot be reached, and repair whichever of
the two is behind before they answer. What must be decided once goes through Paxos, ballot by
ballot, as Cassandra's lightweight transactions do: a proposal that timed out may be completed later
by somebody else.

Every message may be slow, be lost, or land much later than its sender gave up on it.

Rows expire by the clock of the node that coordinates a request, in whole seconds: that of a write
says until when, that of a read whether it is over.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from random import Random
from typing import Any, NamedTuple

from counter.errors import StoreUnavailable
from tests.simulation.loop import NOBODY, VirtualLoop
from tests.simulation.statements import Key, Mutation, Selection
from tests.simulation.witness import Witness

QUORUM = 2
Answers = list[tuple["Replica", Any]]
_BACKOFF_S = 0.02
# A read that misses an answer asks another replica about so much later.
_SECOND_CHOICE_S = 0.05


class Cell(NamedTuple):
    stamp_us: int
    value: Any  # None: deleted
    ends_s: float  # of virtual time

    def wins_over(self, other: "Cell | None") -> bool:
        if other is None or self.stamp_us != other.stamp_us:
            return other is None or self.stamp_us > other.stamp_us
        if self.ends_s != other.ends_s:
            return self.ends_s > other.ends_s
        return repr(self.value) > repr(other.value)


class Put(NamedTuple):
    """A cell on its way to a replica."""

    table: str
    partition: Key
    row: Key
    cell: Cell


@dataclass
class _Ballots:
    """What a replica remembers of one row that is being agreed on."""

    promised: int = 0
    accepted: int = 0
    proposal: Put | None = None


class Replica:
    def __init__(self, number: int, loop: VirtualLoop, witness: Witness) -> None:
        self.number = number
        self.is_up = True
        self.clock_offset_s = 0.0
        self._loop = loop
        self._witness = witness
        self.tables: dict[str, dict[Key, dict[Key, Cell]]] = {}
        self._ballots: dict[tuple[str, Key, Key], _Ballots] = {}

    def apply(self, puts: Iterable[Put]) -> bool:
        for put in puts:
            rows = self.tables.setdefault(put.table, {}).setdefault(put.partition, {})
            present = rows.get(put.row)
            if present is not None and present.stamp_us == put.cell.stamp_us:
                self._witness.same_stamp(put.table, put.row, present.value, put.cell.value)
            if put.cell.wins_over(present):
                rows[put.row] = put.cell
                self._witness.applied(put.table, put.partition, put.row, put.cell)
        return True

    def select(self, selection: Selection, now_s: float) -> dict[Key, Cell]:
        """Also deleted rows: whoever merges must know of them."""
        rows = self.tables.get(selection.table, {}).get(selection.partition)
        if not rows:
            return {}
        keys = [key for key in rows if rows[key].ends_s > now_s and selection.takes(key)]
        if len(keys) > selection.limit:
            keys.sort(reverse=selection.newest_first)
            del keys[selection.limit :]
        return {key: rows[key] for key in keys}

    # Paxos.

    def prepare(
        self, key: tuple[str, Key, Key], ballot: int, now_s: float
    ) -> "tuple[bool, _Ballots, Any]":
        ballots = self._ballots.setdefault(key, _Ballots())
        is_promised = ballot > ballots.promised
        if is_promised:
            ballots.promised = ballot
        table, partition, row = key
        cell = self.tables.get(table, {}).get(partition, {}).get(row)
        if cell is not None and cell.ends_s <= now_s:
            cell = None
        seen = _Ballots(ballots.promised, ballots.accepted, ballots.proposal)
        return is_promised, seen, cell

    def accept(self, key: tuple[str, Key, Key], ballot: int, proposal: Put) -> bool:
        ballots = self._ballots.setdefault(key, _Ballots())
        if ballot < ballots.promised:
            return False
        ballots.promised = ballots.accepted = ballot
        ballots.proposal = proposal
        return True

    def commit(self, key: tuple[str, Key, Key], proposal: Put) -> bool:
        ballots = self._ballots.setdefault(key, _Ballots())
        if ballots.proposal is not None and ballots.accepted <= proposal.cell.stamp_us:
            ballots.proposal = None
        return self.apply([proposal])


@dataclass
class Weather:
    """How the network is. The nemesis changes it."""

    latency_s: float = 0.001
    slow_share: float = 0.0  # of messages; up to `slow_s`
    slow_s: float = 2.0
    lost_share: float = 0.0
    # Of lost writes: those that reach their replica much later, as hints do.
    hinted_share: float = 0.7
    hint_s: float = 15.0
    # By name: how long such a request waits before it is sent, at most; whoever sends it.
    slow_statements: dict[str, float] = field(default_factory=dict)
    # And how long its answer takes from the node to whoever asked.
    slow_answers: dict[str, float] = field(default_factory=dict)
    # (name of a machine, replica): no message passes.
    cut: set[tuple[str, int]] = field(default_factory=set)
    # Of segments: those that land on all replicas long after their server gave up.
    late_share: float = 0.0
    # Of agreements: those whose answer is lost when everything is done.
    lost_agreements_share: float = 0.0


class Replicas:
    """The cluster, as its clients see it."""

    def __init__(
        self, loop: VirtualLoop, chance: Random, witness: Witness, *, timeout_s: float
    ) -> None:
        self.replicas = [Replica(number, loop, witness) for number in range(3)]
        self.weather = Weather()
        self.timeout_s = timeout_s
        self._loop = loop
        self._chance = chance
        self._witness = witness
        self._ballot = 0
        # Until when each request waits, in order.
        self._waiting: deque[tuple[float, _Request]] = deque()

    async def before(self, statement: str) -> None:
        """Waits as long as requests of this kind wait now."""
        await self._hold(statement, self.weather.slow_statements)

    async def after(self, statement: str) -> None:
        await self._hold(statement, self.weather.slow_answers)

    async def _hold(self, statement: str, slow: dict[str, float]) -> None:
        if statement in slow:
            self._witness.counted["statements slowed down"] += 1
            await asyncio.sleep(self._chance.random() * slow[statement])

    async def write(self, machine: str, puts: Sequence[Put]) -> None:
        weather = self.weather
        if puts[0].table == "event_log" and self._chance.random() < weather.late_share:
            self._witness.counted["segments held up"] += 1
            for replica in self.replicas:
                longest_s = self._chance.choice((self.timeout_s + 2.0, weather.hint_s))
                later_s = self._chance.uniform(self.timeout_s, longest_s)
                self._loop.call_later(later_s, replica.apply, puts, context=NOBODY)
            await asyncio.sleep(self.timeout_s)
            raise StoreUnavailable("no quorum in time: the outcome is unknown")
        await self._ask(machine, lambda replica: replica.apply(puts), is_write=True)

    async def read(self, machine: str, selection: Selection) -> list[tuple[Key, Any]]:
        """The rows, in order. One that timed out is asked for once more, as the driver does."""
        try:
            merged = await self._read(machine, selection)
        except StoreUnavailable:
            merged = await self._read(machine, selection)
        keys = sorted(
            (key for key, cell in merged.items() if cell.value is not None),
            reverse=selection.newest_first,
        )
        return [(key, merged[key].value) for key in keys[: selection.limit]]

    async def _read(self, machine: str, selection: Selection) -> dict[Key, Cell]:
        now_s = self._coordinator_s()
        answers = await self._ask(machine, lambda replica: replica.select(selection, now_s))
        (_, first), (_, second) = answers
        if first == second:
            return first
        merged = dict(first)
        for key, cell in second.items():
            if cell.wins_over(merged.get(key)):
                merged[key] = cell
        self._witness.counted["reads repaired"] += 1
        repairs = []
        for replica, had in answers:
            missing = [
                Put(selection.table, selection.partition, key, cell)
                for key, cell in merged.items()
                if had.get(key) != cell
            ]
            if missing:
                repairs.append(self._repair(machine, replica, missing))
        await asyncio.gather(*repairs)
        return merged

    async def _repair(self, machine: str, replica: Replica, puts: list[Put]) -> None:
        await self._ask(machine, lambda each: each.apply(puts), of=[replica], is_write=True)

    async def insert_if_absent(self, machine: str, mutation: Mutation) -> Any:
        """None if ours is in now, else the value that was there.

        The coordinator is a node, not the caller: it goes on when the caller is gone.
        """
        coordinator = self._loop.create_task(self._agree(machine, mutation), context=NOBODY.copy())
        answer: asyncio.Future[Any] = self._loop.create_future()

        def pass_on(task: asyncio.Task[Any]) -> None:
            error = task.exception()
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(task.result())

        if self._chance.random() < self.weather.lost_agreements_share:
            self._witness.counted["answers of agreements lost"] += 1
            self._loop.call_later(self.timeout_s, _fail, answer, context=NOBODY)
        else:
            coordinator.add_done_callback(pass_on, context=NOBODY)
        return await answer

    async def _agree(self, machine: str, mutation: Mutation) -> Any:
        key = (mutation.table, mutation.partition, mutation.row)
        ends_s = self._loop.time() + self.timeout_s
        now_s = self._coordinator_s()
        while self._loop.time() < ends_s:
            self._ballot += 1
            ballot = self._ballot
            promises = [
                (replica, promise)
                for replica, promise in await self._ask(
                    machine, lambda replica, ballot=ballot: replica.prepare(key, ballot, now_s)
                )
            ]
            if not all(is_promised for _, (is_promised, _, _) in promises):
                await self._back_off()
                continue
            unfinished = max(
                (seen for _, (_, seen, _) in promises if seen.proposal is not None),
                key=lambda seen: seen.accepted,
                default=None,
            )
            present = max(
                (cell for _, (_, _, cell) in promises if cell is not None),
                key=lambda cell: cell.stamp_us,
                default=None,
            )
            if present is not None:
                # Decided before. Whoever lacks it gets it before anybody is told.
                held = Put(*key, present)
                await self._commit(machine, key, held)
                return present.value
            if unfinished is not None:
                self._witness.counted["agreements completed for others"] += 1
                stamped = unfinished.proposal._replace(
                    cell=unfinished.proposal.cell._replace(stamp_us=ballot)
                )
                if await self._accept(machine, key, ballot, stamped):
                    await self._commit(machine, key, stamped)
                continue
            proposal = Put(*key, Cell(ballot, mutation.value, self.ends_s(mutation)))
            if not await self._accept(machine, key, ballot, proposal):
                await self._back_off()
                continue
            await self._commit(machine, key, proposal)
            return None
        raise StoreUnavailable("too many agree on this at once: the outcome is unknown")

    async def _accept(
        self, machine: str, key: tuple[str, Key, Key], ballot: int, proposal: Put
    ) -> bool:
        answers = await self._ask(
            machine, lambda replica: replica.accept(key, ballot, proposal), is_write=True
        )
        return all(accepted for _, accepted in answers)

    async def _commit(self, machine: str, key: tuple[str, Key, Key], proposal: Put) -> None:
        await self._ask(machine, lambda replica: replica.commit(key, proposal), is_write=True)

    async def _back_off(self) -> None:
        self._witness.counted["ballots lost"] += 1
        await asyncio.sleep(self._chance.uniform(0, _BACKOFF_S))

    def ends_s(self, mutation: Mutation) -> float:
        return self._coordinator_s() + mutation.ttl_s if mutation.ttl_s else float("inf")

    def _coordinator_s(self) -> float:
        """What the clock of the node that coordinates a request says, in whole seconds."""
        replica = self.replicas[int(self._chance.random() * 3)]
        return float(int(self._loop.time() + replica.clock_offset_s))

    def now_ms(self, epoch_ns: int) -> int:
        """The clock of the node that coordinates a request."""
        node = self._chance.choice(self.replicas)
        return epoch_ns // 1_000_000 + int((self._loop.time() + node.clock_offset_s) * 1_000)

    # Messages.

    def _ask(
        self,
        machine: str,
        do: Callable[[Replica], Any],
        *,
        of: Sequence[Replica] | None = None,
        is_write: bool = False,
    ) -> "asyncio.Future[Answers]":
        """The first answers, as many as a quorum has. Those that come later are forgotten."""
        asked = self.replicas if of is None else of
        request = _Request(self, machine, do, min(QUORUM, len(asked)), is_write)
        self._give_up_later(request)
        # The node that coordinates may be slow too, before it asks or before it answers.
        before_s, request.after_s = self._pause_s(), self._pause_s()
        ways = []
        for replica in asked:
            delay_s = self.delay_s(machine, replica)
            if delay_s is not None:
                ways.append((before_s + delay_s, replica))
            elif is_write and self._chance.random() < self.weather.hinted_share:
                later_s = self._chance.uniform(0, self.weather.hint_s)
                self._loop.call_later(later_s, request.land, replica, context=NOBODY)
        if not is_write and len(ways) > QUORUM:
            ways.sort(key=itemgetter(0))
            request.spare = ways.pop()[1]
        for delay_s, replica in ways:
            self._loop.call_later(delay_s, request.deliver, replica, context=NOBODY)
        return request.done

    def _give_up_later(self, request: "_Request") -> None:
        """All wait equally long, so one timer is enough: that of the first that waits."""
        self._waiting.append((self._loop.time() + self.timeout_s, request))
        if len(self._waiting) == 1:
            self._loop.call_later(self.timeout_s, self._give_up, context=NOBODY)

    def _give_up(self) -> None:
        waiting, now_s = self._waiting, self._loop.time()
        while waiting and (waiting[0][1].done.done() or waiting[0][0] <= now_s):
            waiting.popleft()[1].give_up()
        if waiting:
            self._loop.call_at(waiting[0][0], self._give_up, context=NOBODY)

    def _pause_s(self) -> float:
        if self.weather.slow_share and self._chance.random() < self.weather.slow_share:
            return self._chance.random() * self.weather.slow_s
        return 0.0

    def delay_s(self, machine: str, replica: Replica) -> float | None:
        """Of one message; None: it is lost."""
        weather, random = self.weather, self._chance.random
        if not replica.is_up or (weather.cut and (machine, replica.number) in weather.cut):
            return None
        if weather.lost_share or weather.slow_share:
            drawn = random()
            if drawn < weather.lost_share:
                return None
            if drawn < weather.lost_share + weather.slow_share:
                return random() * weather.slow_s
        return weather.latency_s * (0.2 + 2 * random())

    # What all replicas know together, at the end of a run.

    def merged(self, table: str) -> dict[tuple[Key, Key], Any]:
        cells: dict[tuple[Key, Key], Cell] = {}
        for replica in self.replicas:
            for partition, rows in replica.tables.get(table, {}).items():
                for row, cell in rows.items():
                    if cell.wins_over(cells.get((partition, row))):
                        cells[partition, row] = cell
        return {key: cell.value for key, cell in cells.items() if cell.value is not None}


class _Request:
    """On its way to replicas, and back."""

    __slots__ = (
        "_answers",
        "_applied",
        "_cluster",
        "_do",
        "_is_write",
        "_machine",
        "_needed",
        "after_s",
        "done",
        "spare",
    )

    def __init__(
        self,
        cluster: Replicas,
        machine: str,
        do: Callable[[Replica], Any],
        needed: int,
        is_write: bool,
    ) -> None:
        self._cluster = cluster
        self._machine = machine
        self._do = do
        self._needed = needed
        self._is_write = is_write
        self.after_s = 0.0
        self.spare: Replica | None = None  # to be asked if another one cannot be reached
        self.done: asyncio.Future[Answers] = cluster._loop.create_future()
        self._answers: Answers = []
        self._applied = 0

    def deliver(self, replica: Replica) -> None:
        loop, delay_s = self._cluster._loop, None
        if replica.is_up:
            answer = self.land(replica)
            delay_s = self._cluster.delay_s(self._machine, replica)
        if delay_s is not None:
            loop.call_later(delay_s, self._arrive, replica, answer, context=NOBODY)
        elif self.spare is not None:
            spare, self.spare = self.spare, None
            loop.call_later(_SECOND_CHOICE_S, self.deliver, spare, context=NOBODY)

    def land(self, replica: Replica) -> Any:
        """At a replica, however late."""
        if not replica.is_up:
            return None
        if self._is_write and self.done.done():
            self._cluster._witness.counted["writes landed after their answer"] += 1
        self._applied += 1
        return self._do(replica)

    def _arrive(self, replica: Replica, answer: Any) -> None:
        if self.done.done() or len(self._answers) == self._needed:
            return
        self._answers.append((replica, answer))
        if len(self._answers) == self._needed:
            if self.after_s:
                self._cluster._loop.call_later(self.after_s, self._finish, context=NOBODY)
            else:
                self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(self._answers)

    def give_up(self) -> None:
        if not self.done.done():
            counted = self._cluster._witness.counted
            if self._is_write and self._applied:
                counted["writes timed out after they were applied"] += 1
            counted["requests timed out"] += 1
        _fail(self.done)


def _fail(answer: "asyncio.Future[Any]") -> None:
    if not answer.done():
        answer.set_exception(StoreUnavailable("no quorum in time: the outcome is unknown"))


async def patiently(do: Callable[[], Any], *, every_s: float = 0.5) -> Any:
    """Tries for ever, as programs do while they start."""
    while True:
        with contextlib.suppress(StoreUnavailable):
            return await do()
        await asyncio.sleep(every_s)
