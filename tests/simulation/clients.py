"""Clients: add, clear, read and ask, each with a clock of its own, and write down what came of it.

Some clients do what they should not: send a token late, or long before its time, or again after it
was answered, to two servers at once, or with another delta.
"""

import asyncio

from counter.clock import NS_PER_S
from tests.simulation.administration import HISTORY_STEPS_MS, NAMES, NAMES_WEIGHTS, WITH_HISTORY
from tests.simulation.caller import Caller, CounterName, Token
from tests.simulation.machines import MachineClock
from tests.simulation.questions import Questions
from tests.simulation.tokens import Tokens
from tests.simulation.writes import Item, Writes

_ODD = ("edge", "late", "future", "again", "twice", "conflict")
_ODD_WEIGHTS = (6, 1, 1, 1, 1, 1)
# Of what is neither an odd add nor a clear.
_ACTS = {
    "add": 36,
    "batch": 9,
    "stream": 10,
    "add and get": 6,
    "adjust": 2,
    "read": 18,
    "read many": 4,
    "count at": 4,
    "history": 3,
    "list": 2,
    "top": 2,
    "status": 6,
}


class Client:
    def __init__(self, caller: Caller, clock: MachineClock) -> None:
        self._caller = caller
        self._scenario = caller.scenario
        self._chance = caller.chance
        self._clock = clock
        skew_s = self._chance.uniform(-1, 1) * self._scenario.client_skew_s
        clock.step(skew_s)
        self._tokens = Tokens(caller.name, caller.scenario, clock, caller.chance)
        self._questions = Questions(caller)
        self._writes = Writes(caller, self._questions)
        self._beside: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + self._scenario.load_s_max
        for _ in range(self._scenario.steps):
            await asyncio.sleep(self._chance.expovariate(1 / self._scenario.think_s))
            if loop.time() > ends_s:
                break
            await self._act()
        await asyncio.gather(*self._beside)

    async def _act(self) -> None:
        chance, scenario = self._chance, self._scenario
        counter = self._counter()
        if chance.random() < scenario.clear_share:
            await self._writes.write(counter, None, self._tokens.next())
        elif chance.random() < scenario.odd_share / 2:
            await self._add_oddly(counter)
        else:
            await self._act_as_usual(counter)

    async def _act_as_usual(self, counter: CounterName) -> None:
        chance, questions, writes = self._chance, self._questions, self._writes
        match chance.choices(list(_ACTS), weights=list(_ACTS.values()))[0]:
            case "add":
                await writes.write(counter, self._delta(), self._tokens.next())
            case "batch":
                await writes.add_batch(counter[0], self._items())
            case "stream":
                batches = [self._items() for _ in range(chance.randint(1, 4))]
                await writes.add_on_streams(counter[0], batches)
            case "add and get":
                await writes.add_and_get(counter, self._delta(), self._tokens.next())
            case "adjust":
                await writes.adjust(counter, chance.choice((-7, 3_000)), self._tokens.next())
            case "read":
                staleness_s = chance.choice((None, None, 0, 1))
                again = chance.random() < 0.5
                await questions.read([counter], staleness_s=staleness_s, again=again)
            case "read many":
                counters = [(counter[0], name) for name in self._names()]
                await questions.read(counters, staleness_s=chance.choice((None, 0)))
            case "count at":
                await questions.count_at(counter, self._past_ns())
            case "history":
                step_ms = chance.choice((None, *HISTORY_STEPS_MS))
                kept = (chance.choice(WITH_HISTORY), counter[1])
                await questions.history(kept, self._past_ns(), step_ms=step_ms)
            case "list":
                await questions.list(counter[0], self._names(), chance.choice((1, 0)))
            case "top":
                period_s = chance.choice((None, 2, 7))
                await questions.top(counter[0], self._names(), period_s)
            case "status":
                await self._ask_about_a_token()

    # What it picks.

    def _counter(self) -> CounterName:
        namespace = self._chance.choices(NAMES, weights=NAMES_WEIGHTS)[0]
        return namespace, self._chance.choice(self._names())

    def _names(self) -> list[str]:
        return [f"c{number}" for number in range(self._scenario.counters)]

    def _delta(self) -> int:
        return self._chance.choice((1, 1, 2, 5, 10, 100, -1, -3))

    def _items(self) -> list[Item]:
        """Of a batch; some are not as they should be."""
        return [
            (self._chance.choice(self._names()), self._delta_of_item(), self._token_of_item())
            for _ in range(self._chance.randint(2, 4))
        ]

    def _delta_of_item(self) -> int:
        return 0 if self._chance.random() < 0.05 else self._delta()

    def _token_of_item(self) -> Token:
        chance = self._chance
        drawn = chance.random() * 2
        if drawn < self._scenario.odd_share * 0.6:
            return self._tokens.at_the_edge()
        if drawn < self._scenario.odd_share:
            return self._tokens.aged(chance.uniform(-1, 2) * self._limit_s())
        return self._tokens.next()

    def _past_ns(self) -> int:
        return self._clock.now_ns() - int(self._chance.uniform(0.1, 12) * NS_PER_S)

    def _limit_s(self) -> float:
        return self._scenario.accept_limit_ms / 1_000

    # What it should not do.

    async def _add_oddly(self, counter: CounterName) -> None:
        chance, delta, write = self._chance, self._delta(), self._writes.write
        tokens, limit_s = self._tokens, self._limit_s()
        odd = chance.choices(_ODD, weights=_ODD_WEIGHTS)[0]
        self._caller.count(f"odd adds: {odd}")
        match odd:
            case "edge":
                await asyncio.gather(
                    write(counter, delta, tokens.at_the_edge()),
                    write(self._counter(), delta, tokens.at_the_edge()),
                    self._questions.read([counter], staleness_s=0),
                )
                await self._questions.read([counter], staleness_s=0)
            case "late":
                age_s = limit_s * chance.choice((0.5, 1.0, 1.2, 3.0)) + chance.random() * 2
                await write(counter, delta, tokens.aged(age_s))
            case "future":
                ahead_s = limit_s * chance.choice((0.5, 0.99, 1.5))
                await write(counter, delta, tokens.aged(-ahead_s))
            case "again":
                token = tokens.next()
                await write(counter, delta, token)
                later_s = chance.choice((0.01, 0.5, limit_s, limit_s + 3))
                self._beside.append(
                    asyncio.create_task(self._write_later(counter, delta, token, later_s))
                )
            case "twice":
                token = tokens.next()
                await asyncio.gather(write(counter, delta, token), write(counter, delta, token))
            case "conflict":
                token = tokens.next()
                await asyncio.gather(write(counter, delta, token), write(counter, delta + 7, token))

    async def _write_later(
        self, counter: CounterName, delta: int, token: Token, later_s: float
    ) -> None:
        await asyncio.sleep(later_s)
        await self._writes.write(counter, delta, token)

    async def _ask_about_a_token(self) -> None:
        written = [each.call for each in self._caller.history if each.call.is_write]
        if written:
            await self._questions.status(self._chance.choice(written))
