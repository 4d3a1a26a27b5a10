"""Rules that read counts as they are now, and ask what became of tokens."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from counter.v1 import counter_service_pb2 as pb
from tests.calls import Refusal
from tests.stateful.base import Live, Machine, Sent, nanoseconds, stamp
from tests.stateful.writing import COUNTER, NAMESPACE, SERVER

STALENESS_MS = st.sampled_from([None, None, 0, 5_000, 40_000])
# What the caller has seen last of the counter; more than anybody can know yet.
AT_LEAST = st.sampled_from([None, None, "seen", "beyond"])


class Reading(Machine):
    @rule(
        server=SERVER,
        namespace=NAMESPACE,
        counter=COUNTER,
        max_staleness_ms=STALENESS_MS,
        at_least=AT_LEAST,
    )
    def get(
        self,
        server: int,
        namespace: str,
        counter: str,
        max_staleness_ms: int | None,
        at_least: str | None,
    ) -> None:
        request = pb.GetCountRequest(namespace=namespace, counter_name=counter)
        self._ask_for(request, max_staleness_ms, self._at_least_ns(server, namespace, [counter], at_least))
        answer = self.ask(server, "GetCount", request)
        values = answer if isinstance(answer, Refusal) else [answer.value]
        self._check_read(server, namespace, [counter], values, request)

    @rule(
        server=SERVER,
        namespace=NAMESPACE,
        counters=st.lists(COUNTER, min_size=1, max_size=4),
        max_staleness_ms=STALENESS_MS,
        at_least=AT_LEAST,
    )
    def batch_get(
        self,
        server: int,
        namespace: str,
        counters: list[str],
        max_staleness_ms: int | None,
        at_least: str | None,
    ) -> None:
        request = pb.BatchGetCountRequest(namespace=namespace, counter_name=counters)
        self._ask_for(request, max_staleness_ms, self._at_least_ns(server, namespace, counters, at_least))
        answer = self.ask(server, "BatchGetCount", request)
        values = answer if isinstance(answer, Refusal) else list(answer.values)
        self._check_read(server, namespace, counters, values, request)

    @rule(server=SERVER, earlier=Machine.sent)
    def token_status(self, server: int, earlier: Sent) -> None:
        namespace, add = earlier
        request = pb.GetTokenStatusRequest(
            namespace=namespace, counter_name=add.counter, idempotency_token=add.message()
        )
        answer = self.ask(server, "GetTokenStatus", request)
        live = self.live(server, namespace)
        if live is None:
            assert answer.reason == "NAMESPACE_UNKNOWN"
            return
        wrong = self.wrong_with(live.settings, add._replace(delta=None, note=("", "")))
        if wrong is not None:
            assert answer.reason == wrong, answer
            return
        window = self.layout.window_of(add.identity.time_ns)
        if isinstance(answer, Refusal):
            assert answer.reason == "TOKEN_TOO_OLD", answer
            assert window <= self.forgotten_through, f"{answer}, and nothing is forgotten"
        elif window > self.folded[self.shard(live, add.counter)]:
            assert answer.status == pb.TOKEN_STATUS_PENDING
        else:
            assert answer.status in (pb.TOKEN_STATUS_APPLIED, pb.TOKEN_STATUS_NOT_APPLIED)
            is_applied = answer.status == pb.TOKEN_STATUS_APPLIED
            self.counter(live, add.counter).settle(add.identity, is_applied=is_applied)

    def _at_least_ns(
        self, server: int, namespace: str, counters: list[str], at_least: str | None
    ) -> int | None:
        live = self.live(server, namespace)
        if live is None or at_least is None:
            return None
        if at_least == "beyond":
            return max(self.folded_ns(live, each) for each in counters) + 1
        return max(self.seen_ns.get((live.id, each), 0) for each in counters)

    def _ask_for(
        self,
        request: pb.GetCountRequest | pb.BatchGetCountRequest,
        max_staleness_ms: int | None,
        at_least_ns: int | None,
    ) -> None:
        if max_staleness_ms is not None:
            request.max_staleness.FromMilliseconds(max_staleness_ms)
        if at_least_ns is not None:
            request.at_least.CopyFrom(stamp(at_least_ns))

    def _check_read(
        self,
        server: int,
        namespace: str,
        counters: list[str],
        values: list[pb.CountValue] | Refusal,
        request: pb.GetCountRequest | pb.BatchGetCountRequest,
    ) -> None:
        live = self.live(server, namespace)
        if live is None:
            assert isinstance(values, Refusal), values
            assert values.reason == "NAMESPACE_UNKNOWN", values
            return
        most = live.settings.batch_items
        if isinstance(request, pb.BatchGetCountRequest) and most and len(counters) > most:
            assert isinstance(values, Refusal), values
            assert values.reason == "BATCH_TOO_LARGE", values
            return
        at_least_ns = nanoseconds(request.at_least)
        if isinstance(values, Refusal):
            if values.reason == "READS_LIMITED":
                assert live.settings.reads_per_s is not None, values
                return
            assert values.reason == "NOT_FRESH_ENOUGH", values
            freshest_ns = min(self.folded_ns(live, each) for each in counters)
            assert freshest_ns < at_least_ns, "there is something as fresh as asked for"
            return
        assert len(values) == len(counters)
        for counter, value in zip(counters, values, strict=True):
            through_ns = nanoseconds(value.complete_through)
            assert through_ns >= at_least_ns, "older than what was seen (I4)"
            if request.HasField("max_staleness"):
                oldest_ns = self.clock.now_ns() - request.max_staleness.ToNanoseconds()
                is_accurate = value.source == pb.SOURCE_ROLLUP_AND_TAIL
                assert is_accurate or through_ns >= oldest_ns, "staler than asked for"
            self.check_value(live, counter, value)

    def read_everywhere(self, live: Live, name: str, counters: list[str]) -> None:
        """All counters of a namespace, on all servers and by all ways."""
        for server in range(len(self.serving)):
            for staleness_ms in (None, 0):
                request = pb.BatchGetCountRequest(namespace=name, counter_name=counters)
                self._ask_for(request, staleness_ms, None)
                answer = self.ask(server, "BatchGetCount", request)
                assert not isinstance(answer, Refusal), answer
                self._check_read(server, name, counters, list(answer.values), request)
                for counter, value in zip(counters, answer.values, strict=True):
                    assert nanoseconds(value.complete_through) == self.folded_ns(live, counter)


