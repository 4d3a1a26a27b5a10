"""Rules that read counts as they are now, and ask what became of tokens."""

from hypothesis import strategies as st
from hypothesis.stateful import rule

from counter.v1 import counter_service_pb2 as pb
from tests.calls import Refusal
from tests.stateful.base import Live, Machine
from tests.stateful.messages import Sent, nanoseconds, stamp
from tests.stateful.writing import COUNTER, NAMESPACE, SERVER

STALENESS_MS = st.sampled_from([None, None, 0, 5_000, 40_000])
# What the caller has seen last of the counter; more than anybody can know yet.
AT_LEAST = st.sampled_from([None, None, "seen", "beyond"])

Read = pb.GetCountRequest | pb.BatchGetCountRequest


class Reading(Machine):
    @rule(
        server=SERVER,
        namespace=NAMESPACE,
        counters=st.lists(COUNTER, min_size=1, max_size=4),
        max_staleness_ms=STALENESS_MS,
        at_least=AT_LEAST,
    )
    def get(
        self,
        server: int,
        namespace: str,
        counters: list[str],
        max_staleness_ms: int | None,
        at_least: str | None,
    ) -> None:
        """One by GetCount, several by BatchGetCount."""
        rpc = "GetCount" if len(counters) == 1 else "BatchGetCount"
        request: Read
        if rpc == "GetCount":
            request = pb.GetCountRequest(namespace=namespace, counter_name=counters[0])
        else:
            request = pb.BatchGetCountRequest(namespace=namespace, counter_name=counters)
        if max_staleness_ms is not None:
            request.max_staleness.FromMilliseconds(max_staleness_ms)
        live = self.live(server, namespace)
        if live is not None and at_least is not None:
            seen_ns = max(self.seen_ns.get((live.id, each), 0) for each in counters)
            beyond_ns = max(self.folded_ns(live, each) for each in counters) + 1
            request.at_least.CopyFrom(stamp(seen_ns if at_least == "seen" else beyond_ns))
        answer = self.ask(server, rpc, request)
        if not isinstance(answer, Refusal):
            answer = [answer.value] if rpc == "GetCount" else list(answer.values)
        self._check_read(server, namespace, counters, answer, request)

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

    def _check_read(
        self,
        server: int,
        namespace: str,
        counters: list[str],
        values: list[pb.CountValue] | Refusal,
        request: Read,
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
                if staleness_ms is not None:
                    request.max_staleness.FromMilliseconds(staleness_ms)
                answer = self.ask(server, "BatchGetCount", request)
                assert not isinstance(answer, Refusal), answer
                self._check_read(server, name, counters, list(answer.values), request)
                for counter, value in zip(counters, answer.values, strict=True):
                    assert nanoseconds(value.complete_through) == self.folded_ns(live, counter)
