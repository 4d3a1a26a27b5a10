"""A platform of a few lines behind a real gRPC server, which misbehaves as each test tells it to.

It counts by token, so a test can tell an add that was sent three times from three adds. Errors go
out through the product's own table, so that the SDK is tested on what servers really send.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from random import Random
from typing import Any

import grpc
import pytest
from grpc_status import rpc_status

from clients import CounterClient, SyncCounterClient
from counter import errors
from counter.errors import TallyError
from counter.rpc.status import status_of
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from tests.streamed_adds import adds_of, outcome_of

Step = Callable[["Platform", Any, Any, Callable[[], Any]], Awaitable[Any]]


class Refused(Exception):
    def __init__(self, error: TallyError) -> None:
        super().__init__(error)
        self.error = error


class Broken(Exception):
    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__(code)
        self.code = code


async def refuse_with(error: TallyError, context: Any) -> None:
    await context.abort_with_status(rpc_status.to_status(status_of(error)))


class Platform(pb_grpc.CounterServiceServicer):
    """Answers as it should, except for the calls that have a step in `script`."""

    def __init__(self) -> None:
        self.applied: dict[tuple[str, str, int], int] = {}
        self.requests: list[Any] = []  # an add on a stream is a request like any other
        self.streams = 0
        self.streams_ended = 0
        self.batches: list[pb.StreamAddCountRequest] = []
        self.batch_items_max = 10_000
        self._stream_end = asyncio.Event()
        self.script: deque[Step] = deque()
        self.refusals: dict[str, list[TallyError]] = {}  # by counter, for items of batches
        self.status = pb.TOKEN_STATUS_APPLIED
        self.answers: dict[str, Any] = {}  # by method, for reads that compute nothing here
        self._arrival = asyncio.Condition()

    # What the script can be made of.

    def refuse(self, error: TallyError) -> None:
        async def step(_: Platform, __: Any, ___: Any, ____: Callable[[], Any]) -> None:
            raise Refused(error)

        self.script.append(step)

    def break_with(self, code: grpc.StatusCode, *, after_applying: bool = False) -> None:
        """No rich details, as from a broken connection or a proxy."""

        async def step(_: Platform, __: Any, ___: Any, answer: Callable[[], Any]) -> None:
            if after_applying:
                answer()
            raise Broken(code)

        self.script.append(step)

    def hang(self, *, after_applying: bool = False) -> None:
        async def step(_: Platform, __: Any, ___: Any, answer: Callable[[], Any]) -> None:
            if after_applying:
                answer()
            await asyncio.Event().wait()

        self.script.append(step)

    def hold(self, until: asyncio.Event) -> None:
        """Applies and answers, but not before the event is set."""

        async def step(_: Platform, __: Any, ___: Any, answer: Callable[[], Any]) -> Any:
            await until.wait()
            return answer()

        self.script.append(step)

    @staticmethod
    def refuse_with(error: TallyError) -> None:
        """For steps that a test writes itself."""
        raise Refused(error)

    def end_streams(self) -> None:
        """With OK, as a server does with old ones."""
        self._stream_end.set()
        self._stream_end = asyncio.Event()

    # What it saw and counted.

    def count(self, counter: str) -> int:
        return sum(delta for (name, _, _), delta in self.applied.items() if name == counter)

    async def seen(self, requests: int) -> None:
        """Waits until so many requests have arrived."""
        async with asyncio.timeout(20), self._arrival:
            await self._arrival.wait_for(lambda: len(self.requests) >= requests)

    def tokens(self) -> list[str]:
        return [request.idempotency_token.token for request in self.requests]

    # The service.

    async def AddCount(self, request: pb.AddCountRequest, context: Any) -> Any:
        return await self._answer(request, context, partial(self._add, request))

    async def AddAndGetCount(self, request: pb.AddAndGetCountRequest, context: Any) -> Any:
        def answer() -> pb.AddAndGetCountResponse:
            added = self._add(request)
            return pb.AddAndGetCountResponse(
                idempotency_token=added.idempotency_token,
                duplicate=added.duplicate,
                value=pb.CountValue(count=self.count(request.counter_name)),
            )

        return await self._answer(request, context, answer)

    async def ClearCount(self, request: pb.ClearCountRequest, context: Any) -> Any:
        def answer() -> pb.ClearCountResponse:
            for key in [key for key in self.applied if key[0] == request.counter_name]:
                del self.applied[key]
            return pb.ClearCountResponse(idempotency_token=request.idempotency_token)

        return await self._answer(request, context, answer)

    async def GetCount(self, request: pb.GetCountRequest, context: Any) -> Any:
        def answer() -> pb.GetCountResponse:
            value = pb.CountValue(count=self.count(request.counter_name))
            value.complete_through.FromNanoseconds(1_700_000_000_123_456_789)
            return pb.GetCountResponse(value=value)

        return await self._answer(request, context, answer)

    async def BatchAddCount(self, request: pb.BatchAddCountRequest, context: Any) -> Any:
        def answer() -> pb.BatchAddCountResponse:
            return pb.BatchAddCountResponse(outcomes=[self._outcome(i) for i in request.items])

        return await self._answer(request, context, answer)

    async def BatchGetCount(self, request: pb.BatchGetCountRequest, context: Any) -> Any:
        def answer() -> pb.BatchGetCountResponse:
            self._check_size(len(request.counter_name), "counter_name")
            values = [pb.CountValue(count=self.count(name)) for name in request.counter_name]
            return pb.BatchGetCountResponse(values=values)

        return await self._answer(request, context, answer)

    async def GetTokenStatus(self, request: pb.GetTokenStatusRequest, context: Any) -> Any:
        return await self._answer(
            request, context, lambda: pb.GetTokenStatusResponse(status=self.status)
        )

    async def AdjustCount(self, request: pb.AdjustCountRequest, context: Any) -> Any:
        def answer() -> pb.AdjustCountResponse:
            added = self._add(request)
            return pb.AdjustCountResponse(
                idempotency_token=added.idempotency_token, duplicate=added.duplicate
            )

        return await self._answer(request, context, answer)

    async def GetCountAt(self, request: pb.GetCountAtRequest, context: Any) -> Any:
        return await self._answer(request, context, lambda: self.answers["GetCountAt"])

    async def GetCountHistory(self, request: pb.GetCountHistoryRequest, context: Any) -> Any:
        return await self._answer(request, context, lambda: self.answers["GetCountHistory"])

    async def TopCounters(self, request: pb.TopCountersRequest, context: Any) -> Any:
        return await self._answer(request, context, lambda: self.answers["TopCounters"])

    async def ListCounters(self, request: pb.ListCountersRequest, context: Any) -> Any:
        """Pages of what was added to; the token of a page is the last name before it."""

        def answer() -> pb.ListCountersResponse:
            names = sorted({name for name, _, _ in self.applied if name > request.page_token})
            names = [name for name in names if name.startswith(request.prefix)]
            page, rest = names[: request.page_size], names[request.page_size :]
            response = pb.ListCountersResponse(next_page_token=page[-1] if rest else "")
            for name in page:
                response.counters.add(
                    counter_name=name, value=pb.CountValue(count=self.count(name))
                )
            response.complete_through.FromNanoseconds(1_700_000_000_123_456_789)
            return response

        return await self._answer(request, context, answer)

    async def StreamAddCount(self, requests: Any, context: Any) -> None:
        """Batch after batch, each answered on its own; a step that breaks one breaks the stream."""
        self.streams += 1
        code: grpc.StatusCode | None = None
        try:
            async with asyncio.TaskGroup() as tasks:
                reading = tasks.create_task(self._read_stream(requests, context, tasks))
                ending = tasks.create_task(self._stream_end.wait())
                ending.add_done_callback(lambda _: reading.cancel())
                reading.add_done_callback(lambda _: ending.cancel())
        except* Broken as broken:
            (each,) = broken.exceptions
            assert isinstance(each, Broken)
            code = each.code
        self.streams_ended += 1
        if code is not None:
            await context.abort(code, "broken")

    async def _read_stream(self, requests: Any, context: Any, tasks: asyncio.TaskGroup) -> None:
        writing = asyncio.Lock()
        async for batch in requests:
            self.batches.append(batch)
            tasks.create_task(self._answer_batch(batch, context, writing))

    async def _answer_batch(
        self, batch: pb.StreamAddCountRequest, context: Any, writing: asyncio.Lock
    ) -> None:
        adds = adds_of(batch)
        response = pb.StreamAddCountResponse(sequence_number=batch.sequence_number)

        def answer() -> pb.StreamAddCountResponse:
            self._check_size(len(adds), "columns")
            outcomes = [self._outcome(add) for add in adds]
            if any(each.ByteSize() for each in outcomes):
                response.outcomes.extend(outcomes)
            else:
                response.all_added = True
            return response

        try:
            response = await self._step(adds, batch, context, answer)
        except Refused as refused:
            response.outcomes.extend([outcome_of(refused.error)] * len(adds))
        async with writing:
            await context.write(response)

    async def _answer(self, request: Any, context: Any, answer: Callable[[], Any]) -> Any:
        try:
            return await self._step([request], request, context, answer)
        except Refused as refused:
            await refuse_with(refused.error, context)
        except Broken as broken:
            await context.abort(broken.code, "broken")

    async def _step(
        self, seen: list[Any], request: Any, context: Any, answer: Callable[[], Any]
    ) -> Any:
        async with self._arrival:
            self.requests.extend(seen)
            self._arrival.notify_all()
        if self.script:
            return await self.script.popleft()(self, request, context, answer)
        return answer()

    def _check_size(self, size: int, field: str) -> None:
        if size > self.batch_items_max:
            raise Refused(errors.InvalidRequest("BATCH_TOO_LARGE", field, f"{size} are too many"))

    def _add(self, request: Any) -> pb.AddCountResponse:
        token = request.idempotency_token
        key = (request.counter_name, token.token, token.generation_time.ToNanoseconds())
        duplicate = key in self.applied
        self.applied.setdefault(key, request.delta)
        return pb.AddCountResponse(idempotency_token=token, duplicate=duplicate)

    def _outcome(self, item: pb.AddCountItem | pb.AddCountRequest) -> pb.AddCountOutcome:
        refusals = self.refusals.get(item.counter_name)
        if not refusals:
            return pb.AddCountOutcome(duplicate=self._add(item).duplicate)
        return outcome_of(refusals.pop(0))


class NoJitter(Random):
    """The shortest back-off that the policy allows, so that tests do not wait."""

    def uniform(self, a: float, b: float) -> float:
        return a


class Calls:
    """Either client, called alike from a test that shares its event loop with the server."""

    def __init__(self, client: CounterClient | SyncCounterClient) -> None:
        self.client = client

    async def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any:
        function = getattr(self.client, method)
        if isinstance(self.client, SyncCounterClient):
            return await asyncio.to_thread(function, *args, **kwargs)
        answer = function(*args, **kwargs)
        return await answer if inspect.isawaitable(answer) else answer


@pytest.fixture
def platform() -> Platform:
    return Platform()


@pytest.fixture
async def target(platform: Platform) -> AsyncIterator[str]:
    server = grpc.aio.server()
    pb_grpc.add_CounterServiceServicer_to_server(platform, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


Connect = Callable[..., Calls]


@pytest.fixture(params=[CounterClient, SyncCounterClient])
async def connect(request: pytest.FixtureRequest, target: str) -> AsyncIterator[Connect]:
    """Makes clients of the kind under test, and closes them."""
    made: list[Calls] = []

    def make(*, to: str = target, **options: Any) -> Calls:
        options = {"namespace": "plays", "timeout_s": 10.0, "random": NoJitter()} | options
        made.append(Calls(request.param(to, **options)))
        return made[-1]

    yield make
    for calls in made:
        await calls("close")


@pytest.fixture
def client(connect: Connect) -> Calls:
    return connect()
