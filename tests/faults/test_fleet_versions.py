"""F21: programs of two versions on one keyspace, and clients of an older one.

The older version is made from this repository's own history: the oldest that has today's tables.
Migrations of tables have tests of their own, without a fleet.
"""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.calls import fresh_counter
from tests.faults import checkouts
from tests.faults.checkouts import VersionedProcess
from tests.faults.ring_fleet import CONVERGENCE_S, PAUSE_S, RingFleet
from tests.fleet import LATE_S
from tests.load import under_load
from tests.processes import ROOT

ADDS_LEAST = 100

# An SDK of then, in a process of its own: adds until its input ends, and says how often.
_OLD_CLIENT = """
import asyncio, sys, threading
import clients
from clients import CounterClient

async def main(server, counter):
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    added = 0
    async with CounterClient(server, namespace="quotas", timeout_s=100) as client:
        while not ended.is_set():
            await client.add(counter, 1)
            added += 1
            await asyncio.sleep(0.05)
        value = await client.get(counter)
    print(clients.__file__, added, value.count)

asyncio.run(main(*sys.argv[1:]))
"""


class OldClient:
    def __init__(self, checkout: Path, server: str) -> None:
        self._checkout = checkout
        self._process = subprocess.Popen(
            [sys.executable, "-c", _OLD_CLIENT, server, fresh_counter()],
            cwd=checkout,
            env=checkouts.environment(checkout),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def added(self) -> int:
        """How often it added; it saw no error, and counts what it added."""
        said, errors = self._process.communicate(timeout=120)
        assert self._process.returncode == 0, errors
        loaded_from, added, count = said.split()
        assert loaded_from.startswith(str(self._checkout))
        assert added == count
        return int(added)

    def end(self) -> None:
        self._process.kill()


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("commit", ["first_with_this_schema", "last_without_streams"])
async def test_an_older_client_on_a_new_server(
    tmp_path: Path, fleet: RingFleet, commit: str
) -> None:
    """Through a restart of its server."""
    checkout = checkouts.check_out(getattr(checkouts, commit)(), tmp_path / "older")
    server = fleet.servers[0]
    async with fleet.under_load(f"f21-{commit}") as load:
        client = OldClient(checkout, server.address)
        try:
            await load.acknowledged(100)
            server.kill()
            await asyncio.to_thread(server.start)
            await load.acknowledged(200)
            assert await asyncio.to_thread(client.added) > 0
        finally:
            client.end()


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_rolling_upgrade_and_back(tmp_path: Path, own_fleet: RingFleet) -> None:
    """Workers, then servers, then the control plane, one by one; and back in the same way. They are
    started as they are: no older version has the tests' launcher."""
    older = checkouts.check_out(checkouts.first_with_this_schema(), tmp_path / "older").resolve()
    await own_fleet.apply_schema()
    programs = [
        VersionedProcess(tmp_path / f"{number}.log", name, "--config", str(own_fleet.config))
        for number, name in enumerate(("worker", "worker", "server", "server", "control-plane"))
    ]
    workers, servers = programs[:2], programs[2:4]
    for each in programs:
        each.run_from(older)
    clients: list[OldClient] = []
    try:
        await own_fleet.start(*programs)
        addresses = [each.address for each in servers]
        client = OldClient(older, addresses[0])
        clients.append(client)
        async with under_load(*addresses, late_s=LATE_S, counters=60, pause_s=PAUSE_S) as load:
            for checkout in (None, older, None):
                for each in programs:
                    await load.acknowledged(30)
                    assert each.stop() == 0
                    each.run_from(checkout)
                    await own_fleet.start(each)
                    assert each.runs_from == (checkout or ROOT)
            assert await asyncio.to_thread(client.added) > ADDS_LEAST
            await load.finish(converges_s=CONVERGENCE_S, worker=workers[0].address)
    finally:
        for each in (*clients, *programs):
            each.end()
