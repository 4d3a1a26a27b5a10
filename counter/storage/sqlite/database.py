"""One SQLite file: its lock, its writer thread and its reader.

**Writing.** One thread writes. It takes whatever jobs wait, runs them in one transaction and
commits: one fsync (synchronous=FULL) for all of them. That is the store's group commit, shared by
adds, closes and folds.

**Reading** happens on the event loop's own thread, through a connection of its own. In WAL mode
readers never wait for the writer, a point read takes tens of microseconds, and a hop to another
thread would cost more than that (docs/adr/0002).

**The interpreter lock.** Each `sqlite3_step` lets go of it and has to win it back, which under load
can take milliseconds. Statements therefore carry many rows each, so that a batch is one step.
"""

import asyncio
import fcntl
import os
import queue
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import structlog

from counter.errors import SetupError, StoreUnavailable, TallyError
from counter.metrics import STORE_ERRORS, STORE_SECONDS
from counter.storage.sqlite.schema import migrate

T = TypeVar("T")
Job = Callable[[sqlite3.Connection], Any]

JOBS_PER_TRANSACTION_MAX = 64
ROWS_PER_STATEMENT_MAX = 256
_ROWS_PER_READ_MAX = 16
_FILE = "tally.db"
_LOCK = "LOCK"
# Folds change single rows all over a large table, and each change writes a whole page.
_PAGE_BYTES = 2_048
_WRITER_CACHE_KIB = 65_536
_READER_CACHE_KIB = 32_768
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_ERROR_KINDS = {
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_BUSY: "timeout",
    **dict.fromkeys(_DAMAGE, "damaged"),
}
_OTHER_ERROR = "other"
_FSYNC_FAILED = (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)

log = structlog.get_logger()


class Database:
    """Open in a data directory that no other process has open."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.path = str(directory / _FILE)
        self._lock_fd = _lock(directory)
        try:
            self._writer = self._connect(_WRITER_CACHE_KIB)
            migrate(self._writer, self.path)
            self.reader = self._connect(_READER_CACHE_KIB)
        except sqlite3.Error as error:
            os.close(self._lock_fd)
            raise SetupError(f"cannot open {self.path}: {_explain(error, self.path)}") from error
        except SetupError:
            os.close(self._lock_fd)
            raise
        self._jobs: queue.SimpleQueue[tuple[Job, asyncio.Future[Any]] | None] = queue.SimpleQueue()
        # Why the store is not to be trusted with writes now; None when the last write succeeded.
        self.problem: str | None = None
        self._failed_for_good = False
        self._closing = False
        self._loop = asyncio.get_running_loop()
        self._read_seconds = STORE_SECONDS.at(store="sqlite", statement="read")
        self._transaction_seconds = STORE_SECONDS.at(store="sqlite", statement="transaction")
        self._errors = {
            kind: STORE_ERRORS.at(store="sqlite", kind=kind)
            for kind in (*_ERROR_KINDS.values(), _OTHER_ERROR)
        }
        self._thread = threading.Thread(target=self._write_jobs, name="sqlite-writer", daemon=True)
        self._thread.start()

    def _connect(self, cache_kib: int) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, isolation_level=None, check_same_thread=False, cached_statements=256
        )
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")  # heeded by a new file only
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        return connection

    async def write(self, job: Callable[[sqlite3.Connection], T]) -> T:
        """Runs the job in a transaction; durable when it returns. A job may be run twice."""
        if self._failed_for_good:
            raise self._out_of_service()
        if self._closing:
            raise StoreUnavailable(f"{self.path} is closed: this process is stopping")
        future: asyncio.Future[T] = self._loop.create_future()
        self._jobs.put((job, future))
        return await future

    def read(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        try:
            with self._read_seconds.timed():
                return self.reader.execute(statement, parameters).fetchall()
        except sqlite3.Error as error:
            raise self._translated(error) from error

    async def read_aside(self, statement: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """For reads that take long: on a thread and a connection of their own."""

        def read() -> list[Any]:
            connection = sqlite3.connect(f"{Path(self.path).absolute().as_uri()}?mode=ro", uri=True)
            try:
                return connection.execute(statement, parameters).fetchall()
            finally:
                connection.close()

        try:
            return await asyncio.to_thread(read)
        except sqlite3.Error as error:
            raise self._translated(error) from error

    async def close(self) -> None:
        """Finishes the jobs that wait, then closes the file. Nothing comes after the None."""
        self._closing = True
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        self.reader.close()
        self._writer.close()
        os.close(self._lock_fd)

    def _write_jobs(self) -> None:
        stopping = False
        while not stopping:
            taken = [self._jobs.get()]
            while len(taken) < JOBS_PER_TRANSACTION_MAX and not self._jobs.empty():
                taken.append(self._jobs.get())
            stopping = taken[-1] is None
            jobs = [each for each in taken if each is not None]
            if jobs:
                results = self._run([job for job, _ in jobs])
                futures = [future for _, future in jobs]
                self._loop.call_soon_threadsafe(_resolve, futures, results)

    def _run(self, jobs: list[Job]) -> list[Any]:
        """The result or the error of each job. One bad job does not fail its neighbours."""
        if self._failed_for_good:  # while these waited
            return [self._out_of_service()] * len(jobs)
        try:
            with self._transaction_seconds.timed():
                results = self._transaction(jobs)
        except sqlite3.Error as error:
            return [self._translated(error)] * len(jobs)
        except Exception as error:
            if len(jobs) == 1:
                return [error]
            return [result for job in jobs for result in self._run([job])]
        if not self._failed_for_good:
            self.problem = None
        return results

    def _transaction(self, jobs: list[Job]) -> list[Any]:
        connection = self._writer
        connection.execute("BEGIN IMMEDIATE")
        try:
            results = [job(connection) for job in jobs]
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return results

    def _translated(self, error: sqlite3.Error) -> TallyError:
        """Also remembers the problem; after damage or a failed fsync, for good.

        After a failed fsync the kernel may have dropped the pages and call the next fsync a
        success, so nothing that this process writes can be promised any more.
        """
        self._errors[_ERROR_KINDS.get(_primary_code(error), _OTHER_ERROR)].add()
        known, self.problem = self.problem, _explain(error, self.path)
        damaged = _primary_code(error) in _DAMAGE
        if damaged or getattr(error, "sqlite_errorcode", 0) in _FSYNC_FAILED:
            self._failed_for_good = True
        if self.problem != known:
            log.error("the store failed", action="store_failed", problem=self.problem)
        return StoreUnavailable(self.problem, retry_after_ms=1_000)

    def _out_of_service(self) -> StoreUnavailable:
        return StoreUnavailable(f"the store is out of service: {self.problem}")


def _resolve(futures: list[asyncio.Future[Any]], results: list[Any]) -> None:
    for future, result in zip(futures, results, strict=True):
        if future.done():  # its caller went away; the write stands
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)


def _lock(directory: Path) -> int:
    """Keeps a second process out; the lock ends with the process, however it ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock_fd = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise SetupError(f"cannot use data directory {directory}: {error.strerror}") from error
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(lock_fd, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock_fd)
        raise SetupError(
            f"data directory {directory} is in use by process {holder}: "
            "stop it, or give this one another directory with --data"
        ) from error
    try:
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        pass  # a full disk: the lock holds without the number in it
    return lock_fd


def _primary_code(error: sqlite3.Error) -> int:
    """SQLite refines its codes in the higher bits: CORRUPT_INDEX is a kind of CORRUPT."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def _explain(error: sqlite3.Error, path: str) -> str:
    code = _primary_code(error)
    if code == sqlite3.SQLITE_FULL:
        return f"no space left for {path}: free some, it goes on by itself"
    if code in _DAMAGE:
        return f"{path} is damaged ({error}): stop Tally and restore the data directory"
    if code == sqlite3.SQLITE_READONLY:
        return f"{path} is read-only: make it writable"
    if code == sqlite3.SQLITE_IOERR:
        return (
            f"{path}: {error}. The disk failed, or turned read-only after an error: look into the "
            "system's log, mend it, and restart Tally"
        )
    return f"{path}: {error}"


async def read_chunks(rows: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """As `chunks`, for reads, which keep the event loop busy: between two of them it goes on."""
    for number, chunk in enumerate(chunks(rows, rows_max=_ROWS_PER_READ_MAX)):
        if number:
            await asyncio.sleep(0)
        yield chunk


def chunks(rows: Sequence[T], *, rows_max: int = ROWS_PER_STATEMENT_MAX) -> Iterator[Sequence[T]]:
    """Cuts rows into statements' worth, in sizes of powers of two.

    The number of different statements stays small, so each is prepared once and then reused.
    """
    start = 0
    while start < len(rows):
        left = len(rows) - start
        size = min(rows_max, 1 << (left.bit_length() - 1))
        yield rows[start : start + size]
        start += size


def values(rows: int, columns: str) -> str:
    """`VALUES` for a number of rows, each with the same columns, such as `(?, ?)`."""
    return "VALUES " + ", ".join([columns] * rows)
