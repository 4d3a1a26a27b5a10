"""Calls to servers over a network that loses, delays and repeats nothing by itself."""

import asyncio
from random import Random
from typing import Any

from counter.errors import TallyError
from tests.simulation.loop import NOBODY, VirtualLoop
from tests.simulation.programs import Server
from tests.simulation.witness import Witness

_REFUSED_S = 0.002


class CallFailed(Exception):
    """What a caller is told; `reason` is empty where the connection broke or time ran out."""

    def __init__(self, reason: str, error: TallyError | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error


class _Aborted(Exception):
    pass


class _Context:
    """What the service asks of gRPC."""

    def __init__(self, loop: VirtualLoop, ends_s: float) -> None:
        self._loop = loop
        self._ends_s = ends_s

    def time_remaining(self) -> float:
        return self._ends_s - self._loop.time()

    async def abort_with_status(self, status: Any) -> None:
        raise _Aborted


class Network:
    """Between clients and servers."""

    def __init__(self, loop: VirtualLoop, chance: Random, witness: Witness) -> None:
        self._loop = loop
        self._chance = chance
        self._witness = witness
        self.latency_s = 0.001
        self.lost_share = 0.0
        self.cancels_share = 0.5  # of calls whose caller stopped waiting

    async def call(self, server: Server, method: str, request: Any, timeout_s: float) -> Any:
        """The response; raises CallFailed, with the reason if the server gave one."""
        loop = self._loop
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
            if self._chance.random() < self.lost_share:
                self._witness.counted["replies lost"] += 1
                return
            loop.call_later(self._delay_s(), arrive, response, error, context=NOBODY)

        async def serve() -> None:
            try:
                response = await server.call(method, request, _Context(loop, ends_s))
            except _Aborted as aborted:
                error = aborted.__context__
                assert isinstance(error, TallyError), error
                reply(None, CallFailed(error.reason, error))
            except asyncio.CancelledError:
                self._witness.counted["calls cancelled"] += 1
                raise
            else:
                reply(response, None)

        def deliver() -> None:
            if server.is_ready and server.machine.is_alive:
                started.append(server.machine.run(serve()))
            else:
                loop.call_later(_REFUSED_S, arrive, None, CallFailed(""), context=NOBODY)

        if self._chance.random() >= self.lost_share:
            loop.call_later(self._delay_s(), deliver, context=NOBODY)
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            if started and self._chance.random() < self.cancels_share:
                loop.call_later(self._delay_s(), _cancel, started[0], context=NOBODY)
            raise CallFailed("") from None

    def _delay_s(self) -> float:
        return self.latency_s * (0.2 + 2 * self._chance.random())


def _cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
