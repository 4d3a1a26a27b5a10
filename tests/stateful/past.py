"""Rules that ask about the past, and about many counters at once."""

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from counter.clock import NS_PER_MS
from counter.v1 import counter_service_pb2 as pb
from tests.calls import Refusal
from tests.stateful.base import Live, Machine
from tests.stateful.definitions import STEP_MS
from tests.stateful.messages import nanoseconds, stamp
from tests.stateful.model import World, clamped, state_of
from tests.stateful.writing import COUNTER, NAMESPACE, SERVER

STEP_NS = STEP_MS * NS_PER_MS
PREFIX = st.sampled_from(["", "", "a", "ü", "zz"])
AGO_MS = [0, 10_000, 59_999, 60_000, 130_000, 1_300_000, -20_000, -20_001]
Question = tuple[Any, ...]
QUESTIONS = st.one_of(
    st.tuples(st.just("count_at"), st.sampled_from(AGO_MS)),
    # The last minutes, and how many make a step; None: what the server takes for good.
    st.tuples(st.just("history"), st.sampled_from([0, 1, 3, 30]), st.sampled_from([None, 1, 2, 5])),
    st.tuples(st.just("list"), PREFIX, st.integers(1, 3)),
    # By count, or by the growth of the last minutes.
    st.tuples(st.just("top"), PREFIX, st.sampled_from([None, None, 1, 3])),
)


class Past(Machine):
    @rule(server=SERVER, namespace=NAMESPACE, counter=COUNTER, question=QUESTIONS)
    def ask_about(self, server: int, namespace: str, counter: str, question: Question) -> None:
        kind, *details = question
        match kind:
            case "count_at":
                self.count_at(server, namespace, counter, self.ago(*details))
            case "history":
                self.history(server, namespace, counter, *details)
            case "list":
                self.list_counters(server, namespace, *details)
            case "top":
                self.top_counters(server, namespace, *details)

    def count_at(self, server: int, namespace: str, counter: str, time_ns: int) -> None:
        request = pb.GetCountAtRequest(
            namespace=namespace, counter_name=counter, time=stamp(time_ns)
        )
        answer = self.ask(server, "GetCountAt", request)
        live = self.live(server, namespace)
        if live is None or isinstance(answer, Refusal):
            is_ahead = time_ns > self.clock.now_ns() + self.platform.accept_limit_ns
            self._check_refused(live, answer, "TIME_MALFORMED" if is_ahead else None)
            return
        through_ns = nanoseconds(answer.value.complete_through)
        known_ns = min(time_ns, self.folded_ns(live, counter))
        if answer.HasField("resolution"):
            self.happened["SOURCE_HISTORY"] += 1
            assert answer.value.source == pb.SOURCE_HISTORY
            assert answer.resolution.ToMilliseconds() == STEP_MS
            assert known_ns - STEP_NS < through_ns <= known_ns, "a nearer step is over by then"
        else:
            assert through_ns == known_ns
        value = answer.value

        def expected(world: World) -> tuple[int, int, int]:
            state = state_of(world, through_ns)
            return clamped(state.count), state.epoch, state.cleared_at_ns

        answered = (value.count, value.epoch, nanoseconds(value.cleared_at))
        self.counter(live, counter).explain(f"the count at {through_ns}", answered, expected)

    def history(
        self, server: int, namespace: str, counter: str, minutes: int, steps: int | None
    ) -> None:
        start_ns, end_ns = self.ago(minutes * STEP_MS), self.clock.now_ns()
        request = pb.GetCountHistoryRequest(
            namespace=namespace, counter_name=counter, start=stamp(start_ns), end=stamp(end_ns)
        )
        if steps is not None:
            request.step.FromMilliseconds(steps * STEP_MS)
        answer = self.ask(server, "GetCountHistory", request)
        live = self.live(server, namespace)
        if live is None or isinstance(answer, Refusal):
            self._check_refused(live, answer, None)
            return
        assert live.settings.history
        step_ns = (steps or 1) * STEP_NS
        assert answer.step.ToNanoseconds() == step_ns
        starts = range(start_ns // step_ns * step_ns, end_ns + 1, step_ns)
        assert [nanoseconds(each.start) for each in answer.points] == list(starts)
        through_ns = nanoseconds(answer.complete_through)
        assert through_ns == self.folded_ns(live, counter)
        is_known = [each.known for each in answer.points]
        assert all(is_known) or live.id in self.versions.without_history, "a gap in the history"

        def expected(world: World) -> Any:
            points = tuple(
                _point(world, start, start + step_ns - 1, through_ns) if known else None
                for start, known in zip(starts, is_known, strict=True)
            )
            last_ns = min(starts.stop - 1 + step_ns, starts[-1] + step_ns - 1, through_ns)
            adjustments = tuple(
                (identity.time_ns, world[identity].delta)
                for identity in sorted(world)
                if world[identity].note is not None and starts[0] <= identity.time_ns <= last_ns
            )
            return points, adjustments

        answered = (
            tuple(
                (each.delta, each.count, each.epoch) if each.known else None
                for each in answer.points
            ),
            tuple((nanoseconds(each.time), each.delta) for each in answer.adjustments),
        )
        self.counter(live, counter).explain("the history", answered, expected)

    def list_counters(self, server: int, namespace: str, prefix: str, page_size: int) -> None:
        live = self.live(server, namespace)
        listed: list[pb.CounterEntry] = []
        page_token = ""
        while True:
            request = pb.ListCountersRequest(
                namespace=namespace, prefix=prefix, page_size=page_size, page_token=page_token
            )
            answer = self.ask(server, "ListCounters", request)
            if live is None or isinstance(answer, Refusal):
                self._check_refused(live, answer, None)
                return
            assert len(answer.counters) <= page_size
            listed += answer.counters
            page_token = answer.next_page_token
            if not page_token:
                break
            assert len(answer.counters) == page_size
        names = [each.counter_name for each in listed]
        assert names == sorted(set(names))
        self._check_listed(live, names, prefix, nanoseconds(answer.complete_through))
        for each in listed:
            self.check_value(live, each.counter_name, each.value, of_rollup=True)

    def top_counters(self, server: int, namespace: str, prefix: str, minutes: int | None) -> None:
        request = pb.TopCountersRequest(namespace=namespace, prefix=prefix)
        if minutes is not None:
            request.rank_by = pb.RANK_BY_GROWTH
            request.period.FromMilliseconds(minutes * STEP_MS)
        answer = self.ask(server, "TopCounters", request)
        live = self.live(server, namespace)
        if live is None or isinstance(answer, Refusal):
            self._check_refused(live, answer, None, needs_history=minutes is not None)
            return
        names = [each.counter_name for each in answer.counters]
        if minutes is None or live.id not in self.versions.without_history:
            self._check_listed(live, names, prefix, nanoseconds(answer.complete_through))
        scores = [each.growth if minutes else each.value.count for each in answer.counters]
        ranked = [(-score, name) for score, name in zip(scores, names, strict=True)]
        assert ranked == sorted(ranked)
        for each in answer.counters:
            self.check_value(live, each.counter_name, each.value, of_rollup=True)
            if minutes is not None:
                self._check_growth(live, each, nanoseconds(answer.growth_from))

    def _check_growth(self, live: Live, ranked: pb.RankedCounter, from_ns: int) -> None:
        through_ns = nanoseconds(ranked.value.complete_through)

        def expected(world: World) -> int:
            grown = state_of(world, through_ns).total - state_of(world, from_ns).total
            return clamped(grown)

        counter = self.counter(live, ranked.counter_name)
        counter.explain(f"the growth from {from_ns} to {through_ns}", ranked.growth, expected)

    def _check_listed(self, live: Live, names: list[str], prefix: str, through_ns: int) -> None:
        """Every counter that has an event up to the stamp, and none that never had one."""
        for (namespace_id, name), counter in self.counters.items():
            if namespace_id != live.id:
                continue
            if name.startswith(prefix) and counter.surely(through_ns):
                assert name in names, f"{name!r} is missing"
            folded_ns = self.folded_ns(live, name)
            assert name not in names or counter.possibly(folded_ns), f"{name!r} has no events"
        for name in names:
            assert name.startswith(prefix)
            assert (live.id, name) in self.counters

    def _check_refused(
        self, live: Live | None, answer: Any, wrong: str | None, *, needs_history: bool = True
    ) -> None:
        assert isinstance(answer, Refusal), answer
        if live is None:
            assert answer.reason == "NAMESPACE_UNKNOWN", answer
        elif wrong is not None:
            assert answer.reason == wrong, answer
        elif answer.reason == "READS_LIMITED":
            assert live.settings.reads_per_s is not None, answer
        elif answer.reason == "HISTORY_OFF":
            assert needs_history, answer
            assert not live.settings.history, answer
        else:
            assert answer.reason == "HISTORY_TOO_OLD", answer
            assert live.id in self.versions.without_history, answer


def _point(world: World, start_ns: int, end_ns: int, through_ns: int) -> tuple[int, int, int]:
    before = state_of(world, min(start_ns - 1, through_ns))
    after = state_of(world, min(end_ns, through_ns))
    return clamped(after.total - before.total), clamped(after.count), after.epoch
