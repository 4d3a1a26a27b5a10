"""Streams of batches between a client and a server: messages arrive in order, until one is lost.

Then the stream is broken, for both sides, as a connection is. A server that crashes breaks it when
the next message reaches its machine, or when the caller loses patience.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc

from counter.v1 import counter_service_pb2 as pb
from tests.simulation.calls import REFUSED_S, CallContext, Network, cancel
from tests.simulation.loop import NOBODY, Life
from tests.simulation.programs import Server
from tests.simulation.served import SERVED, Served
from tests.unit.counter_server.served import Aborted

Batch = tuple[pb.StreamAddCountRequest, Served]

# Between two batches of a client, at most.
_GAP_S = 0.05


class _ServerSide(CallContext):
    def __init__(self, stream: "Stream", ends_s: float) -> None:
        super().__init__(stream.network.loop, ends_s)
        self._stream = stream

    async def read(self) -> Any:
        request, served = await self._stream.inbox.get()
        # The batch is served by a task that is made from here.
        SERVED.set(served)
        return request

    async def write(self, response: pb.StreamAddCountResponse) -> None:
        # What goes over the network is this, not the object.
        self._stream.answer(pb.StreamAddCountResponse.FromString(response.SerializeToString()))


class Stream:
    """One stream of one client."""

    def __init__(self, network: Network, server: Server, timeout_s: float) -> None:
        self.network = network
        self._server = server
        self._timeout_s = timeout_s
        self._ends_s = network.loop.time() + timeout_s
        self.inbox: asyncio.Queue[tuple[Any, Served]] = asyncio.Queue()
        # Answers; None: there will be no more.
        self._outbox: asyncio.Queue[pb.StreamAddCountResponse | None] = asyncio.Queue()
        self._task: asyncio.Task[Any] | None = None
        self._life: Life | None = None
        self._is_over = False
        # When the last message of each direction arrives: none overtakes another.
        self._there_s = self._back_s = 0.0

    async def exchange(self, batches: Sequence[Batch]) -> list[pb.StreamAddCountResponse]:
        """What came until all was answered, the stream ended, or patience did."""
        loop, chance = self.network.loop, self.network.chance
        at_s = loop.time()
        for batch in batches:
            self._send(at_s, *batch)
            at_s += chance.random() * _GAP_S
        if chance.random() < 0.5:
            self._send(at_s, grpc.aio.EOF, Served())
        answers: list[pb.StreamAddCountResponse] = []
        try:
            async with asyncio.timeout(self._timeout_s):
                while len(answers) < len(batches):
                    answer = await self._outbox.get()
                    if answer is None:
                        self.network.witness.counted["streams ended early"] += 1
                        break
                    answers.append(answer)
        except TimeoutError:
            self.network.witness.counted["streams timed out"] += 1
        self._break()
        return answers

    def answer(self, response: pb.StreamAddCountResponse | None) -> None:
        """From the server; None: it has ended the stream."""
        if self.network.is_lost():
            self._break()
            return
        loop = self.network.loop
        self._back_s = max(self._back_s, loop.time() + self.network.delay_s())
        loop.call_at(self._back_s, self._outbox.put_nowait, response, context=NOBODY)

    def _send(self, at_s: float, message: Any, served: Served) -> None:
        self._there_s = max(self._there_s, at_s + self.network.delay_s())
        loop = self.network.loop
        loop.call_at(self._there_s, self._arrive, message, served, context=NOBODY)

    def _arrive(self, message: Any, served: Served) -> None:
        """At the server's machine."""
        if self._is_over:
            return
        machine = self._server.machine
        if self._task is None and self._server.is_ready and machine.is_alive:
            self._life, self._task = machine.life, machine.run(self._serve())
        is_served = self._life is not None and not self._life.dead
        if not is_served or self.network.is_lost():
            self._break()
            return
        self.inbox.put_nowait((message, served))

    async def _serve(self) -> None:
        try:
            await self._server.stream(_ServerSide(self, self._ends_s))
        except Aborted:
            self.network.witness.counted["streams refused"] += 1
        self.answer(None)

    def _break(self) -> None:
        """Nothing passes any more. The client knows at once, the server a moment later."""
        if self._is_over:
            return
        self._is_over = True
        loop = self.network.loop
        loop.call_later(REFUSED_S, self._outbox.put_nowait, None, context=NOBODY)
        if self._task is not None:
            loop.call_later(self.network.delay_s(), cancel, self._task, context=NOBODY)
