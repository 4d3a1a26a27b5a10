"""`tally serve`: one process, SQLite."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path

from benchmarks.folding import folded
from benchmarks.peers.system import Driver, Peer, Promises
from benchmarks.peers.tally_drivers import BatchAdds, PreparedBatches, SingleAdds, client_of
from benchmarks.servers import Server, tally_server
from clients.client import CounterClient

NAME = "Tally embedded"
SINGLE = f"{NAME}, client.add"
BATCHED = f"{NAME}, client.batch_add"
PREPARED = f"{NAME}, prepared batches"
# Beside the accept limit: the window, how far clocks may be off, and until the fold runs.
_FILL_S = 1.0 + 0.5 + 1.0


class TallyPeer(Peer):
    """A server and the process that folds; embedded they are the same."""

    def __init__(
        self, name: str, server: Server, worker: Server, client: CounterClient, promises: Promises
    ) -> None:
        self.name = name
        self.version = version("tally")
        self.promises = promises
        self._server = server
        self._worker = worker
        self._client = client

    def cpu_s(self) -> dict[str, float]:
        used_s = {"server": self._server.cpu_s()}
        return used_s if self._worker is self._server else used_s | {"worker": self._worker.cpu_s()}

    async def counts(self, counters: Sequence[str]) -> list[int]:
        # Cached answers may be of before the last adds: none of them will do.
        values = await self._client.batch_get(counters, max_staleness=timedelta(0))
        return [value.count for value in values]

    async def settle(self) -> None:
        await folded(self._worker, time.time_ns())


PROMISES = Promises(
    durability="an acknowledged add is in SQLite's log on disk (fsync): it survives power loss",
    dedupe="exactly once, for ever: each token has one outcome, also days later",
    freshness="reads say how fresh they are; seconds behind, or exact on demand",
)


@asynccontextmanager
async def tally_embedded(home: Path, *, accept_limit_s: float) -> AsyncIterator[list[Driver]]:
    async with (
        tally_server(home, "--accept-limit", f"{accept_limit_s * 1_000:.0f}ms") as server,
        client_of(server.address) as client,
    ):
        peer = TallyPeer(NAME, server, server, client, PROMISES)
        fill_s = _FILL_S + accept_limit_s
        yield [
            SingleAdds(peer, SINGLE, client, fill_s=fill_s),
            BatchAdds(peer, BATCHED, client, fill_s=fill_s),
            PreparedBatches(peer, PREPARED, server.channel, fill_s=fill_s),
        ]
