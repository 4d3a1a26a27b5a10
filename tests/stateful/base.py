"""What the rules share: the installation, what is known of it, and how an answer is judged.

Beyond the events of each counter (`model`) the test knows what it did itself: how far windows are
closed and folded, which version of the namespaces each server has, which writes it made fail. All
calls are made one after the other, so most answers can be foretold to the letter.
"""

import asyncio
import re
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import grpc
from hypothesis.stateful import Bundle, RuleBasedStateMachine
from structlog.testing import capture_logs

from counter.clock import NS_PER_MS, ManualClock
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import namespace_service_pb2 as namespaces_pb
from tests.calls import Refusal, refusal_of
from tests.stateful.backends import BACKENDS
from tests.stateful.definitions import FIRST, PLAIN_NAMES, Live, Settings, Version, Versions
from tests.stateful.installation import (
    SERVERS,
    Installation,
    Stumble,
)
from tests.stateful.messages import Add, Outcome, nanoseconds
from tests.stateful.model import CounterModel, clamped, hits_of, state_of
from tests.stateful.quiet import no_waiting_for_folds
from tests.stores import shard_of

NAME_BYTES_MAX, TOKEN_BYTES_MAX = 256, 64
SOURCES_OF_CACHES = (pb.SOURCE_LOCAL_CACHE, pb.SOURCE_SHARED_CACHE)
STRATEGIES = {
    "eventual": pb.STRATEGY_EVENTUAL,
    "accurate": pb.STRATEGY_ACCURATE,
    "rolling_window": pb.STRATEGY_ROLLING_WINDOW,
}
# Refusals by limits of a namespace, which promise that nothing was written.
LIMITED = {"ADDS_LIMITED": "adds_per_s", "COUNTERS_LIMITED": "counters"}
_TIMEOUT_S = 60.0


class Adrift(NamedTuple):
    """A write on its way to the log."""

    counter: CounterModel
    shard: int
    add: Add
    surely: bool  # whether there is one at all


class Machine(RuleBasedStateMachine):
    backend: ClassVar[str] = "memory"
    sent = Bundle("sent")
    # What has happened in all runs: a test that never saw it has tested nothing.
    happened: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self._stack = ExitStack()
        self._runner = self._stack.enter_context(asyncio.Runner())
        self._stack.enter_context(no_waiting_for_folds())
        self._stack.enter_context(capture_logs())  # a failure shows its steps, and no more
        directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.platform, open_stores = BACKENDS[self.backend](directory, self.clock)
        self.installation = Installation(open_stores, self.platform, self.clock)
        self.run(self.installation.start())
        self.layout = self.installation.layout
        # What the test knows.
        self.versions = Versions()
        self.serving = [0] * SERVERS
        self.counters: dict[tuple[int, str], CounterModel] = {}
        self.closed_through = self.layout.from_window - 1
        self.folded = [self.layout.from_window - 1] * self.layout.shards
        self.forgotten_through = self.layout.from_window - 1
        self.lag_ns = [0] * SERVERS  # of the folds, as each server knows it
        self.seen_ns: dict[tuple[int, str], int] = {}  # the latest complete_through
        self.stumble: Stumble | None = None  # of the next write to the log
        self.adrift: list[Adrift] = []
        self.apply(dict(FIRST))
        self.follow()

    def run(self, work: Any) -> Any:
        return self._runner.get_loop().run_until_complete(work)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.check_in_the_end()
        finally:
            self.run(self.installation.stop())
            self._stack.close()

    def check_in_the_end(self) -> None:
        """That everything is folded, and the same on all paths."""

    # Calls.

    def ask(self, server: int, rpc: str, request: Any) -> Any:
        """The response, or the Refusal."""
        return self.answer(getattr(self.installation.servers[server].calls, rpc), request)

    def answer(self, call: Any, request: Any) -> Any:
        async def answer() -> Any:
            try:
                return await call(request, timeout=_TIMEOUT_S)
            except grpc.aio.AioRpcError as error:
                return refusal_of(error)

        answered = self.run(answer())
        if isinstance(answered, Refusal):
            assert answered.reason != "INTERNAL", answered
            self.happened[answered.reason] += 1
        return answered

    def live(self, server: int, namespace: str) -> Live | None:
        """The namespace as the server has it."""
        return self.served(server).get(namespace)

    def served(self, server: int) -> Version:
        return self.versions.all[self.serving[server]]

    def apply(self, wanted: dict[str, Settings]) -> None:
        files = [
            namespaces_pb.NamespaceFile(path=f"{name}.yaml", content=settings.yaml(name))
            for name, settings in wanted.items()
        ]
        request = namespaces_pb.ApplyNamespacesRequest(
            files=files,
            expected_version=self.versions.last,
            author="the test",
            reason="a change",
            allow_data_loss=True,
        )
        answer = self.answer(self.installation.namespaces.ApplyNamespaces, request)
        assert not isinstance(answer, Refusal), answer
        self.versions.add(answer.version.version, wanted, self.ids())
        self.serving[0] = self.versions.last

    def ids(self) -> dict[str, int]:
        request = namespaces_pb.ListNamespacesRequest()
        listed = self.answer(self.installation.namespaces.ListNamespaces, request)
        return {each.name: each.id for each in listed.namespaces}

    def follow(self) -> None:
        self.run(self.installation.follow())
        self.serving[1] = self.versions.last

    # What is known of a counter.

    def counter(self, live: Live, name: str) -> CounterModel:
        return self.counters.setdefault((live.id, name), CounterModel(name))

    def shard(self, live: Live, name: str) -> int:
        return shard_of(live.id, name, self.layout.shards)

    def folded_ns(self, live: Live, name: str) -> int:
        """The last instant that is folded."""
        return self.layout.complete_through_ns(self.folded[self.shard(live, name)])

    # Writes.

    def check_write(self, server: int, live: Live, add: Add, outcome: Outcome) -> None:
        """An outcome of a request with which nothing is wrong."""
        self.happened[outcome.reason or ("a duplicate" if outcome.duplicate else "an add")] += 1
        reason, counter = outcome.reason, self.counter(live, add.counter)
        if reason in LIMITED and add.note is None:
            assert getattr(live.settings, LIMITED[reason]) is not None, (outcome, live)
            folded_ns = self.folded_ns(live, add.counter)
            assert reason != "COUNTERS_LIMITED" or not counter.surely(folded_ns), outcome
            return
        slowed_ns = self.platform.log_retention_ns // 4
        if reason == "FOLD_LAGGING":
            assert self.lag_ns[server] > slowed_ns, (outcome, self.lag_ns)
            return
        assert self.lag_ns[server] < 2 * slowed_ns, f"{outcome} although folds are far behind"
        shard = self.shard(live, add.counter)
        window = self.layout.window_of(add.identity.time_ns)
        # A server that knows of the close does not even write.
        written = Adrift(counter, shard, add, window > self.closed_through)
        if reason == "STORE_UNAVAILABLE":
            assert self.stumble is not None, "the store did not fail"
            if self.stumble is Stumble.AFTER:
                self._note_written(written)
            elif self.stumble is Stumble.ADRIFT:
                self.adrift.append(written)
        elif window > self.closed_through:
            assert outcome == Outcome(""), f"{outcome} in a window that is open"
            self._note_written(written)
        elif window > self.folded[shard]:
            assert reason == "FOLD_PENDING", f"{outcome} before the window is folded"
            self._note_written(written)
        elif reason == "TOKEN_TOO_OLD":
            assert window <= self.forgotten_through, f"{outcome}, and nothing is forgotten"
        else:
            assert outcome in (Outcome("", duplicate=True), Outcome("TOKEN_EXPIRED")), outcome
            counter.settle(add.identity, is_applied=outcome.duplicate)

    def land(self) -> None:
        """What was adrift reaches the log; where it is folded already, that changes nothing."""
        self.run(self.installation.land())
        for each in self.adrift:
            window = self.layout.window_of(each.add.identity.time_ns)
            is_folded = window <= self.folded[each.shard]
            self.happened["a write landed after its fold" if is_folded else "a write landed"] += 1
            self._note_written(each)
        self.adrift = []

    def _note_written(self, adrift: Adrift) -> None:
        window = self.layout.window_of(adrift.add.identity.time_ns)
        if window > self.folded[adrift.shard]:
            adrift.counter.write(adrift.add.identity, adrift.add.effect, surely=adrift.surely)

    def wrong_with(self, settings: Settings, add: Add) -> str | None:
        """The reason for which such a request is refused, whatever is counted."""
        most = 2**53 if add.note is not None else settings.max_delta
        latest_ns = self.clock.now_ns() + self.platform.accept_limit_ns
        if add.time_ns is None:
            return "TOKEN_MALFORMED"
        if not 0 < len(add.counter.encode()) <= NAME_BYTES_MAX:
            return "NAME_EMPTY" if not add.counter else "NAME_TOO_LONG"
        if add.delta is not None and not 0 < abs(add.delta) <= most:
            return "DELTA_ZERO" if add.delta == 0 else "DELTA_TOO_LARGE"
        if not 0 < len(add.token.encode()) <= TOKEN_BYTES_MAX:
            return "TOKEN_MALFORMED"
        if add.region not in ("", self.platform.region):
            return "WRONG_REGION"
        if add.time_ns > latest_ns:
            return "TOKEN_FROM_FUTURE"
        is_plain = re.fullmatch(PLAIN_NAMES, add.counter)
        if settings.plain_names and add.note is None and not is_plain:
            return "NAME_NOT_ALLOWED"
        return None

    # Reads.

    def check_value(
        self, live: Live, name: str, value: pb.CountValue, *, of_rollup: bool = False
    ) -> None:
        """A count as of now (I5). `of_rollup`: it comes from the rollup alone, or from a ranking
        that was made before, and is not as fresh as its strategy allows."""
        self.happened[pb.Source.Name(value.source)] += 1
        self.happened["saturated"] += value.saturated
        self.happened["several worlds"] += len(self.counter(live, name).worlds) > 1
        through_ns = nanoseconds(value.complete_through)
        folded_ns = self.folded_ns(live, name)
        assert value.strategy == STRATEGIES[live.settings.strategy]
        assert through_ns <= folded_ns, "complete through a window that is not folded"
        is_accurate = value.source == pb.SOURCE_ROLLUP_AND_TAIL
        if not of_rollup:
            assert is_accurate or live.settings.strategy == "eventual", value
            is_cached = value.source in SOURCES_OF_CACHES
            assert is_cached or through_ns == folded_ns, "less complete than it could be"
            assert live.settings.is_cached or not is_cached, "from a cache that is off"
        # Whatever is acknowledged is in the log, so that an accurate answer has all of it.
        up_to_ns = through_ns if not is_accurate else 2**80
        answered = (
            value.count,
            value.epoch,
            nanoseconds(value.cleared_at),
            value.saturated,
        )
        from_ns = nanoseconds(value.window_start) if value.HasField("window_start") else None
        assert (from_ns is not None) == (live.settings.strategy == "rolling_window")

        def expected(world: Any) -> tuple[int, int, int, bool]:
            state = state_of(world, up_to_ns)
            count = state.count if from_ns is None else hits_of(world, from_ns, up_to_ns)
            return clamped(count), state.epoch, state.cleared_at_ns, count != clamped(count)

        what = f"the count (epoch, cleared at, saturated) through {through_ns}"
        self.counter(live, name).explain(what, answered, expected)
        key = (live.id, name)
        self.seen_ns[key] = max(through_ns, self.seen_ns.get(key, 0))

    def ago(self, milliseconds: int) -> int:
        return self.clock.now_ns() - milliseconds * NS_PER_MS
