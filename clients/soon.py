"""Adds that nobody waits for: how many are unsettled, and who is told of those that failed."""

import asyncio
import atexit
import logging
from collections.abc import Callable
from contextlib import suppress

import grpc

from clients.errors import Unavailable
from clients.listeners import Listener
from clients.values import AddOutcome

OnAddFailed = Callable[[AddOutcome], None]

LOG_EVERY_S = 1.0
log = logging.getLogger(__name__)


class SoonGroup(Listener):
    """The adds made with `add_soon` between two calls of `flush`."""

    __slots__ = ("_done", "_on_failed", "unsettled")

    def __init__(self, on_failed: OnAddFailed) -> None:
        self.unsettled = 0
        self._on_failed = on_failed
        self._done: asyncio.Future[None] | None = None

    def done(self) -> bool:
        """Nobody cancels one of these: there is nobody who waits."""
        return False

    def added(self, text: str, time_ns: int, region: str, *, duplicate: bool) -> None:
        self._settled()

    def failed(self, outcome: AddOutcome) -> None:
        self._settled()
        self._on_failed(outcome)

    def _settled(self) -> None:
        self.unsettled -= 1
        if not self.unsettled:
            SOON_UNSETTLED.discard(self)
            if self._done is not None and not self._done.done():
                self._done.set_result(None)

    async def wait(self) -> None:
        if not self.unsettled:
            return
        if self._done is None:
            self._done = asyncio.get_running_loop().create_future()
        # Several may wait, and one of them may be cancelled.
        await asyncio.shield(self._done)


# All that is unsettled in this process. A group is in here only while it is, so a client that
# was forgotten can go.
SOON_UNSETTLED: set[SoonGroup] = set()


class SoonAdds:
    """The adds made with `add_soon` on one connection."""

    def __init__(self, on_failed: OnAddFailed | None) -> None:
        self._on_failed = on_failed
        self._group = SoonGroup(self._failed)
        self._groups: list[SoonGroup] = []  # earlier ones that are not settled yet
        self._unlogged = 0
        self._last: AddOutcome | None = None
        self._timer: asyncio.TimerHandle | None = None

    def one_more(self) -> SoonGroup:
        """The group that the next add belongs to."""
        group = self._group
        if not group.unsettled:
            SOON_UNSETTLED.add(group)
        group.unsettled += 1
        return group

    async def flush(self, timeout_s: float | None) -> None:
        """Waits until all that were made so far are settled."""
        self._groups = [group for group in [*self._groups, self._group] if group.unsettled]
        self._group = SoonGroup(self._failed)
        groups = list(self._groups)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                for group in groups:
                    await group.wait()
        if timeout_s is not None and (unsettled := sum(group.unsettled for group in groups)):
            raise Unavailable(
                f"{unsettled} adds made with add_soon were not settled within {timeout_s:g} s. "
                "They go on until their own deadlines: flush again, or give it more time.",
                reason="NOT_SETTLED",
                code=grpc.StatusCode.DEADLINE_EXCEEDED,
            )

    def _failed(self, outcome: AddOutcome) -> None:
        if self._on_failed is None:
            self._to_log(outcome)
            return
        try:
            self._on_failed(outcome)
        except Exception:
            # It is the application's code, and the other adds must not suffer from it.
            log.exception("on_add_failed raised an error for %r", outcome)

    def end(self) -> None:
        """Logs what the last second left."""
        if self._timer is not None:
            self._timer.cancel()
            self._log_again()

    # A platform that is away fails thousands of them at once: one line says so as well.

    def _to_log(self, outcome: AddOutcome) -> None:
        self._unlogged += 1
        self._last = outcome
        if self._timer is None:
            self._log_again()

    def _log_again(self) -> None:
        self._timer = None
        if not self._unlogged or self._last is None:
            return
        log.warning(
            "%d adds made with add_soon failed, the last one to %r: %s",
            self._unlogged,
            self._last.counter,
            self._last.error,
        )
        self._unlogged = 0
        self._timer = asyncio.get_running_loop().call_later(LOG_EVERY_S, self._log_again)


@atexit.register
def _report_unsettled() -> None:
    if unsettled := sum(group.unsettled for group in list(SOON_UNSETTLED)):
        log.warning(
            "%d adds made with add_soon were not settled when the program ended: it is not known "
            "whether they count. Use `async with CounterClient(...)`, or await client.flush().",
            unsettled,
        )
