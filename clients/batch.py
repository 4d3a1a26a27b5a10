"""Batches: cut into calls, a few of them in flight, each item settled like a single add."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

import grpc

from clients.connection import Connection, Deadline
from clients.errors import CounterError, InvalidRequest
from clients.failures import Failure, failure_of_outcome
from clients.retry import attempt_timeout_s
from clients.translate import check_delta, check_name, token_message
from clients.values import Add, AddOutcome
from clients.writes import Write
from counter.v1 import counter_service_pb2 as pb

T = TypeVar("T")

ITEMS_PER_CALL_MAX = 10_000  # the platform's limit
ITEMS_PER_CALL = 1_000
CALLS_IN_FLIGHT_MAX = 4
BATCH_TOO_LARGE = "BATCH_TOO_LARGE"


class BatchSizes:
    """How many items a batch may have, as far as it is known, by namespace.

    A namespace may allow less than the platform, and says so only by refusing. Then the batch is
    halved and sent again, and later ones are not larger.
    """

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}

    def of(self, namespace: str) -> int:
        return self._sizes.get(namespace, ITEMS_PER_CALL_MAX)

    def refused(self, namespace: str, size: int) -> None:
        self._sizes[namespace] = min(self.of(namespace), max(1, size // 2))


def pieces(count: int, size: int) -> list[range]:
    """The positions 0 to count, cut into ranges of at most `size`."""
    if not 1 <= size <= ITEMS_PER_CALL_MAX:
        raise ValueError(f"items_per_call must be 1 to {ITEMS_PER_CALL_MAX}, not {size!r}")
    return [range(start, min(start + size, count)) for start in range(0, count, size)]


async def in_flight(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T]:
    """Runs the calls in order, CALLS_IN_FLIGHT_MAX at a time; the first error ends them all."""
    answers: dict[int, T] = {}

    async def run(numbered: Iterator[tuple[int, Callable[[], Awaitable[T]]]]) -> None:
        for number, call in numbered:
            answers[number] = await call()

    # The tasks share one iterator: each takes the next call when it has finished one.
    todo = iter(enumerate(calls))
    tasks = [asyncio.create_task(run(todo)) for _ in range(min(CALLS_IN_FLIGHT_MAX, len(calls)))]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [answers[number] for number in range(len(calls))]


class AddBatch:
    """The adds of one `batch_add`."""

    def __init__(
        self,
        connection: Connection,
        sizes: BatchSizes,
        namespace: str,
        adds: Sequence[Add],
        deadline: Deadline,
    ) -> None:
        self._connection = connection
        self._sizes = sizes
        self._namespace = check_name(namespace, "namespace")
        self._adds = adds
        self._deadline = deadline

    async def send(self, positions: range) -> list[AddOutcome]:
        """Settles one call's worth of adds; answers with their outcomes in order."""
        outcomes: dict[int, AddOutcome] = {}
        pending: dict[int, Write] = {}
        items: dict[int, pb.AddCountItem] = {}
        for position in positions:
            # Tokens are made when they are about to be sent: a long batch must not age them.
            write = self._write(self._adds[position])
            try:
                items[position] = _item(self._adds[position], write)
                pending[position] = write
            except InvalidRequest as error:
                outcomes[position] = _outcome(write, error=error)
        while pending:
            delay_s = await self._round(pending, items, outcomes)
            if pending and delay_s > 0:
                await self._connection.pause(delay_s)
        return [outcomes[position] for position in positions]

    async def _round(
        self,
        pending: dict[int, Write],
        items: dict[int, pb.AddCountItem],
        outcomes: dict[int, AddOutcome],
    ) -> float:
        """Sends what is pending, moves what is settled to `outcomes`; how long to wait."""
        delay_s = 0.0
        size = self._sizes.of(self._namespace)
        positions = list(pending)
        for start in range(0, len(positions), size):
            part = {position: pending[position] for position in positions[start : start + size]}
            delay_s = max(delay_s, await self._call(part, items, outcomes))
            for position in positions[start : start + size]:
                if position not in part:
                    del pending[position]
        return delay_s

    async def _call(
        self,
        pending: dict[int, Write],
        items: dict[int, pb.AddCountItem],
        outcomes: dict[int, AddOutcome],
    ) -> float:
        """One call with what is pending."""
        remaining_s = self._deadline.remaining_s()
        if remaining_s <= 0 or self._connection.closed:
            for position, write in pending.items():
                outcomes[position] = _outcome(write, error=write.out_of_time())
            pending.clear()
            return 0.0
        request = pb.BatchAddCountRequest(
            namespace=self._namespace, items=[items[position] for position in pending]
        )
        sent_at_ns = self._connection.tokens.now_ns()
        response: pb.BatchAddCountResponse | Failure = await self._connection.attempt(
            self._connection.counters.BatchAddCount,
            request,
            timeout_s=attempt_timeout_s(remaining_s),
        )
        too_large = isinstance(response, Failure) and response.reason == BATCH_TOO_LARGE
        if too_large and len(pending) > 1:
            self._sizes.refused(self._namespace, len(pending))
            return 0.0
        remaining_s = self._deadline.remaining_s()
        delay_s = 0.0
        answers = _answers(response, len(pending))
        for (position, write), answer in zip(list(pending.items()), answers, strict=True):
            verdict = write.answered(answer, sent_at_ns=sent_at_ns, remaining_s=remaining_s)
            if isinstance(verdict, float):
                items[position] = _item(self._adds[position], write)
                delay_s = max(delay_s, verdict)
                continue
            del pending[position]
            if isinstance(verdict, CounterError):
                outcomes[position] = _outcome(write, error=verdict)
            else:
                outcomes[position] = _outcome(write, duplicate=verdict.duplicate)
        return delay_s

    def _write(self, add: Add) -> Write:
        return Write(
            self._connection,
            namespace=self._namespace,
            counter=add.counter,
            delta=add.delta,
            token=add.token,
        )


def _answers(
    response: pb.BatchAddCountResponse | Failure, count: int
) -> Sequence[pb.AddCountOutcome | Failure]:
    """One answer for each item; a failure of the whole call is every item's."""
    if isinstance(response, Failure):
        return [response] * count
    if len(response.outcomes) != count:
        message = f"the server answered {len(response.outcomes)} outcomes for {count} items"
        return [Failure(code=grpc.StatusCode.INTERNAL, message=message)] * count
    return [failure_of_outcome(outcome) or outcome for outcome in response.outcomes]


def _item(add: Add, write: Write) -> pb.AddCountItem:
    return pb.AddCountItem(
        counter_name=check_name(add.counter),
        delta=check_delta(add.delta),
        idempotency_token=token_message(write.token),
    )


def _outcome(
    write: Write, *, duplicate: bool = False, error: CounterError | None = None
) -> AddOutcome:
    return AddOutcome(counter=write.counter, token=write.token, duplicate=duplicate, error=error)
