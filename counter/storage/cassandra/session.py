"""The one way to Cassandra: named statements, awaited on the event loop, bounded and translated.

The driver works in threads of its own and calls back on them. Results are handed to the event loop
in as few wake-ups as possible: under load one wake-up carries many.
"""

import asyncio
import random
import re
from collections import deque
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from cassandra import (
    DriverException,
    OperationTimedOut,
    Timeout,
    Unavailable,
)
from cassandra.cluster import Cluster, NoHostAvailable, ResponseFuture, Session
from cassandra.connection import ConnectionBusy, ConnectionException
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage
from cassandra.query import BatchStatement, BatchType, BoundStatement, PreparedStatement

from counter.errors import StoreUnavailable
from counter.metrics import STORE_ERRORS, STORE_SECONDS
from counter.storage.cassandra.cluster import open_cluster
from counter.storage.cassandra.schema import require_schema
from counter.storage.cassandra.settings import ClusterSettings

Row = tuple[Any, ...]
Page = tuple[list[Row], bytes | None]  # and where the next one begins, if there is one
# The driver's errors have no common root.
_DRIVER_ERRORS = (DriverException, ConnectionException, ErrorMessage, NoHostAvailable)
# So many requests in a row must fail before the store is called away: one can be bad luck.
_FAILURES_SHOWN_FROM = 3
_RETRY_AFTER_MS = 200
_BUSY_PAUSE_S = 0.005
_AGREE_ATTEMPTS_MAX = 5
_AGREE_AGAIN_S = 0.05
_NAMED = re.compile(r"^-- (\w+): (read|write|agree)\n(.*?;)$", re.MULTILINE | re.DOTALL)


class Query(NamedTuple):
    name: str
    kind: str  # read, write or agree
    cql: str


def queries(keyspace: str) -> Iterator[Query]:
    """The statements in queries.cql."""
    text = files(__package__).joinpath("queries.cql").read_text().replace("$keyspace", keyspace)
    for name, kind, cql in _NAMED.findall(text):
        yield Query(name, kind, cql)


class CassandraSession:
    """Belongs to the event loop on which it was made."""

    @classmethod
    async def connect(cls, settings: ClusterSettings) -> "CassandraSession":
        """A session on a keyspace whose schema fits, with every statement prepared.

        Raises SetupError where the settings are wrong, StoreUnavailable where nobody answers yet.
        """
        cluster, session = await asyncio.to_thread(open_cluster, settings)
        ready = cls(cluster, session, settings)

        def prepare() -> None:
            require_schema(cluster, session, settings)
            ready._prepare()

        try:
            await asyncio.to_thread(prepare)
        except _DRIVER_ERRORS as error:
            await ready.close()
            raise StoreUnavailable(f"{settings.where} went away: {error}") from error
        except BaseException:
            await ready.close()
            raise
        return ready

    def __init__(self, cluster: Cluster, session: Session, settings: ClusterSettings) -> None:
        self._cluster = cluster
        self._session = session
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._prepared: dict[str, tuple[PreparedStatement, str]] = {}
        self._seconds = {
            query.name: STORE_SECONDS.at(store="cassandra", statement=query.name)
            for query in queries(settings.keyspace)
        }
        self._errors = {
            kind: STORE_ERRORS.at(store="cassandra", kind=kind)
            for kind in ("timeout", "connection", "unavailable", "overloaded", "other")
        }
        self._room = asyncio.Semaphore(settings.requests_in_flight_max)
        self._arrived: deque[tuple[asyncio.Future[Page], Page | Exception]] = deque()
        self._woken = False
        self._failures = 0
        self._last_failure = ""

    def _prepare(self) -> None:
        """Prepares every statement. Blocks: for the thread that connects."""
        for query in queries(self._settings.keyspace):
            prepared = self._session.prepare(query.cql)
            prepared.is_idempotent = True
            self._prepared[query.name] = (prepared, query.kind)

    async def run(self, name: str, parameters: Sequence[object]) -> list[Row]:
        """Runs one statement; its rows, of all pages."""
        prepared, kind = self._prepared[name]
        return await self._run(name, prepared, parameters, kind)

    async def run_batch(self, name: str, rows: Sequence[Sequence[object]]) -> None:
        """Runs a write once per row, as one request; rows of one partition are one mutation."""
        prepared, kind = self._prepared[name]
        batch = BatchStatement(BatchType.UNLOGGED)
        batch.is_idempotent = True
        for bound in _each_bound(prepared, rows):
            batch.add(bound)
        await self._run(name, batch, None, kind)

    async def agree(self, name: str, parameters: Sequence[object]) -> Row | None:
        """Inserts if absent: None if ours is in now, else the row that was there before.

        Rivals make each other time out. The outcome is then unknown, and asking again tells it;
        whoever asks must therefore know his own row again when it is shown to him.
        """
        for attempt in range(1, _AGREE_ATTEMPTS_MAX + 1):
            try:
                [row] = await self.run(name, parameters)
                return None if row[0] else row[1:]
            except StoreUnavailable:
                if attempt == _AGREE_ATTEMPTS_MAX:
                    raise
                await asyncio.sleep(_AGREE_AGAIN_S * attempt * random.uniform(0.5, 1.5))
        raise AssertionError("the last attempt returns or raises")

    def problem(self) -> str | None:
        """Why requests keep failing, while they do."""
        return self._last_failure if self._failures >= _FAILURES_SHOWN_FROM else None

    async def close(self) -> None:
        await asyncio.to_thread(self._cluster.shutdown)

    async def _run(self, name: str, statement: Any, parameters: Any, kind: str) -> list[Row]:
        await self._wait_for_room(name)
        try:
            with self._seconds[name].timed():
                rows, next_page = await self._page(statement, parameters, kind, None)
                while next_page is not None:
                    page, next_page = await self._page(statement, parameters, kind, next_page)
                    rows += page
        except _DRIVER_ERRORS as error:
            raise self._unavailable(name, kind, error) from error
        finally:
            self._room.release()
        self._failures = 0
        return rows

    async def _wait_for_room(self, name: str) -> None:
        if not self._room.locked():
            await self._room.acquire()
            return
        try:
            async with asyncio.timeout(self._settings.request_timeout_ms / 1_000):
                await self._room.acquire()
        except TimeoutError:
            self._errors["overloaded"].add()
            raise StoreUnavailable(
                f"{self._settings.requests_in_flight_max} requests to Cassandra are under way and "
                f"none ended in {self._settings.request_timeout_ms} ms: {name} was not sent",
                retry_after_ms=_RETRY_AFTER_MS,
            ) from None

    async def _page(
        self, statement: Any, parameters: Any, kind: str, page_state: bytes | None
    ) -> Page:
        """One page. While all sockets are full the driver refuses requests: then a bit later."""
        ends_s = self._loop.time() + self._settings.request_timeout_ms / 1_000
        while True:
            try:
                return await self._send(statement, parameters, kind, page_state)
            except NoHostAvailable as error:
                if not _all_are_busy(error) or self._loop.time() >= ends_s:
                    raise
            await asyncio.sleep(_BUSY_PAUSE_S)

    def _send(
        self, statement: Any, parameters: Any, kind: str, page_state: bytes | None
    ) -> "asyncio.Future[Page]":
        """Sends one request, for one page.

        Pages are asked for one by one and not with the driver's own way to go on, because a request
        that was also sent to a second node can be answered twice: the first answer counts, with
        what it says about the next page.
        """
        future: asyncio.Future[Page] = self._loop.create_future()
        sent = self._session.execute_async(
            statement, parameters, execution_profile=kind, paging_state=page_state
        )

        # On a thread of the driver, which swallows errors: nothing that can fail.
        def on_answer(rows: Sequence[Row] | None, sent: ResponseFuture) -> None:
            self._arrive(future, (list(rows or ()), sent._paging_state))

        sent.add_callbacks(
            on_answer, lambda error: self._arrive(future, error), callback_args=(sent,)
        )
        return future

    def _arrive(self, future: "asyncio.Future[Page]", answer: Page | Exception) -> None:
        """On a thread of the driver. What is put in before the flag is read is not overlooked:
        the loop takes the flag down before it empties the queue."""
        self._arrived.append((future, answer))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._hand_over)

    def _hand_over(self) -> None:
        self._woken = False
        while self._arrived:
            future, answer = self._arrived.popleft()
            if future.done():  # answered before, or the caller went away
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _unavailable(self, name: str, kind: str, error: Exception) -> StoreUnavailable:
        self._errors[_kind(error)].add()
        outcome = "" if kind == "read" else "; whether it happened is unknown"
        message = f"Cassandra could not do {name}: {_words(error)}{outcome}"
        self._failures += 1
        self._last_failure = message
        return StoreUnavailable(message, retry_after_ms=_RETRY_AFTER_MS)


def _each_bound(
    prepared: PreparedStatement, rows: Sequence[Sequence[object]]
) -> Iterator[BoundStatement]:
    """The statement with the values of each row in turn, always the same object: a batch takes the
    values out of it. The driver's own way looks up, for each value, whether its column is to be
    encrypted, and takes three times as long; a fold binds a row for each counter."""
    bound = BoundStatement(prepared)
    version = prepared.protocol_version
    serializers = [column.type.serialize for column in prepared.column_metadata]
    for row in rows:
        bound.values = [
            serialize(value, version) for serialize, value in zip(serializers, row, strict=True)
        ]
        yield bound


def _all_are_busy(error: NoHostAvailable) -> bool:
    """Whether the request was sent to nobody, and only because there was no room to send it."""
    why = error.errors.values() if isinstance(error.errors, dict) else ()
    return bool(why) and all(isinstance(e, ConnectionBusy | NoConnectionsAvailable) for e in why)


def _kind(error: Exception) -> str:
    if isinstance(error, OperationTimedOut | Timeout):
        return "timeout"
    if isinstance(error, NoHostAvailable) and _all_are_busy(error):
        return "overloaded"
    if isinstance(error, NoHostAvailable | ConnectionException):
        return "connection"
    return "unavailable" if isinstance(error, Unavailable) else "other"


def _words(error: Exception) -> str:
    """A driver's error for people."""
    if isinstance(error, NoHostAvailable):
        return "all nodes are busy" if _all_are_busy(error) else "no node answers"
    if isinstance(error, OperationTimedOut | Timeout):
        return "it did not answer in time"
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
