"""A running server with a clock that is told, on which planned changes are made: to see what comes
of them, as callers see it."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import grpc

from control_plane.planning.changes import changes_between
from control_plane.planning.consequences import ACTION_RULES, rule_for
from control_plane.planning.plan import Action, NamespaceChange, plan
from counter.clock import ManualClock
from counter.namespaces import EMPTY, Definition, Snapshot, Strategy, next_snapshot
from counter.rpc.server import RpcServer
from counter.settings import Platform
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter.windows import Layout
from counter_server.app import SERVICE, CounterServer
from counter_server.commit import CommitLimits
from rollup_worker.retention import Retention
from rollup_worker.rollup import Rollup
from tests.calls import Refusal, refusal_of
from tests.stores import Stores, fold_stores, server_stores

NAME = "plays"
# Long enough for a test's clock to jump ahead by hours without folds.
PLATFORM = Platform(region="test", log_retention_s=30 * 86_400)
MINUTE_MS = 60_000

RuleName = tuple[str, str]  # what it is for, and when it holds
Test = TypeVar("Test", bound=Callable[..., Any])

# The rules that have a test, with its name.
TESTED: dict[RuleName, str] = {}


def comes_true(*rules: RuleName) -> Callable[[Test], Test]:
    """Marks a test in which what these rules say comes true. It must make changes to which they
    apply: the fixture checks that."""

    def mark(test: Test) -> Test:
        for rule in rules:
            known = TESTED.setdefault(rule, test.__name__)
            assert known == test.__name__, f"{rule} is tested by {known} already"
        test.__dict__["rules"] = rules
        return test

    return mark


class Live:
    def __init__(self, stores: Stores, clock: ManualClock, layout: Layout) -> None:
        self.clock = clock
        self.layout = layout
        self.snapshot: Snapshot = EMPTY
        self.applied: set[RuleName] = set()
        self.stub: pb_grpc.CounterServiceStub
        self._stores = stores
        self.server = CounterServer(
            server_stores(stores, clock),
            platform=PLATFORM,
            layout=layout,
            clock=clock,
            limits=CommitLimits(),
        )
        self._rollup = Rollup(fold_stores(stores), layout)
        self._retention = Retention(
            stores.event_log, stores.ledger, stores.history_store, layout, PLATFORM, clock
        )

    # Changes.

    async def apply(self, *wanted: Definition, ids: Mapping[str, int] = {}) -> NamespaceChange:
        """Plans a change of one namespace and makes it, also one that would be refused."""
        planned = plan(self.snapshot, wanted, ids)
        [change] = planned.changes
        snapshot = next_snapshot(self.snapshot, wanted, applied_at_ns=self.clock.now_ns(), ids=ids)
        self._note_rules(change, snapshot)
        self.server.check(snapshot)
        assert await self._stores.namespace_store.put(snapshot)
        self.server.switch(snapshot)
        self.snapshot = snapshot
        return change

    async def define(self, **fields: Any) -> NamespaceChange:
        """Gives the namespace these fields, and the defaults for all others."""
        return await self.apply(
            Definition(**{"name": NAME, "strategy": Strategy.EVENTUAL} | fields)
        )

    def _note_rules(self, change: NamespaceChange, snapshot: Snapshot) -> None:
        self.applied.update(
            (rule.subject, rule.when)
            for rule in ACTION_RULES
            if rule.explanation == change.explanation
        )
        if change.action in (Action.CHANGE, Action.RESTORE):
            later = snapshot.namespaces[change.namespace]
            for each in changes_between(self.snapshot.by_id[later.id], later):
                rule = rule_for(each)
                self.applied.add((rule.subject, rule.when))

    # Calls.

    async def add(
        self, counter: str = "a", delta: int = 1, token: pb.IdempotencyToken | None = None
    ) -> None:
        await self.stub.AddCount(
            pb.AddCountRequest(
                namespace=NAME, counter_name=counter, delta=delta, idempotency_token=token
            )
        )

    async def add_many(self, *counters: str) -> pb.BatchAddCountResponse:
        items = [pb.AddCountItem(counter_name=each, delta=1) for each in counters]
        return await self.stub.BatchAddCount(pb.BatchAddCountRequest(namespace=NAME, items=items))

    async def read(self, counter: str = "a") -> pb.CountValue:
        request = pb.GetCountRequest(namespace=NAME, counter_name=counter)
        return (await self.stub.GetCount(request)).value

    async def count(self, counter: str = "a") -> int:
        return (await self.read(counter)).count

    async def history(
        self, *, minutes: int, step_ms: int | None = None
    ) -> pb.GetCountHistoryResponse:
        """From so many minutes ago up to now."""
        request = pb.GetCountHistoryRequest(namespace=NAME, counter_name="a")
        request.start.FromNanoseconds(self.clock.now_ns() - minutes * MINUTE_MS * 1_000_000)
        if step_ms is not None:
            request.step.FromMilliseconds(step_ms)
        return await self.stub.GetCountHistory(request)

    async def refusal(self, call: Any) -> Refusal:
        try:
            answer = await call
        except grpc.RpcError as error:
            return refusal_of(error)
        raise AssertionError(f"not refused: {answer}")

    def token(self, name: str) -> pb.IdempotencyToken:
        message = pb.IdempotencyToken(token=name)
        message.generation_time.FromNanoseconds(self.clock.now_ns())
        return message

    # Time.

    def pass_ms(self, milliseconds: int) -> None:
        self.clock.advance_ms(milliseconds)

    async def fold(self) -> None:
        """Lets the windows with events end, and folds them; the time is a second later."""
        self.clock.advance_ms(PLATFORM.window_ms)
        through = self.layout.window_of(self.clock.now_ns()) - 1
        await self._stores.ledger.close(through)
        for shard in range(self.layout.shards):
            while (
                await self._rollup.fold_shard(
                    shard, through, events_max=100_000, rollups_per_batch=100
                )
            ).has_more:
                pass

    async def forget_history(self) -> None:
        await self._retention.forget_history()

    async def add_each_minute(self, minutes: int) -> None:
        """An add in each of the next minutes, each folded."""
        for _ in range(minutes):
            self.clock.advance_ms(MINUTE_MS - PLATFORM.window_ms)
            await self.add()
            await self.fold()


@asynccontextmanager
async def running(stores: Stores, clock: ManualClock) -> AsyncIterator[Live]:
    async with AsyncExitStack() as stack:
        layout = await stores.ledger.open_layout(PLATFORM.layout(clock.now_ns()))
        live = Live(stores, clock, layout)
        rpc = RpcServer()
        await live.server.start(rpc, stack)
        port = await rpc.start("127.0.0.1:0", (SERVICE,))
        stack.push_async_callback(rpc.stop, 0)
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{port}")
        stack.push_async_callback(channel.close)
        live.stub = pb_grpc.CounterServiceStub(channel)
        yield live
