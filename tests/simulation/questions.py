"""What clients ask: counts of now and of the past, lists, rankings, and what became of tokens.

Whatever comes is written down as the rules of tally.verify know it: a count with its stamp, or what
was added from one time to another. A list also says which counters are not there: these count 0.
"""

from collections.abc import Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration

from counter.clock import NS_PER_MS
from counter.rpc.values import duration_of, timestamp, timestamp_ns
from counter.v1 import counter_service_pb2 as pb
from tally.verify.history import Call, CallKind, Outcome
from tests.simulation.caller import Caller, CounterName, Token, token_message
from tests.simulation.calls import CallFailed
from tests.simulation.programs import Server
from tests.simulation.served import Served
from tests.simulation.windows import check_window_start


class Questions:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._seen: dict[CounterName, int] = {}

    # The count of now.

    async def read(
        self,
        counters: Sequence[CounterName],
        *,
        staleness_s: float | None = None,
        again: bool = False,
        server: Server | None = None,
    ) -> bool:
        """One or more counters of one namespace. `again`: asks for nothing older than what was seen
        last. Answers whether it was told."""
        namespace, names = counters[0][0], [name for _, name in counters]
        request: Any = pb.GetCountRequest(counter_name=names[0])
        if len(names) > 1:
            request = pb.BatchGetCountRequest(counter_name=names)
        request.namespace = namespace
        if staleness_s is not None:
            request.max_staleness.CopyFrom(Duration(seconds=int(staleness_s)))
        at_least_ns = self._seen.get(counters[0]) if again else None
        if at_least_ns is not None:
            request.at_least.CopyFrom(timestamp(at_least_ns))
        method = "GetCount" if len(names) == 1 else "BatchGetCount"
        server = server or self._caller.any_server()
        clock, changes = server.machine.clock, server.machine.clock.changes
        began_ns, served, invoked_ns = clock.now_ns(), Served(), self._caller.now_ns()
        response = await self._ask(method, request, served, server)
        if response is None:
            return False
        values = response.values if len(names) > 1 else [response.value]
        for counter, value in zip(counters, values, strict=True):
            self.saw(counter, invoked_ns, value, served, at_least_ns=at_least_ns)
            if value.HasField("window_start") and changes == clock.changes:
                check_window_start(
                    self._caller.witness,
                    self._caller.scenario,
                    served,
                    _ns(value.window_start),
                    _ns(value.complete_through),
                    (began_ns, clock.now_ns()),
                )
        return True

    def saw(
        self,
        counter: CounterName,
        invoked_ns: int,
        value: pb.CountValue,
        served: Served,
        *,
        at_least_ns: int | None = None,
        own: Token = ("", 0),
    ) -> None:
        """`own`: the add that was made with it."""
        self._caller.count(f"reads: {pb.Source.Name(value.source)}")
        through_ns = _ns(value.complete_through)
        self._seen[counter] = max(through_ns, self._seen.get(counter, 0))
        is_rolling = value.HasField("window_start")
        if is_rolling:
            self._caller.count("reads of rolling windows")
        self._caller.note(
            CallKind.GET,
            counter,
            invoked_ns,
            served,
            token=own[0],
            generation_time_ns=own[1],
            accurate=value.source == pb.SOURCE_ROLLUP_AND_TAIL,
            at_least_ns=at_least_ns,
            from_ns=_ns(value.window_start) if is_rolling else None,
            count=value.count,
            complete_through_ns=through_ns,
            epoch=value.epoch,
        )

    # The past.

    async def count_at(self, counter: CounterName, time_ns: int) -> None:
        request = pb.GetCountAtRequest(
            namespace=counter[0], counter_name=counter[1], time=timestamp(time_ns)
        )
        served, invoked_ns = Served(), self._caller.now_ns()
        response = await self._ask("GetCountAt", request, served)
        if response is not None:
            kind = "history" if response.HasField("resolution") else "rollup"
            self._caller.count(f"counts of the past: from the {kind}")
            self._was(counter, invoked_ns, served, response.value, time_ns)

    async def history(
        self,
        counter: CounterName,
        start_ns: int,
        *,
        step_ms: int | None = None,
        server: Server | None = None,
    ) -> pb.GetCountHistoryResponse | None:
        request = pb.GetCountHistoryRequest(
            namespace=counter[0], counter_name=counter[1], start=timestamp(start_ns)
        )
        if step_ms is not None:
            request.step.CopyFrom(duration_of(step_ms))
        served, invoked_ns = Served(), self._caller.now_ns()
        response = await self._ask("GetCountHistory", request, served, server)
        if response is None:
            return None
        step_ns = response.step.ToMilliseconds() * NS_PER_MS
        through_ns = _ns(response.complete_through)
        for point in response.points:
            if not point.known:
                self._caller.count("points of histories that are not known")
                continue
            self._caller.count("points of histories")
            from_ns = _ns(point.start)
            end_ns = from_ns + step_ns - 1
            stamp_ns = min(end_ns, through_ns)
            self._grew(counter, invoked_ns, served, point.delta, from_ns, stamp_ns)
            self._was(counter, invoked_ns, served, point, end_ns, stamp_ns)
        return response

    def _was(
        self,
        counter: CounterName,
        invoked_ns: int,
        served: Served,
        value: Any,
        as_of_ns: int,
        through_ns: int | None = None,
    ) -> None:
        """What a count was, by a CountValue or a point with a stamp."""
        self._caller.note(
            CallKind.GET,
            counter,
            invoked_ns,
            served,
            as_of_ns=as_of_ns,
            count=value.count,
            complete_through_ns=_ns(value.complete_through) if through_ns is None else through_ns,
            epoch=value.epoch,
        )

    def _grew(
        self,
        counter: CounterName,
        invoked_ns: int,
        served: Served,
        growth: int,
        from_ns: int,
        through_ns: int,
    ) -> None:
        self._caller.note(
            CallKind.GROWTH,
            counter,
            invoked_ns,
            served,
            from_ns=from_ns,
            count=growth,
            complete_through_ns=through_ns,
        )

    # All counters of a namespace.

    async def list(self, namespace: str, names: Sequence[str], page_size: int) -> None:
        """`names`: of all counters that there may be."""
        left, token = list(names), ""
        while True:
            request = pb.ListCountersRequest(
                namespace=namespace, page_size=page_size, page_token=token
            )
            served, invoked_ns = Served(), self._caller.now_ns()
            response = await self._ask("ListCounters", request, served)
            if response is None:
                return
            self._caller.count("pages of lists")
            token = response.next_page_token
            listed = [entry.counter_name for entry in response.counters]
            for entry in response.counters:
                self.saw((namespace, entry.counter_name), invoked_ns, entry.value, served)
            # Those up to the last one of the page had their turn.
            passed = [name for name in left if not token or name <= listed[-1]]
            for name in passed:
                left.remove(name)
                if name not in listed:
                    self._nothing((namespace, name), invoked_ns, served, response)
            if not token:
                return

    async def top(self, namespace: str, names: Sequence[str], period_s: int | None) -> None:
        """By count, or by growth over a period."""
        request = pb.TopCountersRequest(namespace=namespace, limit=1_000)
        if period_s is not None:
            request.rank_by = pb.RANK_BY_GROWTH
            request.period.CopyFrom(Duration(seconds=period_s))
        served, invoked_ns = Served(), self._caller.now_ns()
        response = await self._ask("TopCounters", request, served)
        if response is None:
            return
        self._caller.count("rankings" if period_s is None else "rankings by growth")
        ranks = []
        for ranked in response.counters:
            counter = (namespace, ranked.counter_name)
            self.saw(counter, invoked_ns, ranked.value, served)
            ranks.append(ranked.value.count)
            if period_s is not None:
                ranks[-1] = ranked.growth
                through_ns = _ns(ranked.value.complete_through)
                from_ns = _ns(response.growth_from) + 1
                self._grew(counter, invoked_ns, served, ranked.growth, from_ns, through_ns)
        if ranks != sorted(ranks, reverse=True):
            self._caller.witness.violate("I5", f"a ranking is not in order: {ranks}")
        if period_s is None:
            for name in set(names) - {each.counter_name for each in response.counters}:
                self._nothing((namespace, name), invoked_ns, served, response)

    def _nothing(
        self, counter: CounterName, invoked_ns: int, served: Served, response: Any
    ) -> None:
        """A counter that is not listed has no event up to where the list is complete."""
        self._caller.note(
            CallKind.GET,
            counter,
            invoked_ns,
            served,
            count=0,
            complete_through_ns=_ns(response.complete_through),
            epoch=0,
        )

    # Tokens.

    async def status(self, write: Call, server: Server | None = None) -> bool:
        """What became of the token of a write. Answers whether that is settled."""
        request = pb.GetTokenStatusRequest(
            namespace=write.namespace,
            counter_name=write.counter,
            idempotency_token=token_message((write.token, write.generation_time_ns)),
        )
        served, invoked_ns = Served(), self._caller.now_ns()
        outcome, reason = Outcome.UNKNOWN, ""
        try:
            response = await self._caller.call("GetTokenStatus", request, served, server)
            if response.status == pb.TOKEN_STATUS_APPLIED:
                outcome = Outcome.OK
            elif response.status == pb.TOKEN_STATUS_NOT_APPLIED:
                outcome = Outcome.FAIL
        except CallFailed as failed:
            reason = failed.reason
        self._caller.count(f"statuses: {outcome.value} {reason}".rstrip())
        self._caller.note(
            CallKind.TOKEN_STATUS,
            (write.namespace, write.counter),
            invoked_ns,
            served,
            outcome,
            reason=reason,
            token=write.token,
            generation_time_ns=write.generation_time_ns,
        )
        return outcome is not Outcome.UNKNOWN or reason == "TOKEN_TOO_OLD"

    async def _ask(
        self, method: str, request: Any, served: Served, server: Server | None = None
    ) -> Any:
        """The response; None, and counted, if none came."""
        try:
            return await self._caller.call(method, request, served, server)
        except CallFailed as failed:
            self._caller.count(f"reads: {failed.reason or 'no answer'}")
            return None


def _ns(time: Any) -> int:
    return timestamp_ns(time, "TIME_MALFORMED", "time")
