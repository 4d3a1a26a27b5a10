"""Calls to servers over a network that loses, delays and repeats nothing by itself."""

import asyncio
from random import Random
from typing import Any

from tests.simulation.loop import NOBODY, VirtualLoop
from tests.simulation.programs import Server
from tests.simulation.served import Served
from tests.simulation.witness import Witness
from tests.unit.counter_server.served import Aborted

REFUSED_S = 0.002


class CallFailed(Exception):
    """What a caller is told; `reason` is empty where the connection broke or time ran out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class CallContext:
    """What the service asks of gRPC."""

    def __init__(self, loop: VirtualLoop, ends_s: float) -> None:
        self._loop = loop
        self._ends_s = ends_s

    def time_remaining(self) -> float:
        return self._ends_s - self._loop.time()

    async def abort_with_status(self, status: Any) -> None:
        raise Aborted(status)


class Network:
    """Between clients and servers."""

    def __init__(self, loop: VirtualLoop, chance: Random, witness: Witness) -> None:
        self.loop = loop
        self.chance = chance
        self.witness = witness
        self.latency_s = 0.001
        self.lost_share = 0.0
        self.cancels_share = 0.5  # of calls whose caller stopped waiting

    async def call(
        self, server: Server, method: str, request: Any, timeout_s: float, served: Served
    ) -> Any:
        """The response; raises CallFailed, with the reason if the server gave one."""
        loop = self.loop
        answer: asyncio.Future[Any] = loop.create_future()
        ends_s = loop.time() + timeout_s
        started: list[asyncio.Task[Any]] = []

        def arrive(response: Any, error: Exception | None) -> None:
            if not answer.done():
                if error is None:
                    answer.set_result(response)
                else:
                    answer.set_exception(error)

        def reply(response: Any, error: Exception | None) -> None:
            if self.is_lost():
                self.witness.counted["replies lost"] += 1
                return
            loop.call_later(self.delay_s(), arrive, response, error, context=NOBODY)

        async def serve() -> None:
            try:
                response = await server.call(method, request, CallContext(loop, ends_s), served)
            except Aborted as aborted:
                reply(None, CallFailed(aborted.reason))
            except asyncio.CancelledError:
                self.witness.counted["calls cancelled"] += 1
                raise
            else:
                reply(response, None)

        def deliver() -> None:
            if server.is_ready and server.machine.is_alive:
                started.append(server.machine.run(serve()))
            else:
                loop.call_later(REFUSED_S, arrive, None, CallFailed(""), context=NOBODY)

        if not self.is_lost():
            loop.call_later(self.delay_s(), deliver, context=NOBODY)
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            if started and self.chance.random() < self.cancels_share:
                loop.call_later(self.delay_s(), cancel, started[0], context=NOBODY)
            raise CallFailed("") from None

    def is_lost(self) -> bool:
        return self.chance.random() < self.lost_share

    def delay_s(self) -> float:
        return self.latency_s * (0.2 + 2 * self.chance.random())


def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
