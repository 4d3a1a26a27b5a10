"""Rules that add, clear and adjust, in every way in which callers can."""

from collections.abc import Callable, Sequence
from typing import Any

import grpc
from hypothesis import strategies as st
from hypothesis.stateful import multiple, precondition, rule

from counter.v1 import counter_service_pb2 as pb
from tests.calls import Refusal, refusal_of
from tests.stateful.base import Machine
from tests.stateful.definitions import NAMES
from tests.stateful.installation import SERVERS
from tests.stateful.messages import Add, Outcome, Sent, columns, items, nanoseconds, outcomes_of

SERVER = st.integers(0, SERVERS - 1)
NAMESPACE = st.sampled_from(NAMES)
COUNTERS = ("a", "b", "ü 🎬")
COUNTER = st.sampled_from(COUNTERS)
DELTA = st.sampled_from([1, 2, 5, -3, 1_000])
TOKEN = st.sampled_from(["s", "t", "u"])
# How long ago a token was made: late ones, and some of clocks that are ahead.
AGE_MS = st.sampled_from([0, 0, 0, 1, 5_000, 12_000, 25_000, 45_000, 300_000, -5_000, -20_000])
WRITES = ("AddCount", "AddAndGetCount", "ClearCount", "AdjustCount")
NOTE = ("an operator", "an audit found it")
# With what a token is sent again.
DELTAS_AGAIN = {"add": 7, "adjust": 11, "clear": None}
EFFECTS = ("same", "same", *DELTAS_AGAIN)
# Enough of the largest deltas for a count beyond 64 bits.
FLOOD = 1_100
WORLDS_MAX = 16

# Mostly right; the mistakes are those that a caller can make in a field of its own.
ITEM = st.tuples(COUNTER, DELTA, AGE_MS, TOKEN) | st.one_of(
    st.tuples(st.sampled_from(["", "x" * 257]), DELTA, AGE_MS, TOKEN),
    st.tuples(COUNTER, st.sampled_from([0, 2**53 + 1, -(2**63)]), AGE_MS, TOKEN),
    st.tuples(COUNTER, DELTA, st.just(-20_001), TOKEN),
    st.tuples(COUNTER, DELTA, AGE_MS, st.sampled_from(["", "é" * 33])),
)
Item = tuple[str, int, int, str]
ITEMS = st.lists(ITEM, min_size=1, max_size=3)
MISTAKES: dict[str, Callable[[Add], Add]] = {
    "no name": lambda add: add._replace(counter=""),
    "a long name": lambda add: add._replace(counter="é" * 129),
    "no delta": lambda add: add._replace(delta=0),
    "a large delta": lambda add: add._replace(delta=2**53 + 1),
    "no token": lambda add: add._replace(token=""),
    "a long token": lambda add: add._replace(token="é" * 33),
    "no time": lambda add: add._replace(time_ns=None),
    "of another region": lambda add: add._replace(region="mars"),
    "from the future": lambda add: add._replace(time_ns=(add.time_ns or 0) + 20_000_000_001),
    "an unknown namespace": lambda add: add,
}


def is_open(machine: Machine) -> bool:
    """Whether there are few enough worlds for what may split them again."""
    return all(len(each.worlds) <= WORLDS_MAX for each in machine.counters.values())


class Writing(Machine):
    flooded = False

    @rule(
        target=Machine.sent,
        server=SERVER,
        rpc=st.sampled_from(WRITES),
        namespace=NAMESPACE,
        counter=COUNTER,
        delta=DELTA,
        age_ms=AGE_MS,
        token=TOKEN,
    )
    @precondition(is_open)
    def write(
        self,
        server: int,
        rpc: str,
        namespace: str,
        counter: str,
        delta: int,
        age_ms: int,
        token: str,
    ) -> Sent:
        add = Add(
            counter,
            None if rpc == "ClearCount" else delta,
            token,
            self.ago(age_ms),
            note=NOTE if rpc == "AdjustCount" else None,
        )
        return self._write(server, rpc, namespace, add)

    @rule(target=Machine.sent, server=SERVER, namespace=NAMESPACE, counter=COUNTER, delta=DELTA)
    @precondition(lambda self: self.stumble is None)
    def add_without_token(self, server: int, namespace: str, counter: str, delta: int) -> Sent:
        """Of one that fails nobody knows the token, and so nobody can ever tell."""
        request = pb.AddCountRequest(namespace=namespace, counter_name=counter, delta=delta)
        now_ns = self.clock.now_ns()
        answer = self.ask(server, "AddCount", request)
        add = Add(counter, delta, "made by nobody", now_ns)
        if not isinstance(answer, Refusal):
            made = answer.idempotency_token
            assert made.token
            add = add._replace(token=made.token, time_ns=nanoseconds(made.generation_time))
            # Two in one instant are told apart by their times.
            assert now_ns <= (add.time_ns or 0) < now_ns + 1_000
        self._check_answer(server, namespace, add, answer)
        return Sent(namespace, add)

    @rule(server=SERVER, earlier=Machine.sent, effect=st.sampled_from(EFFECTS))
    @precondition(is_open)
    def send_again(self, server: int, earlier: Sent, effect: str) -> None:
        """To whichever server. With another effect one of the two counts, for everybody."""
        namespace, add = earlier
        if effect != "same":
            note = NOTE if effect == "adjust" else None
            add = add._replace(delta=DELTAS_AGAIN[effect], note=note)
        self._write(server, _rpc_of(add), namespace, add)

    @rule(server=SERVER, mistake=st.sampled_from(sorted(MISTAKES)), rpc=st.sampled_from(WRITES))
    def send_a_mistake(self, server: int, mistake: str, rpc: str) -> None:
        """It is refused for what is wrong with it, and changes nothing."""
        note = NOTE if rpc == "AdjustCount" else None
        wrong = MISTAKES[mistake](Add("a", 1, "t", self.clock.now_ns(), note=note))
        if rpc == "ClearCount":
            wrong = wrong._replace(delta=None)
        namespace = "plais" if mistake == "an unknown namespace" else "plays"
        self._write(server, rpc, namespace, wrong)

    @rule(target=Machine.sent, server=SERVER, namespace=NAMESPACE, items=ITEMS)
    @precondition(is_open)
    def batch_add(self, server: int, namespace: str, items: list[Item]) -> Any:
        adds = self._adds(items)
        outcomes = self._batch_outcomes(server, namespace, adds)
        self._check_batch(server, namespace, adds, outcomes)
        self._end_stumble()
        return multiple(*(Sent(namespace, each) for each in adds))

    @rule(
        target=Machine.sent,
        server=SERVER,
        namespace=NAMESPACE,
        batches=st.lists(ITEMS, min_size=1, max_size=2),
        in_columns=st.booleans(),
    )
    @precondition(is_open)
    def stream_add(
        self, server: int, namespace: str, batches: list[list[Item]], in_columns: bool
    ) -> Any:
        all_adds = [self._adds(items) for items in batches]
        requests = []
        for number, adds in enumerate(all_adds, start=1):
            request = pb.StreamAddCountRequest(sequence_number=number, namespace=namespace)
            if in_columns:
                request.columns.CopyFrom(columns(adds))
            else:
                request.items.extend(items(adds))
            requests.append(request)
        answers = self._streamed(server, requests)
        assert sorted(answers) == [each.sequence_number for each in requests]
        for number, adds in enumerate(all_adds, start=1):
            answer = answers[number]
            outcomes = outcomes_of(answer.outcomes)
            if answer.all_added:
                assert in_columns
                assert not outcomes
                outcomes = [Outcome("")] * len(adds)
            # One that is refused as a whole is answered with that, add by add.
            self._check_batch(server, namespace, adds, outcomes)
        self._end_stumble()
        return multiple(*(Sent(namespace, each) for adds in all_adds for each in adds))

    @rule(server=SERVER, counter=COUNTER)
    @precondition(lambda self: not self.flooded)
    def flood(self, server: int, counter: str) -> None:
        """A count that 64 bits cannot hold. All adds of it share one segment, so that together they
        are as good as one."""
        self.flooded = True
        now_ns = self.clock.now_ns()
        adds = [Add(counter, 2**53, f"flood {at}", now_ns) for at in range(FLOOD)]
        outcomes = set(self._batch_outcomes(server, "quotas", adds))
        assert len(outcomes) == 1, outcomes
        live = self.live(server, "quotas")
        most = None if live is None else live.settings.batch_items
        if live is not None and (most is None or most >= FLOOD):
            if wrong := self.wrong_with(live.settings, adds[0]):
                assert outcomes == {Outcome(wrong)}
            else:
                whole = adds[0]._replace(delta=2**53 * FLOOD)
                self.check_write(server, live, whole, *outcomes)
        self._end_stumble()

    def _batch_outcomes(self, server: int, namespace: str, adds: list[Add]) -> list[Outcome]:
        request = pb.BatchAddCountRequest(namespace=namespace, items=items(adds))
        answer = self.ask(server, "BatchAddCount", request)
        if isinstance(answer, Refusal):
            # The whole of it was refused, or of none of it can be said what became of it.
            return [Outcome(answer.reason)] * len(adds)
        return outcomes_of(answer.outcomes)

    def _adds(self, items: list[Item]) -> list[Add]:
        return [
            Add(counter, delta, token, self.ago(age_ms)) for counter, delta, age_ms, token in items
        ]

    def _write(self, server: int, rpc: str, namespace: str, add: Add) -> Sent:
        fields: dict[str, Any] = {
            "namespace": namespace,
            "counter_name": add.counter,
            "idempotency_token": add.message(),
        }
        if add.delta is not None:
            fields["delta"] = add.delta
        if add.note is not None:
            fields["author"], fields["reason"] = add.note
        answer = self.ask(server, rpc, getattr(pb, f"{rpc}Request")(**fields))
        self._check_answer(server, namespace, add, answer)
        return Sent(namespace, add)

    def _check_answer(self, server: int, namespace: str, add: Add, answer: Any) -> None:
        live = self.live(server, namespace)
        if isinstance(answer, Refusal):
            outcome = Outcome(answer.reason)
        else:
            outcome = Outcome("", answer.duplicate)
        if live is None:
            assert outcome.reason == "NAMESPACE_UNKNOWN", outcome
        elif wrong := self.wrong_with(live.settings, add):
            assert outcome.reason == wrong, f"{outcome}, which should be {wrong}"
        elif outcome.reason == "READS_LIMITED":
            assert live.settings.reads_per_s is not None
        else:
            self.check_write(server, live, add, outcome)
            if isinstance(answer, pb.AddAndGetCountResponse):
                assert answer.value.source == pb.SOURCE_ROLLUP_AND_TAIL
                self.check_value(live, add.counter, answer.value)
        self._end_stumble()

    def _check_batch(
        self,
        server: int,
        namespace: str,
        adds: list[Add],
        outcomes: Sequence[Outcome],
    ) -> None:
        live = self.live(server, namespace)
        assert len(outcomes) == len(adds)
        if live is None:
            assert {each.reason for each in outcomes} == {"NAMESPACE_UNKNOWN"}, outcomes
            return
        most = live.settings.batch_items
        if most is not None and len(adds) > most:
            assert {each.reason for each in outcomes} == {"BATCH_TOO_LARGE"}, outcomes
            return
        for add, outcome in zip(adds, outcomes, strict=True):
            wrong = self.wrong_with(live.settings, add)
            if wrong is None:
                self.check_write(server, live, add, outcome)
            elif outcome.reason != wrong:
                # What is wrong with one add does not matter if the whole batch came to nothing.
                assert len({each.reason for each in outcomes}) == 1, (outcomes, wrong)
                assert outcome.reason in ("ADDS_LIMITED", "FOLD_LAGGING", "STORE_UNAVAILABLE")

    def _end_stumble(self) -> None:
        """Once a write has failed as it was told to, the next ones do not."""
        self.stumble = self.installation.log.next

    def _streamed(
        self, server: int, requests: list[pb.StreamAddCountRequest]
    ) -> dict[int, pb.StreamAddCountResponse]:
        async def streamed() -> Any:
            call = self.installation.servers[server].calls.StreamAddCount(timeout=60)
            try:
                for request in requests:
                    await call.write(request)
                await call.done_writing()
                return {each.sequence_number: each async for each in call}
            except grpc.aio.AioRpcError as error:
                return refusal_of(error)

        answers = self.run(streamed())
        assert not isinstance(answers, Refusal), answers
        return dict(answers)


def _rpc_of(add: Add) -> str:
    if add.note is not None:
        return "AdjustCount"
    return "ClearCount" if add.delta is None else "AddCount"
