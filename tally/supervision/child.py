"""One process of several: a server that ends with its supervisor.

`python -m tally.supervision.child FD` is started by a supervisor only. It starts afresh and is no
fork: neither gRPC nor the store's driver survives one.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from queue import SimpleQueue
from socket import socket

import structlog

from counter.background import keep_running
from counter.metrics_endpoint import ProcessMetrics
from counter.rpc.server import RpcServer
from tally import process
from tally.fleet import ServerProgram
from tally.program import serve_program
from tally.supervision.merged_metrics import families_of
from tally.supervision.messages import (
    BEAT_S,
    Family,
    FromChild,
    Ready,
    Refused,
    Scrape,
    Scraped,
    Serving,
    Stop,
    Task,
    decode_task,
    encode,
    frames,
    to_child,
)

# Without a supervisor nobody else would end a process that cannot: it ends itself, at the latest
# so long after the calls under way had their time.
_ORPHAN_ENDS_AFTER_S = process.STOP_GRACE_S + 20.0
_LAST_WORDS_S = 2.0

log = structlog.get_logger()


class Lifeline:
    """The process's end of the socket. Nothing here waits for the supervisor: what is to be said
    is sent by a thread of its own, and what comes is heard by another."""

    def __init__(self, line: socket) -> None:
        self._line = line
        self._frames = frames(line)
        self._outgoing: SimpleQueue[FromChild | None] = SimpleQueue()
        self._sender = threading.Thread(target=self._send, name="say", daemon=True)
        self._sender.start()
        self._told: str | None = "starting"

    def task(self) -> Task | None:
        """None: the supervisor is gone already."""
        body = next(self._frames, None)
        return None if body is None else decode_task(body)

    def listen(
        self,
        *,
        scrape: Callable[[], list[Family]],
        stop: Callable[[], object],
        orphaned: Callable[[], object],
    ) -> None:
        """From now on these are called, on another thread: `stop` when the supervisor says so, and
        `stop` and then `orphaned` when it has ended."""
        hear = threading.Thread(
            target=self._hear, args=(scrape, stop, orphaned), name="hear", daemon=True
        )
        hear.start()

    def ready(self, details: Sequence[str]) -> None:
        self._outgoing.put(Ready(tuple(details)))

    def tell(self, problem: str | None) -> None:
        """Why the process does not serve; None: it does."""
        if problem != self._told:
            self._told = problem
            self._outgoing.put(Serving(problem))

    async def beat(self) -> None:
        """For ever, on the event loop: if that stands still, the supervisor hears nothing."""
        while True:
            # Beats do not pile up for a supervisor that does not listen.
            if self._outgoing.empty():
                self._outgoing.put(Serving(self._told))
            await asyncio.sleep(BEAT_S)

    def refuse(self, message: str) -> None:
        self._outgoing.put(Refused(message))

    def close(self) -> None:
        """Lets what was said go out."""
        self._outgoing.put(None)
        self._sender.join(_LAST_WORDS_S)

    def _send(self) -> None:
        while (message := self._outgoing.get()) is not None:
            try:
                self._line.sendall(encode(message))
            except OSError:
                return  # nobody listens any more; whoever hears learns of it too

    def _hear(
        self,
        scrape: Callable[[], list[Family]],
        stop: Callable[[], object],
        orphaned: Callable[[], object],
    ) -> None:
        for body in self._frames:
            match to_child.decode(body):
                case Scrape(request):
                    self._outgoing.put(Scraped(request, _families(scrape)))
                case Stop():
                    stop()
        stop()
        orphaned()


def _families(scrape: Callable[[], list[Family]]) -> list[Family]:
    """Whatever is wrong with a metric, the life line must go on."""
    try:
        return scrape()
    except Exception:
        log.exception("metrics cannot be gathered", action="scrape_failed")
        return []


def _end_orphan() -> None:
    time.sleep(_ORPHAN_ENDS_AFTER_S)
    process.complain("the supervisor is gone, and this process could not stop: it exits now")
    os._exit(1)


async def _serve(task: Task, line: Lifeline, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        metrics = stack.enter_context(ProcessMetrics())
        stack.callback(keep_running("beat", line.beat).cancel)
        line.listen(
            scrape=lambda: families_of(metrics.registry),
            stop=lambda: loop.call_soon_threadsafe(stop.set),
            orphaned=_end_orphan,
        )
        program = ServerProgram(task.config)
        await serve_program(
            program,
            RpcServer(share_port=True, connection_age_ms=task.config.server.connection_age_ms),
            listen=task.listen,
            stop=stop,
            ready=lambda _: line.ready(program.details()),
            told=line.tell,
            bind_first=task.bind_first,
        )


def main() -> int:
    line = Lifeline(socket(fileno=int(sys.argv[1])))
    task = line.task()
    if task is None:
        return 0

    async def serve(stop: asyncio.Event) -> None:
        await _serve(task, line, stop)

    try:
        return process.run(serve, task.log_format, refuse=line.refuse, process=task.number)
    finally:
        line.close()


if __name__ == "__main__":
    sys.exit(main())
