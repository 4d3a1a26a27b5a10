"""Tally as a Python service uses it, through the SDK; and with requests prepared as bytes.

The same drivers drive the handler that only parses: what differs then is the server alone.
"""

import itertools
from collections.abc import Awaitable, Iterator

import grpc

from benchmarks.load import Call
from benchmarks.peers.loops import OneByOne, Perform, piece_by_piece
from benchmarks.peers.system import Driver, Extent, Load, Peer
from benchmarks.requests import BATCH_ITEMS, OK_BATCH, Stamper, batch_template
from benchmarks.servers import NAMESPACE
from benchmarks.workloads import (
    PATTERN_OPERATIONS,
    REPEAT_BACK_MAX,
    ZIPF,
    Operations,
    Stream,
)
from clients.client import CounterClient
from clients.values import Add
from counter.rpc.server import MESSAGE_BYTES_MAX
from counter.tokens import Token

TASKS = 2_000
_BATCHES = 4  # calls of batch_add at a time
_PREPARED_IN_FLIGHT = 4
_BATCH_ADD = "/counter.v1.CounterService/BatchAddCount"


def client_of(address: str) -> CounterClient:
    return CounterClient(address, namespace=NAMESPACE)


class _RecentTokens:
    """The tokens of a stream by their numbers, for as long as one may be repeated."""

    def __init__(self, client: CounterClient) -> None:
        self._client = client
        self._prefix = ""
        # Twice as many: one that was taken last may be performed a little before others.
        self._tokens: list[tuple[int, Token] | None] = [None] * (2 * REPEAT_BACK_MAX)

    def follow(self, stream: Stream) -> None:
        """Keeps those that it has if it is the same stream, which may repeat one of them."""
        if stream.prefix != self._prefix:
            self._prefix = stream.prefix
            self._tokens = [None] * len(self._tokens)

    def of(self, number: int) -> Token:
        place = number % len(self._tokens)
        kept = self._tokens[place]
        if kept is None or kept[0] != number:
            kept = self._tokens[place] = (number, self._client.new_token())
        return kept[1]


class SingleAdds(OneByOne):
    """`await client.add(counter)` in many tasks: the SDK makes batches of them by itself."""

    def __init__(
        self, peer: Peer, name: str, client: CounterClient, *, fill_s: float, tasks: int = TASKS
    ) -> None:
        super().__init__(peer, name, f"await client.add(...) in {tasks:,} tasks", tasks=tasks)
        self.fill_s = fill_s
        self._client = client
        self._recent = _RecentTokens(client)

    async def performer(self, stream: Stream) -> Perform:
        client, recent, workload = self._client, self._recent, stream.workload
        recent.follow(stream)

        def add(counter: str, token: int, read: bool) -> Awaitable[object]:
            return client.add(counter)

        def add_again(counter: str, token: int, read: bool) -> Awaitable[object]:
            return client.add(counter, token=recent.of(token))

        def add_or_get(counter: str, token: int, read: bool) -> Awaitable[object]:
            return client.get(counter) if read else client.add(counter)

        return add_again if workload.repeats else add_or_get if workload.reads else add


class BatchAdds(Driver):
    """`await client.batch_add(...)`: a service that has its adds together."""

    extent = Extent.DETAILS

    def __init__(self, peer: Peer, name: str, client: CounterClient, *, fill_s: float) -> None:
        idiom = f"await client.batch_add(...) of {BATCH_ITEMS:,} adds in {_BATCHES} tasks"
        super().__init__(peer, name, idiom)
        self.fill_s = fill_s
        self._client = client
        self._recent = _RecentTokens(client)

    async def run(self, stream: Stream, seconds: float) -> Load:
        recent = self._recent
        recent.follow(stream)
        repeats = stream.workload.repeats

        async def perform(operations: Operations, _: int) -> None:
            outcomes = await self._client.batch_add(
                [
                    Add(counter, token=recent.of(token) if repeats else None)
                    for counter, token, _ in operations.each()
                ]
            )
            for outcome in outcomes:
                if outcome.error is not None:
                    raise outcome.error

        return await piece_by_piece(stream, seconds, _BATCHES, BATCH_ITEMS, perform)


class PreparedBatches(Driver):
    """BatchAddCount of bytes that were made before: the server's side of it, nearly alone."""

    extent = Extent.DETAILS
    warms_up_with = ZIPF  # its tokens are all new

    def __init__(self, peer: Peer, name: str, channel: grpc.aio.Channel, *, fill_s: float) -> None:
        idiom = f"BatchAddCount of {BATCH_ITEMS:,} adds as prepared bytes"
        super().__init__(peer, name, f"{idiom}, {_PREPARED_IN_FLIGHT} calls in flight")
        self.fill_s = fill_s
        self._channel = channel
        self._stamper = Stamper()
        self._templates: list[bytes] = []

    async def choose(self, stream: Stream) -> None:
        assert stream.workload is ZIPF, "its templates are of one workload"
        pattern = Stream(ZIPF)
        self._templates = [
            batch_template([(counter, 1) for counter in pattern.take(BATCH_ITEMS).counters])
            for _ in range(PATTERN_OPERATIONS // BATCH_ITEMS)
        ]

    async def run(self, stream: Stream, seconds: float) -> Load:
        assert stream.position % BATCH_ITEMS == 0, stream.position
        call: Call = self._channel.unary_unary(
            _BATCH_ADD, request_serializer=bytes, response_deserializer=bytes
        )
        requests = self._stamper.stamped(self._from(stream.position // BATCH_ITEMS))

        async def perform(_: Operations, __: int) -> None:
            if await call(next(requests)) != OK_BATCH:
                raise RuntimeError(f"{self.name}: a batch had adds that were not acknowledged")

        return await piece_by_piece(stream, seconds, _PREPARED_IN_FLIGHT, BATCH_ITEMS, perform)

    def _from(self, batch: int) -> Iterator[bytes]:
        return itertools.islice(
            itertools.cycle(self._templates), batch % len(self._templates), None
        )


def channel_to(address: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(
        address,
        options=[
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ],
    )
