"""The coalescing of reads: `get` calls of one turn of the event loop become one BatchGetCount."""

import asyncio
import concurrent.futures
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from clients import translate
from clients.batch import BATCH_TOO_LARGE, ITEMS_PER_CALL, BatchSizes
from clients.connection import Connection, Deadline
from clients.errors import CounterError, InvalidRequest
from clients.settling import NOT_WAITING
from clients.values import CountValue
from counter.v1 import counter_service_pb2 as pb

Reader = asyncio.Future[CountValue] | concurrent.futures.Future[CountValue]

_PLACE = re.compile(r"counter_name\[(\d+)\]")


@dataclass(kw_only=True, slots=True)
class _Wish:
    """Reads of one turn that may share a call: the same namespace, freshness and deadline."""

    namespace: str
    max_staleness: Duration | None
    at_least: Timestamp | None
    deadline: Deadline
    readers: dict[str, list[Reader]] = field(default_factory=dict)  # by counter


class Reads:
    """All `get` calls of one connection."""

    def __init__(self, connection: Connection, sizes: BatchSizes) -> None:
        self._connection = connection
        self._sizes = sizes
        self._wishes: dict[tuple[object, ...], _Wish] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(
        self,
        namespace: str,
        counter: str,
        max_staleness: Duration | None,
        at_least: Timestamp | None,
        timeout_s: float,
        reader: Reader,
    ) -> None:
        """Reads at the end of this turn of the loop; the reader gets the value or the error."""
        self._connection.check_open()
        key = (
            namespace,
            timeout_s,
            None if max_staleness is None else max_staleness.SerializeToString(),
            None if at_least is None else at_least.SerializeToString(),
        )
        wish = self._wishes.get(key)
        if wish is None:
            wish = _Wish(
                namespace=namespace,
                max_staleness=max_staleness,
                at_least=at_least,
                deadline=Deadline(timeout_s),
            )
            if not self._wishes:
                asyncio.get_running_loop().call_soon(self._turn)
            self._wishes[key] = wish
        wish.readers.setdefault(counter, []).append(reader)

    async def end(self) -> None:
        """Waits for the reads under way, which end when the connection is closed."""
        self._turn()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _turn(self) -> None:
        wishes, self._wishes = self._wishes, {}
        for wish in wishes.values():
            names = [
                name
                for name, readers in wish.readers.items()
                if not all(reader.done() for reader in readers)
            ]
            self._start(wish, names)

    def _start(self, wish: _Wish, names: list[str]) -> None:
        """One call for each part of the names that fits in a batch, all at the same time."""
        size = min(self._sizes.of(wish.namespace), ITEMS_PER_CALL)
        for start in range(0, len(names), size):
            task = asyncio.create_task(self._read(wish, names[start : start + size]))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _read(self, wish: _Wish, names: list[str]) -> None:
        try:
            while names:
                bad = await self._attempt(wish, names)
                if bad is None:
                    return
                names = [name for name in names if name != bad]
        except CounterError as error:
            for name in names:
                _fail(wish, name, error)

    async def _attempt(self, wish: _Wish, names: list[str]) -> str | None:
        """One call; answers with the name that it was refused for, if it was for one of several."""
        try:
            if len(names) == 1:
                values: Iterable[pb.CountValue] = [await self._one(wish, names[0])]
            else:
                values = await self._several(wish, names)
        except InvalidRequest as error:
            if error.reason == BATCH_TOO_LARGE and len(names) > 1:
                self._sizes.refused(wish.namespace, len(names))
                self._start(wish, names)
                return None
            place = _PLACE.fullmatch(error.field)
            if place is None or int(place[1]) >= len(names):
                raise
            bad = names[int(place[1])]
            # As the answer to a call with this name alone would say it.
            own = InvalidRequest(
                error.message.replace(error.field, "counter_name"),
                reason=error.reason,
                code=error.code,
                field="counter_name",
            )
            _fail(wish, bad, own)
            return bad
        for name, value in zip(names, values, strict=True):
            _answer(wish, name, translate.count_value(value))
        return None

    async def _one(self, wish: _Wish, name: str) -> pb.CountValue:
        response: pb.GetCountResponse = await self._connection.read(
            self._connection.counters.GetCount,
            pb.GetCountRequest(
                namespace=wish.namespace,
                counter_name=name,
                max_staleness=wish.max_staleness,
                at_least=wish.at_least,
            ),
            what=f"the read of {name!r} in namespace {wish.namespace!r}",
            deadline=wish.deadline,
        )
        return response.value

    async def _several(self, wish: _Wish, names: list[str]) -> Iterable[pb.CountValue]:
        response: pb.BatchGetCountResponse = await self._connection.read(
            self._connection.counters.BatchGetCount,
            pb.BatchGetCountRequest(
                namespace=wish.namespace,
                counter_name=names,
                max_staleness=wish.max_staleness,
                at_least=wish.at_least,
            ),
            what=f"the read of {len(names)} counters in namespace {wish.namespace!r}",
            deadline=wish.deadline,
        )
        return translate.check_values(response, len(names))


def _answer(wish: _Wish, name: str, value: CountValue) -> None:
    for reader in wish.readers[name]:
        with suppress(*NOT_WAITING):
            reader.set_result(value)


def _fail(wish: _Wish, name: str, error: CounterError) -> None:
    for reader in wish.readers[name]:
        with suppress(*NOT_WAITING):
            reader.set_exception(error)
