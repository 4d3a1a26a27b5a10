"""The asyncio client."""

import asyncio
import copy
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from random import Random
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from clients import translate
from clients.adds import UNSETTLED_MAX_DEFAULT, Adds
from clients.audit_calls import AuditCalls
from clients.batch import (
    ITEMS_PER_CALL,
    BatchOutcomes,
    BatchPlace,
    BatchSizes,
    in_flight,
    pieces,
)
from clients.connection import Connection, Method, check_timeout
from clients.entries import Caller, SoonAdd, check_add, check_counter, check_token
from clients.errors import InvalidRequest, OutcomeUnknown, Overloaded, TokenFromFuture, Unavailable
from clients.history_calls import HistoryCalls
from clients.namespace_calls import NamespaceCalls
from clients.reads import Reader, Reads
from clients.retry import delay_before
from clients.shadow_calls import ShadowCalls
from clients.soon import OnAddFailed
from clients.translate import Freshness, check_delta, check_name, token_message
from clients.values import Add, AddAndGetResult, AddOutcome, AddResult, CountValue, TokenStatus
from clients.writes import Write, send_write
from counter.clock import Clock, SystemClock
from counter.tokens import Token
from counter.v1 import counter_service_pb2 as pb

TIMEOUT_S_DEFAULT = 30.0


class CounterClient(HistoryCalls, AuditCalls, NamespaceCalls, ShadowCalls):
    """Adds to, reads and clears the counters of one namespace.

    Each add and clear has a token, made once per call and sent again with every retry, so that it
    counts exactly once however often it had to be sent. A call returns when its outcome is known;
    `timeout_s` bounds all its attempts and waits together. Wrong local clocks are corrected from
    the platform's answers. The connection opens at the first call and belongs to the event loop
    that is running then; `SyncCounterClient` has the same methods for threads and scripts.

    Adds and reads that are made at once travel together, so call `add` wherever something happens,
    from as many tasks as there are. At most `unsettled_max` adds are on their way: further ones
    wait for room, and `add_soon` refuses them. `on_add_failed` hears of adds made with `add_soon`
    that failed; without it the log does.

        async with CounterClient("127.0.0.1:50051", namespace="video_plays") as client:
            await client.add("title-42")
            value = await client.get("title-42")
            print(value.count, value.complete_through)

    `credentials` are for TLS; without them the connection is not encrypted. Every method raises
    the errors of `clients.errors`, and ClientClosed after `close`.
    """

    def __init__(
        self,
        target: str,
        *,
        namespace: str,
        timeout_s: float = TIMEOUT_S_DEFAULT,
        credentials: grpc.ChannelCredentials | None = None,
        unsettled_max: int = UNSETTLED_MAX_DEFAULT,
        on_add_failed: OnAddFailed | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        connection = Connection(
            target,
            credentials=credentials,
            clock=clock or SystemClock(),
            random=random or Random(),
        )
        super().__init__(connection, timeout_s)
        self._namespace = check_name(namespace, "namespace")
        self._owns_connection = True
        self._sizes = BatchSizes()
        self._adds = Adds(
            connection, self._sizes, unsettled_max=unsettled_max, on_failed=on_add_failed
        )
        self._lane = self._adds.lane(namespace)
        self._reads = Reads(connection, self._sizes)

    def in_namespace(self, name: str) -> Self:
        """A client for another namespace, on the same connection and with the same tokens.

        It lives as long as the client it comes from; closing it changes nothing.

            likes = client.in_namespace("likes")
            await likes.add("title-42")
        """
        other = copy.copy(self)
        other._namespace = check_name(name, "namespace")
        other._lane = self._adds.lane(name)
        other._owns_connection = False
        return other

    async def close(self) -> None:
        """Waits for the adds made with `add_soon`, then closes the connection.

        A write still under way raises OutcomeUnknown to its caller.

            await client.close()  # or use `async with`
        """
        if not self._owns_connection:
            return
        try:
            await self._adds.flush_and_refuse()
        finally:
            await self._connection.close()
            await self._adds.end()
            await self._reads.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def add(
        self,
        counter: str,
        delta: int = 1,
        *,
        token: Token | None = None,
        timeout_s: float | None = None,
    ) -> AddResult:
        """Adds `delta`; when it returns, the add is durable and counts exactly once.

        Pass a `token` of your own (from `new_token`) if the call itself may be repeated later, by
        another process for example: the same counter and token count once.
        Raises OutcomeUnknown if the deadline passed and the add may have been applied; Overloaded
        if it was refused until then; TokenExpired if your token came too late to be applied.

            result = await client.add("title-42", 3)
            await client.add("title-42", 3, token=result.token)  # still 3 in all
        """
        if timeout_s is None:
            timeout_s = self._timeout_s
        waiter = self._adds.add(self._lane, counter, delta, token, timeout_s)
        try:
            return await waiter
        except asyncio.CancelledError:
            self._adds.abandoned(self._lane)
            raise

    def add_soon(
        self,
        counter: str,
        delta: int = 1,
        *,
        token: Token | None = None,
        timeout_s: float | None = None,
    ) -> Token:
        """As `add`, but does not wait: returns the token at once, and settles in the background.

        It is sent and retried like any add. If it fails, `on_add_failed` or the log says so;
        `flush` and `close` wait for all of them. Raises Overloaded (CLIENT_FULL) at once if too
        many adds are on their way. Call it on the client's event loop.

            client.add_soon("title-42")
        """
        add = self._soon(counter, delta, token, timeout_s)
        self._adds.check_room()
        self._adds.submit_soon(add)
        return add.token

    async def flush(self, *, timeout_s: float | None = None) -> None:
        """Waits until all adds made with `add_soon` so far are settled.

        Raises Unavailable (NOT_SETTLED) if that takes longer than `timeout_s`; without it, it takes
        as long as their own deadlines allow.

            await client.flush()
        """
        await self._adds.soon.flush(timeout_s)

    async def add_and_get(
        self,
        counter: str,
        delta: int = 1,
        *,
        token: Token | None = None,
        timeout_s: float | None = None,
    ) -> AddAndGetResult:
        """As `add`, and answers with a count that includes this add.

        result = await client.add_and_get("title-42")
        print(result.value.count)
        """
        request = partial(pb.AddAndGetCountRequest, delta=check_delta(delta))
        method = self._connection.counters.AddAndGetCount
        write, response = await self._write(method, request, counter, delta, token, timeout_s)
        return AddAndGetResult(
            token=translate.token_used(response.idempotency_token, write.token),
            duplicate=response.duplicate,
            value=translate.count_value(response.value),
        )

    async def clear(
        self, counter: str, *, token: Token | None = None, timeout_s: float | None = None
    ) -> AddResult:
        """Sets the counter back to 0 as of the token's time; settled and retried as an add.

        What this client added before is gone, what it adds afterwards counts.

            await client.clear("title-42")
        """
        method = self._connection.counters.ClearCount
        return self._result(
            *await self._write(method, pb.ClearCountRequest, counter, None, token, timeout_s)
        )

    async def adjust(
        self,
        counter: str,
        delta: int,
        *,
        author: str,
        reason: str,
        token: Token | None = None,
        timeout_s: float | None = None,
    ) -> AddResult:
        """Corrects a count that an audit found wrong; settled and retried as an add.

        `author` (1 to 100 characters) and `reason` (1 to 500) stay in the history, with the
        correction. The namespace's max_delta does not apply.

            audit = await client.audit_counter("title-42")
            delta = audit.expected_count - audit.actual_count
            await client.adjust("title-42", delta, author="oncall", reason="bug 123")
        """
        request = partial(
            pb.AdjustCountRequest,
            delta=check_delta(delta),
            author=check_name(author, "author"),
            reason=check_name(reason, "reason"),
        )
        method = self._connection.counters.AdjustCount
        return self._result(
            *await self._write(method, request, counter, delta, token, timeout_s, act="adjustment")
        )

    async def get(
        self,
        counter: str,
        *,
        max_staleness: timedelta | None = None,
        at_least: Freshness | None = None,
        timeout_s: float | None = None,
    ) -> CountValue:
        """The count, and how fresh it is. A counter that nobody added to reads 0.

        `max_staleness` asks for an accurate answer if the cheap one is older. `at_least` is what
        you saw last: you never get an older answer. Pass the CountValue itself (or its
        `complete_through_ns`): a datetime has lost the nanoseconds.

            value = await client.get("title-42")
            later = await client.get("title-42", at_least=value)
        """
        reader: asyncio.Future[CountValue] = asyncio.get_running_loop().create_future()
        self._ask(reader, counter, max_staleness, at_least, timeout_s)
        return await reader

    async def batch_add(
        self,
        items: Iterable[Add],
        *,
        timeout_s: float | None = None,
    ) -> list[AddOutcome]:
        """Many adds: one outcome each, in order, each as definite as that of a single add.

        It does not raise for what happens to an item or a call: look at each outcome's `error`. The
        deadline is for the whole batch; items that it left unsent say so (reason NOT_SENT).

            outcomes = await client.batch_add(Add(title) for title in titles)
            failed = [outcome for outcome in outcomes if outcome.error is not None]
        """
        adds = list(items)
        self._connection.check_open()
        if timeout_s is None:
            timeout_s = self._timeout_s
        outcomes = BatchOutcomes(len(adds))
        submit, lane = self._adds.submit, self._lane
        for position, add in enumerate(adds):
            counter, place = add.counter, BatchPlace(outcomes, position, add.counter)
            try:
                submit(lane, counter, add.delta, add.token, timeout_s, place)
            except InvalidRequest as error:
                token = add.token or self._connection.tokens.next()
                place.failed(AddOutcome(counter, token, error=error))
        try:
            return await outcomes.wait()
        except asyncio.CancelledError:
            self._adds.abandoned(lane)
            raise

    async def batch_get(
        self,
        counters: Iterable[str],
        *,
        max_staleness: timedelta | None = None,
        at_least: Freshness | None = None,
        items_per_call: int = ITEMS_PER_CALL,
        timeout_s: float | None = None,
    ) -> list[CountValue]:
        """Many reads, in order. Each value has its own freshness; they are no snapshot.

        first, second = await client.batch_get(["title-1", "title-2"])
        """
        names = [check_name(counter) for counter in counters]
        deadline = self._deadline(timeout_s)

        async def read(positions: range) -> Iterable[pb.CountValue]:
            request = pb.BatchGetCountRequest(
                namespace=self._namespace,
                counter_name=names[positions.start : positions.stop],
                max_staleness=translate.max_staleness_message(max_staleness),
                at_least=translate.at_least_message(at_least),
            )
            response: pb.BatchGetCountResponse = await self._connection.read(
                self._connection.counters.BatchGetCount,
                request,
                what=f"the read of {len(positions)} counters in namespace {self._namespace!r}",
                deadline=deadline,
            )
            return translate.check_values(response, len(positions))

        parts = pieces(len(names), items_per_call)
        answers = await in_flight([partial(read, part) for part in parts])
        return [translate.count_value(value) for part in answers for value in part]

    async def token_status(
        self, counter: str, token: Token, *, timeout_s: float | None = None
    ) -> TokenStatus:
        """What became of a token, as far as it is decided now.

        status = await client.token_status("title-42", result.token)
        """
        request = pb.GetTokenStatusRequest(
            namespace=self._namespace,
            counter_name=check_name(counter),
            idempotency_token=token_message(token),
        )
        response: pb.GetTokenStatusResponse = await self._connection.read(
            self._connection.counters.GetTokenStatus,
            request,
            what=f"the status of a token of {counter!r} in namespace {self._namespace!r}",
            deadline=self._deadline(timeout_s),
        )
        return translate.token_status(response)

    async def settle(
        self, counter: str, token: Token, *, timeout_s: float | None = None
    ) -> TokenStatus:
        """Waits until it is decided for ever: APPLIED or NOT_APPLIED.

        Raises OutcomeUnknown if it is not decided within the deadline, TokenTooOld if it is no
        longer known.

            try:
                await client.add("title-42")
            except OutcomeUnknown as error:
                status = await client.settle("title-42", error.token)
        """
        deadline = self._deadline(timeout_s)
        looks = 0
        while True:
            last_error: TokenFromFuture | Overloaded | Unavailable | None = None
            try:
                status = await self.token_status(
                    counter, token, timeout_s=max(deadline.remaining_s(), 0.001)
                )
                if status is not TokenStatus.PENDING:
                    return status
            except (TokenFromFuture, Overloaded, Unavailable) as error:
                last_error = error
            looks += 1
            remaining_s = deadline.remaining_s()
            delay_s = delay_before(looks, None, remaining_s, self._connection.random)
            if delay_s is None:
                raise OutcomeUnknown(
                    f"whether the token of {counter!r} in namespace {self._namespace!r} is applied "
                    f"was not decided within {deadline.timeout_s:g} s "
                    f"({last_error or 'its window is not folded yet'}). Call settle again.",
                    token=token,
                    counter=counter,
                    last_error=last_error,
                ) from last_error
            await self._connection.pause(delay_s)

    def new_token(self) -> Token:
        """A token for a call that may be repeated; each one's time is later than the last one's.

        The times go back only if the platform has shown this machine's clock to be far ahead.

            token = client.new_token()
            await client.add("title-42", token=token)
        """
        return self._connection.tokens.next()

    # What the synchronous client begins with too: its waiters are threads.

    def _submit(
        self,
        waiter: Caller,
        counter: str,
        delta: int,
        token: Token | None,
        timeout_s: float | None,
    ) -> None:
        if timeout_s is None:
            timeout_s = self._timeout_s
        self._adds.submit(self._lane, counter, delta, token, timeout_s, waiter)

    def _soon(
        self, counter: str, delta: int, token: Token | None, timeout_s: float | None
    ) -> SoonAdd:
        return SoonAdd(
            lane=self._lane,
            counter=counter,
            delta=check_add(counter, delta),
            token=self.new_token() if token is None else check_token(token),
            own_token=token is None,
            timeout_s=check_timeout(self._timeout_s if timeout_s is None else timeout_s),
        )

    def _ask(
        self,
        reader: Reader,
        counter: str,
        max_staleness: timedelta | None,
        at_least: Freshness | None,
        timeout_s: float | None,
    ) -> None:
        self._reads.ask(
            self._namespace,
            check_counter(counter),
            translate.max_staleness_message(max_staleness),
            translate.at_least_message(at_least),
            self._timeout_s if timeout_s is None else timeout_s,
            reader,
        )

    async def _write(
        self,
        method: Method,
        request: Callable[..., Message],
        counter: str,
        delta: int | None,
        token: Token | None,
        timeout_s: float | None,
        act: str = "add",
    ) -> tuple[Write, Any]:
        check_name(counter)
        deadline = self._deadline(timeout_s)
        write = Write(
            self._connection,
            namespace=self._namespace,
            counter=counter,
            delta=delta,
            token=token,
            act=act,
        )

        def request_of(token: Token) -> Message:
            return request(
                namespace=self._namespace,
                counter_name=counter,
                idempotency_token=token_message(token),
            )

        return write, await send_write(write, self._connection, method, request_of, deadline)

    @staticmethod
    def _result(write: Write, response: Any) -> AddResult:
        return AddResult(
            token=translate.token_used(response.idempotency_token, write.token),
            duplicate=response.duplicate,
        )
