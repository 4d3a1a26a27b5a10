"""One connection to a memcached server: commands go out in batches, answers come back in order.

It speaks the meta commands (`mg`, `ms`, `ma`, `mn`; memcached 1.6 and later). Each of them has one
answer, and memcached answers in the order of the commands, so a batch of any size is one write,
many batches are under way at once, and nothing but a count is needed to match them up. A batch is
one future, however many commands it has.

**The time limit is counted in ticks of the event loop, not in time.** A server is slow when it sent
nothing for `timeout_ms` while commands were waiting. But a process that was busy itself for that
long (a large batch, a garbage collection) finds its timers overdue and the answers unread, and
would take every server for dead. So a timer counts how often the loop came around without an
answer: a stall of the loop is one tick, however long it was.

A connection that is too slow is given up as a whole: the answers that are missing would come first
on it. Whether the commands were carried out is then unknown; they may be even later.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Literal, cast

# Ticks per time limit. The limit is exceeded when one more than these has passed in silence.
_TICKS = 4
# A batch that is still not answered after this many time limits ends the connection, even if the
# server keeps sending.
_SLOW_LIMITS = 5
# Commands that wait for an answer on one connection. More of them are refused at once.
PENDING_COMMANDS_MAX = 50_000
# Of one answer. Ours are below 500 bytes; who sends more is not our server.
_REPLY_BYTES_MAX = 65_536

Failure = Literal["timeout", "connection", "overloaded", "unavailable"]

# The first line of the answer ("VA 19 c7", "HD", "EN"), and its data if it has any.
Reply = tuple[bytes, bytes]

MISS: Reply = (b"EN", b"")
STORED: Reply = (b"HD", b"")
_SHOWN_BYTES = 60
_SIZE_DIGITS_MAX = 8
_KNOWN = {reply[0]: reply for reply in (MISS, STORED)}
# One line each, and the connection is as good as before (SERVER_ERROR, CLIENT_ERROR).
_CODES = (b"HD", b"EN", b"NS", b"EX", b"NF", b"MN", b"SE", b"CL")
# Of the first lines that nearly all answers have: looking one up is faster than taking it apart.
_SIZES = {b"VA %d" % size: size for size in range(512)} | dict.fromkeys(_KNOWN, -1)


class _UnexpectedAnswer(Exception):
    """Nothing that follows on this connection can be trusted."""


class _Batch:
    __slots__ = ("future", "missing", "replies", "sent_tick")

    def __init__(self, future: asyncio.Future[list[Reply] | None], missing: int, tick: int) -> None:
        self.future = future
        self.replies: list[Reply] = []
        self.missing = missing
        self.sent_tick = tick


class Connection(asyncio.Protocol):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        timeout_ms: int,
        on_lost: Callable[["Connection"], None],
    ) -> None:
        """`on_lost` is called once, as soon as the connection is of no use any more."""
        self._loop = loop
        self._on_lost = on_lost
        self._tick_s = timeout_ms / _TICKS / 1_000
        self._transport: asyncio.Transport | None = None
        self._batches: deque[_Batch] = deque()
        self._rest = b""  # of an answer that has not arrived in full
        self._timer: asyncio.TimerHandle | None = None
        self._tick = 0
        self._silent_ticks = 0
        self.why_lost = "it closed the connection"
        self.failure: Failure = "connection"  # what is wrong when a batch has no answer
        self.pending = 0  # commands without an answer
        # The line with which the other end showed that it is no memcached that we can use.
        self.foreign: str | None = None
        self.lost = False

    def send(self, request: bytes, commands: int) -> "asyncio.Future[list[Reply] | None]":
        """Sends so many commands; their answers in order, or None if not all of them came."""
        future: asyncio.Future[list[Reply] | None] = self._loop.create_future()
        if self._transport is None or self.pending + commands > PENDING_COMMANDS_MAX:
            if self._transport is not None:
                self.failure = "overloaded"
            future.set_result(None)
            return future
        if not self._batches:
            self._silent_ticks = 0
            if self._timer is None:
                self._timer = self._loop.call_later(self._tick_s, self._on_tick)
        self._batches.append(_Batch(future, commands, self._tick))
        self.pending += commands
        self._transport.write(request)
        return future

    def give_up(self, why: str) -> None:
        """Ends the connection at once; whatever is under way on it is answered with None."""
        if self.lost:
            return
        self.why_lost = why
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        made = cast(asyncio.Transport, transport)  # uvloop's are so only by their methods
        if self.lost:  # given up while it was being made
            made.abort()
        else:
            self._transport = made

    def connection_lost(self, error: Exception | None) -> None:
        if isinstance(error, OSError):
            self.why_lost = error.strerror or str(error)
        if self._transport is not None:  # else: we ended it, and know why
            self.failure = "connection"
        self._transport = None
        self._end()

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        self._silent_ticks = 0
        try:
            self._rest = self._take(self._rest + data if self._rest else data)
        except _UnexpectedAnswer as error:
            line = repr(error.args[0][:_SHOWN_BYTES])
            if not line.startswith("b'ERROR Too many"):  # connections: memcached, and full
                self.foreign = line
            self.failure = "connection"
            self.give_up(f"it answered {line}")

    def _take(self, buffer: bytes) -> bytes:
        """Hands out the answers that are complete; returns what is left."""
        at = 0
        find = buffer.find
        length = len(buffer)
        batches = self._batches
        while at < length:
            if not batches:
                raise _UnexpectedAnswer(buffer[at:])
            batch = batches[0]
            append = batch.replies.append
            missing = batch.missing
            while missing:
                end = find(b"\r\n", at)
                if end < 0:
                    break
                line = buffer[at:end]
                size = _SIZES.get(line)
                if size is None:
                    size = _size(line)
                if size < 0:
                    append(_KNOWN.get(line) or (line, b""))
                else:
                    data = end + 2
                    end = data + size
                    if end + 2 > length:
                        break
                    append((line, buffer[data:end]))
                missing -= 1
                at = end + 2
            self.pending -= batch.missing - missing
            batch.missing = missing
            if missing:
                break
            batches.popleft()
            if not batch.future.done():  # else: its caller went away
                batch.future.set_result(batch.replies)
        if length - at > _REPLY_BYTES_MAX:
            raise _UnexpectedAnswer(buffer[at:])
        return buffer[at:]

    def _on_tick(self) -> None:
        self._timer = None
        if not self._batches:
            return
        self._tick += 1
        self._silent_ticks += 1
        if self._silent_ticks > _TICKS:
            self.failure = "timeout"
            self.give_up("it does not answer within the time limit")
        elif self._tick - self._batches[0].sent_tick > _TICKS * _SLOW_LIMITS:
            self.failure = "timeout"
            self.give_up("it answers too slowly")
        else:
            self._timer = self._loop.call_later(self._tick_s, self._on_tick)

    def _end(self) -> None:
        if self.lost:
            return
        self.lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.pending = 0
        self._on_lost(self)
        batches, self._batches = self._batches, deque()
        for batch in batches:
            if not batch.future.done():
                batch.future.set_result(None)


def _size(line: bytes) -> int:
    """Of the data after "VA <size> <flags>*"; -1 if none follow."""
    code = line[:2]
    if code in _CODES:
        return -1
    size = line[3:].partition(b" ")[0]
    if code != b"VA" or not size.isdigit() or len(size) > _SIZE_DIGITS_MAX:
        raise _UnexpectedAnswer(line)
    return int(size)
