"""One StreamAddCount call, from its opening to its end: batches go out, answers come in."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc

from clients.connection import Connection
from clients.entries import Batch
from clients.failures import Failure, failure_of_call
from counter.v1 import counter_service_pb2 as pb

# A call of a generated stub, which has no types.
_Call = Any


class AddStream:
    """Writes what `take` gives, as soon as it gives it, and hands each answer to `answered`.

    `take` is asked with the number of batches in flight; None means: nothing now. Writing may wait
    for the server, which reads no further while too much is unanswered. So reading has a task of
    its own and never waits for writing.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        take: Callable[[int], Batch | None],
        answered: Callable[[Batch, pb.StreamAddCountResponse], None],
    ) -> None:
        self.in_flight: dict[int, Batch] = {}
        self.answers = 0
        self.last_answer_s = 0.0
        self._connection = connection
        self._take = take
        self._answered = answered
        self._wake = asyncio.Event()
        self._now_s = asyncio.get_running_loop().time
        self._call: _Call | None = None
        self._given_up: Failure | None = None

    def wake(self) -> None:
        """There may be something to take."""
        self._wake.set()

    def take_overdue(self, now_s: float) -> list[Batch]:
        """Removes the batches whose attempt has taken too long. A late answer is not read."""
        overdue = [n for n, batch in self.in_flight.items() if batch.attempt_end_s <= now_s]
        return [self.in_flight.pop(number) for number in overdue]

    def give_up(self, failure: Failure) -> None:
        """Ends the stream from this side."""
        self._given_up = self._given_up or failure
        if self._call is not None:
            self._call.cancel()

    async def run(self) -> Failure | None:
        """Returns when the stream has ended: why, or None if the server ended it with OK."""
        call = self._call = self._connection.counters.StreamAddCount()
        writer = asyncio.create_task(self._write(call))
        try:
            return await self._read(call)
        except Exception as error:  # a mistake of ours must not leave anybody waiting for ever
            return Failure(code=grpc.StatusCode.UNKNOWN, message=f"not read: {error!r}")
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            call.cancel()

    async def _read(self, call: _Call) -> Failure | None:
        while True:
            try:
                response = await call.read()
            except grpc.aio.AioRpcError as error:
                return self._given_up or failure_of_call(error)
            except asyncio.CancelledError:
                # grpc.aio raises this when our task is cancelled, and also when the call or its
                # channel is: by `give_up`, or because the client is closed.
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                return self._given_up or Failure(
                    code=grpc.StatusCode.CANCELLED, message="the client was closed during the call"
                )
            if response is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
                return self._given_up
            self.answers += 1
            self.last_answer_s = self._now_s()
            batch = self.in_flight.pop(response.sequence_number, None)
            if batch is not None:
                self._answered(batch, response)
            self._wake.set()

    async def _write(self, call: _Call) -> None:
        number = 0
        try:
            while True:
                batch = None if self._given_up else self._take(len(self.in_flight))
                if batch is None:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                number += 1
                self.in_flight[number] = batch
                await call.write(batch.request(number))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream has ended, and the reader learns why
        except Exception as error:
            self.give_up(Failure(code=grpc.StatusCode.UNKNOWN, message=f"not written: {error!r}"))
