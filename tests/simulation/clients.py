"""Clients: add, clear, read and ask, each with a clock of its own, and write down what came of it.

A call that got no answer is made again with the same token, mostly at another server. Some clients
do what they should not: send a token late, or long before its time, or again after it was answered,
to two servers at once, or with another delta.
"""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from google.protobuf.duration_pb2 import Duration

from counter.clock import NS_PER_S
from counter.rpc.values import timestamp, timestamp_ns
from counter.v1 import counter_service_pb2 as pb
from tally.verify.history import Call, CallKind, Outcome
from tests.simulation.administration import NAMES
from tests.simulation.calls import CallFailed, Network
from tests.simulation.machines import MachineClock
from tests.simulation.programs import Server
from tests.simulation.scenario import LOAD_S_MAX, Scenario
from tests.simulation.witness import Witness

# Refusals that promise that the call did nothing.
_REFUSALS = frozenset(
    {
        "TOKEN_EXPIRED",
        "TOKEN_FROM_FUTURE",
        "DELTA_TOO_LARGE",
        "NAMESPACE_UNKNOWN",
        "OVERLOADED",
        "ADDS_LIMITED",
        "FOLD_LAGGING",
    }
)
_ATTEMPTS_MAX = 4
_ODD = ("edge", "late", "future", "again", "twice", "conflict")
_ODD_WEIGHTS = (6, 1, 1, 1, 1, 1)

Token = tuple[str, int]  # and its time


class Client:
    def __init__(
        self,
        name: str,
        scenario: Scenario,
        servers: Sequence[Server],
        network: Network,
        clock: MachineClock,
        witness: Witness,
        history: list[Call],
    ) -> None:
        self._name = name
        self._scenario = scenario
        self._servers = servers
        self._network = network
        self._clock = clock
        self._witness = witness
        self._history = history
        self._chance = Random(f"{scenario.seed} {name}")
        skew_s = self._chance.uniform(-scenario.client_skew_s, scenario.client_skew_s)
        clock.step(skew_s)
        self._tokens = 0
        self._last_ns = 0
        self._seen: dict[tuple[str, str], int] = {}
        self._beside: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        ends_s = asyncio.get_running_loop().time() + LOAD_S_MAX
        for _ in range(self._scenario.steps):
            await asyncio.sleep(self._chance.expovariate(1 / self._scenario.think_s))
            if asyncio.get_running_loop().time() > ends_s:
                break
            await self._act()
        await asyncio.gather(*self._beside)

    async def _act(self) -> None:
        chance, scenario = self._chance, self._scenario
        counter = self._counter()
        drawn = chance.random()
        if drawn < scenario.clear_share:
            await self.write(counter, None, self._token())
        elif drawn < 0.6:
            if chance.random() < scenario.odd_share:
                await self._add_oddly(counter)
            else:
                await self.write(counter, self._delta(), self._token())
        elif drawn < 0.7:
            await self._add_batch(counter[0])
        elif drawn < 0.75:
            await self._add_and_get(counter)
        elif drawn < 0.97:
            staleness_s = chance.choice((None, None, 0, 1))
            await self.read(counter, staleness_s=staleness_s, again=chance.random() < 0.5)
        else:
            await self._ask_about_a_token()

    # Tokens.

    def _token(self, age_s: float = 0.0) -> Token:
        """Times rise as the SDK's do; those of odd tokens need not."""
        time_ns = self._clock.now_ns() - int(age_s * NS_PER_S)
        if not age_s:
            time_ns = self._last_ns = max(time_ns, self._last_ns + 1)
        self._tokens += 1
        return f"{self._name}.{self._tokens}", time_ns

    def _token_at_the_edge(self) -> Token:
        """Of a window that is about to be closed, or has just been."""
        scenario = self._scenario
        grace_s = (scenario.accept_limit_ms + scenario.max_clock_skew_ms) / 1_000
        window_s = scenario.window_ms / 1_000
        now_s = self._clock.now_ns() / NS_PER_S
        closed_at_s = now_s + self._chance.uniform(-0.2, 0.6) * window_s
        window = (closed_at_s - grace_s) // window_s  # the one after it is closed next
        time_s = (window - 1 + self._chance.random()) * window_s
        return self._token(now_s - time_s)

    def _counter(self) -> tuple[str, str]:
        namespace = self._chance.choices(NAMES, weights=(5, 4, 1))[0]
        return namespace, f"c{self._chance.randrange(self._scenario.counters)}"

    def _delta(self) -> int:
        return self._chance.choice((1, 1, 2, 5, 10, 100, -1, -3))

    # Writes.

    async def _add_oddly(self, counter: tuple[str, str]) -> None:
        chance, delta = self._chance, self._delta()
        limit_s = self._scenario.accept_limit_ms / 1_000
        odd = chance.choices(_ODD, weights=_ODD_WEIGHTS)[0]
        self._witness.counted[f"odd adds: {odd}"] += 1
        match odd:
            case "edge":
                token = self._token_at_the_edge()
                await asyncio.gather(
                    self.write(counter, delta, token),
                    self.write(self._counter(), delta, self._token_at_the_edge()),
                    self.read(counter, staleness_s=0),
                )
                await self.read(counter, staleness_s=0)
            case "late":
                age_s = limit_s * chance.choice((0.5, 1.0, 1.2, 3.0)) + chance.random() * 2
                await self.write(counter, delta, self._token(age_s))
            case "future":
                ahead_s = limit_s * chance.choice((0.5, 0.99, 1.5))
                await self.write(counter, delta, self._token(-ahead_s))
            case "again":
                token = self._token()
                await self.write(counter, delta, token)
                later_s = chance.choice((0.01, 0.5, limit_s, limit_s + 3))
                self._beside.append(
                    asyncio.create_task(self._write_later(counter, delta, token, later_s))
                )
            case "twice":
                token = self._token()
                await asyncio.gather(
                    self.write(counter, delta, token), self.write(counter, delta, token)
                )
            case "conflict":
                token = self._token()
                await asyncio.gather(
                    self.write(counter, delta, token),
                    self.write(counter, delta + 7, token),
                )

    async def _write_later(
        self, counter: tuple[str, str], delta: int | None, token: Token, later_s: float
    ) -> None:
        await asyncio.sleep(later_s)
        await self.write(counter, delta, token)

    async def write(self, counter: tuple[str, str], delta: int | None, token: Token) -> None:
        """An add or a clear, until it is answered for good or the client loses patience."""
        for attempt in range(self._chance.randint(1, _ATTEMPTS_MAX)):
            if attempt:
                self._witness.counted["calls retried"] += 1
                await asyncio.sleep(self._chance.random() * 0.5)
            if delta is None:
                method = "ClearCount"
                request: Any = pb.ClearCountRequest(
                    namespace=counter[0],
                    counter_name=counter[1],
                    idempotency_token=_token_message(token),
                )
            else:
                method = "AddCount"
                request = pb.AddCountRequest(
                    namespace=counter[0],
                    counter_name=counter[1],
                    delta=delta,
                    idempotency_token=_token_message(token),
                )
            invoked_ns = self._now_ns()
            try:
                response = await self._call(method, request)
            except CallFailed as failed:
                outcome = self._wrote(counter, delta, token, invoked_ns, failed.reason)
                if outcome is Outcome.FAIL and failed.reason not in ("OVERLOADED", "ADDS_LIMITED"):
                    return
            else:
                self._wrote(counter, delta, token, invoked_ns, None)
                self._witness.counted["duplicates acknowledged"] += response.duplicate
                return

    async def _add_batch(self, namespace: str) -> None:
        items = [
            (self._counter()[1], self._delta(), self._token())
            for _ in range(self._chance.randint(2, 4))
        ]
        request = pb.BatchAddCountRequest(
            namespace=namespace,
            items=[
                pb.AddCountItem(
                    counter_name=name, delta=delta, idempotency_token=_token_message(token)
                )
                for name, delta, token in items
            ],
        )
        invoked_ns = self._now_ns()
        try:
            response = await self._call("BatchAddCount", request)
            reasons = [each.reason if each.code else None for each in response.outcomes]
        except CallFailed as failed:
            reasons = [failed.reason] * len(items)
        for (name, delta, token), reason in zip(items, reasons, strict=True):
            self._wrote((namespace, name), delta, token, invoked_ns, reason)

    async def _add_and_get(self, counter: tuple[str, str]) -> None:
        delta, token = self._delta(), self._token()
        request = pb.AddAndGetCountRequest(
            namespace=counter[0],
            counter_name=counter[1],
            delta=delta,
            idempotency_token=_token_message(token),
        )
        invoked_ns = self._now_ns()
        try:
            response = await self._call("AddAndGetCount", request)
        except CallFailed as failed:
            # The add may have happened although the read of it was refused.
            reason = failed.reason if failed.reason in _REFUSALS else ""
            self._wrote(counter, delta, token, invoked_ns, reason)
            return
        self._wrote(counter, delta, token, invoked_ns, None)
        self._read(counter, invoked_ns, response.value, None)

    def _wrote(
        self,
        counter: tuple[str, str],
        delta: int | None,
        token: Token,
        invoked_ns: int,
        reason: str | None,
    ) -> Outcome:
        """None: it was acknowledged; "": no answer came."""
        outcome = Outcome.OK if reason is None else Outcome.UNKNOWN
        if reason in _REFUSALS:
            outcome = Outcome.FAIL
        self._witness.counted[f"writes: {outcome.value} {reason or ''}".rstrip()] += 1
        self._note(
            Call(
                client=self._name,
                call=CallKind.CLEAR if delta is None else CallKind.ADD,
                namespace=counter[0],
                counter=counter[1],
                invoked_ns=invoked_ns,
                completed_ns=None if reason == "" else self._now_ns(),
                outcome=outcome,
                reason=reason or "",
                token=token[0],
                generation_time_ns=token[1],
                delta=delta,
            )
        )
        return outcome

    # Questions.

    async def read(
        self,
        counter: tuple[str, str],
        *,
        staleness_s: float | None = None,
        again: bool = False,
        server: Server | None = None,
    ) -> bool:
        """`again`: asks for nothing older than what it saw last. Answers whether it was told."""
        request = pb.GetCountRequest(namespace=counter[0], counter_name=counter[1])
        if staleness_s is not None:
            request.max_staleness.CopyFrom(Duration(seconds=int(staleness_s)))
        at_least_ns = self._seen.get(counter) if again else None
        if at_least_ns is not None:
            request.at_least.CopyFrom(timestamp(at_least_ns))
        invoked_ns = self._now_ns()
        try:
            response = await self._call("GetCount", request, server)
        except CallFailed as failed:
            self._witness.counted[f"reads: {failed.reason or 'no answer'}"] += 1
            return False
        self._read(counter, invoked_ns, response.value, at_least_ns)
        return True

    def _read(
        self,
        counter: tuple[str, str],
        invoked_ns: int,
        value: pb.CountValue,
        at_least_ns: int | None,
    ) -> None:
        self._witness.counted[f"reads: {pb.Source.Name(value.source)}"] += 1
        through_ns = timestamp_ns(value.complete_through, "TIME_MALFORMED", "complete_through")
        self._seen[counter] = max(through_ns, self._seen.get(counter, 0))
        self._note(
            Call(
                client=self._name,
                call=CallKind.GET,
                namespace=counter[0],
                counter=counter[1],
                invoked_ns=invoked_ns,
                completed_ns=self._now_ns(),
                outcome=Outcome.OK,
                accurate=value.source == pb.SOURCE_ROLLUP_AND_TAIL,
                at_least_ns=at_least_ns,
                count=value.count,
                complete_through_ns=through_ns,
                epoch=value.epoch,
            )
        )

    async def _ask_about_a_token(self) -> None:
        written = [each for each in self._history if each.is_write]
        if written:
            await self.ask(self._chance.choice(written))

    async def ask(self, write: Call, server: Server | None = None) -> bool:
        """What became of the token of a write. Answers whether that is settled."""
        request = pb.GetTokenStatusRequest(
            namespace=write.namespace,
            counter_name=write.counter,
            idempotency_token=_token_message((write.token, write.generation_time_ns)),
        )
        invoked_ns, reason = self._now_ns(), ""
        outcome = Outcome.UNKNOWN
        try:
            response = await self._call("GetTokenStatus", request, server)
            if response.status == pb.TOKEN_STATUS_APPLIED:
                outcome = Outcome.OK
            elif response.status == pb.TOKEN_STATUS_NOT_APPLIED:
                outcome = Outcome.FAIL
        except CallFailed as failed:
            reason = failed.reason
        self._note(
            Call(
                client=self._name,
                call=CallKind.TOKEN_STATUS,
                namespace=write.namespace,
                counter=write.counter,
                invoked_ns=invoked_ns,
                completed_ns=self._now_ns(),
                outcome=outcome,
                reason=reason,
                token=write.token,
                generation_time_ns=write.generation_time_ns,
            )
        )
        return outcome is not Outcome.UNKNOWN or reason == "TOKEN_TOO_OLD"

    async def _call(self, method: str, request: Any, server: Server | None = None) -> Any:
        timeout_s = self._chance.choice((0.3, 1.0, 5.0)) if server is None else 10.0
        chosen = server or self._chance.choice(self._servers)
        return await self._network.call(chosen, method, request, timeout_s)

    def _note(self, call: Call) -> None:
        self._history.append(call)
        self._witness.trace(call.client, f"{call.call.value} {call.outcome.value} {call.count}")

    def _now_ns(self) -> int:
        return int(asyncio.get_running_loop().time() * NS_PER_S)


def _token_message(token: Token) -> pb.IdempotencyToken:
    return pb.IdempotencyToken(token=token[0], generation_time=timestamp(token[1]))
