"""Adds and clears, one by one, in batches and on streams.

A call that got no answer is made again with the same token, mostly at another server.
"""

import asyncio
from typing import Any

from counter.v1 import counter_service_pb2 as pb
from tally.verify.history import CallKind, Outcome
from tests.simulation.caller import Caller, CounterName, Token, token_message
from tests.simulation.calls import CallFailed
from tests.simulation.questions import Questions
from tests.simulation.served import Served
from tests.simulation.streams import Stream

# Refusals that promise that the call did nothing.
_REFUSALS = frozenset(
    {
        "TOKEN_EXPIRED",
        "TOKEN_FROM_FUTURE",
        "DELTA_TOO_LARGE",
        "DELTA_ZERO",
        "NAMESPACE_UNKNOWN",
        "OVERLOADED",
        "ADDS_LIMITED",
        "FOLD_LAGGING",
    }
)
_ATTEMPTS_MAX = 4

Item = tuple[str, int, Token]  # of a batch: counter, delta


class Writes:
    def __init__(self, caller: Caller, questions: Questions) -> None:
        self._caller = caller
        self._questions = questions

    async def write(self, counter: CounterName, delta: int | None, token: Token) -> None:
        """An add or a clear, until it is answered for good or the client loses patience."""
        request: Any
        if delta is None:
            method, request = "ClearCount", pb.ClearCountRequest()
        else:
            method, request = "AddCount", pb.AddCountRequest(delta=delta)
        await self._insist(method, request, counter, delta, token)

    async def adjust(self, counter: CounterName, delta: int, token: Token) -> None:
        request = pb.AdjustCountRequest(delta=delta, author="auditor", reason="it was wrong")
        await self._insist("AdjustCount", request, counter, delta, token)

    async def _insist(
        self, method: str, request: Any, counter: CounterName, delta: int | None, token: Token
    ) -> None:
        _fill(request, counter, token)
        for attempt in self._attempts():
            await self._pause_before(attempt)
            served, invoked_ns = Served(), self._caller.now_ns()
            reason: str | None = None
            try:
                response = await self._caller.call(method, request, served)
                if response.duplicate:
                    self._caller.count("duplicates acknowledged")
            except CallFailed as failed:
                reason = failed.reason
            outcome = self._wrote(counter, delta, token, invoked_ns, reason, served)
            if outcome is not Outcome.UNKNOWN:
                return

    async def add_and_get(self, counter: CounterName, delta: int, token: Token) -> None:
        request = pb.AddAndGetCountRequest(delta=delta)
        _fill(request, counter, token)
        served, invoked_ns = Served(), self._caller.now_ns()
        try:
            response = await self._caller.call("AddAndGetCount", request, served)
        except CallFailed as failed:
            # The add may have happened although the read of it was refused.
            reason = failed.reason if failed.reason in _REFUSALS else ""
            self._wrote(counter, delta, token, invoked_ns, reason, served)
            return
        self._wrote(counter, delta, token, invoked_ns, None, served)
        self._caller.count("adds with their counts")
        self._questions.saw(counter, invoked_ns, response.value, served, own=token)

    async def add_batch(self, namespace: str, items: list[Item]) -> None:
        request = pb.BatchAddCountRequest(namespace=namespace, items=_messages(items))
        served, invoked_ns = Served(), self._caller.now_ns()
        try:
            response = await self._caller.call("BatchAddCount", request, served)
            reasons = [each.reason if each.code else None for each in response.outcomes]
        except CallFailed as failed:
            reasons = [failed.reason] * len(items)
        self._wrote_all(namespace, items, invoked_ns, reasons, served)

    async def add_on_streams(self, namespace: str, batches: list[list[Item]]) -> None:
        """One stream, and then others for what was not answered on it."""
        caller, waiting = self._caller, dict(enumerate(batches, start=1))
        as_columns = caller.chance.random() < 0.6
        for attempt in self._attempts():
            await self._pause_before(attempt)
            invoked_ns = caller.now_ns()
            sent = {number: Served() for number in waiting}
            requests = [
                (_stream_request(number, namespace, waiting[number], as_columns), served)
                for number, served in sent.items()
            ]
            stream = Stream(caller.network, caller.any_server(), caller.timeout_s())
            caller.count("streams")
            for answer in await stream.exchange(requests):
                number = answer.sequence_number
                if number not in sent:
                    caller.witness.violate("I7", f"batch {number} of a stream is answered twice")
                    continue
                items, served = waiting.pop(number), sent.pop(number)
                caller.count("batches answered on streams")
                reasons = [each.reason if each.code else None for each in answer.outcomes]
                if answer.all_added:
                    reasons = [None] * len(items)
                self._wrote_all(namespace, items, invoked_ns, reasons, served)
            for number, served in sent.items():
                items = waiting[number]
                self._wrote_all(namespace, items, invoked_ns, [""] * len(items), served)
            if not waiting:
                return

    def _attempts(self) -> range:
        """As many as the client has patience for."""
        return range(self._caller.chance.randint(1, _ATTEMPTS_MAX))

    async def _pause_before(self, attempt: int) -> None:
        if attempt:
            self._caller.count("calls retried")
            await asyncio.sleep(self._caller.chance.random() * 0.5)

    def _wrote_all(
        self,
        namespace: str,
        items: list[Item],
        invoked_ns: int,
        reasons: list[str | None],
        served: Served,
    ) -> None:
        if len({reason is None for reason in reasons}) == 2:
            self._caller.count("batches with both outcomes")
        for (name, delta, token), reason in zip(items, reasons, strict=True):
            self._wrote((namespace, name), delta, token, invoked_ns, reason, served)

    def _wrote(
        self,
        counter: CounterName,
        delta: int | None,
        token: Token,
        invoked_ns: int,
        reason: str | None,
        served: Served,
    ) -> Outcome:
        """None: it was acknowledged; "": no answer came."""
        outcome = Outcome.OK if reason is None else Outcome.UNKNOWN
        if reason in _REFUSALS:
            outcome = Outcome.FAIL
        self._caller.count(f"writes: {outcome.value} {reason or ''}".rstrip())
        self._caller.note(
            CallKind.CLEAR if delta is None else CallKind.ADD,
            counter,
            invoked_ns,
            served,
            outcome,
            is_answered=reason != "",
            reason=reason or "",
            token=token[0],
            generation_time_ns=token[1],
            delta=delta,
        )
        return outcome


def _fill(request: Any, counter: CounterName, token: Token) -> None:
    request.namespace, request.counter_name = counter
    request.idempotency_token.CopyFrom(token_message(token))


def _messages(items: list[Item]) -> list[pb.AddCountItem]:
    return [
        pb.AddCountItem(counter_name=name, delta=delta, idempotency_token=token_message(token))
        for name, delta, token in items
    ]


def _stream_request(
    number: int, namespace: str, items: list[Item], as_columns: bool
) -> pb.StreamAddCountRequest:
    request = pb.StreamAddCountRequest(sequence_number=number, namespace=namespace)
    if not as_columns:
        request.items.extend(_messages(items))
        return request
    for name, delta, (token, time_ns) in items:
        request.columns.counter_name.append(name)
        request.columns.delta.append(delta)
        request.columns.token.append(token)
        request.columns.generation_time_ns.append(time_ns)
    return request
