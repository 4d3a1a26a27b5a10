"""F22: certificates of Cassandra that expire, are replaced, or belong to somebody else, under a
fleet that runs. (Servers have no certificates for their callers yet, and no signing keys.)

Connections that are open go on. New ones are made only with a node that the authority vouches for
now; until there is one nothing is acknowledged, and then the fleet goes on by itself.
"""

import asyncio
import shutil
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from tally.dev.cassandra_files import NodeSettings, NodeTls
from tally.dev.cassandra_node import CassandraNode
from tests.backends import memcached_server, start_node
from tests.calls import eventually
from tests.faults.authority import Authority
from tests.faults.waiting import FOUND_OUT_WITHIN_S, refused_for
from tests.fleet import CONVERGENCE_S, LATE_S, Fleet
from tests.load import under_load
from tests.processes import run_tally

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class SecureNode:
    """One whose certificate can be replaced by another one, at a restart."""

    def __init__(self, home: Path) -> None:
        self.authority = Authority(home / "authority", "the tests")
        self._tls = self.authority.sign("127.0.0.1")
        self.node: CassandraNode = start_node(
            home / "cassandra", NodeSettings(home=home, tls=self._tls)
        )

    def show(self, authority: Authority, **validity: int) -> None:
        """Restarts with a new certificate; returns when it shows that to whoever connects."""
        before = self._shown()
        made = authority.sign("127.0.0.1", **validity)
        self._replace(made)
        self.node.stop()
        self.node.start()
        eventually(self._shown, lambda shown: shown not in (None, before), within_s=120)

    def _replace(self, made: NodeTls) -> None:
        """The settings name file and password, which stay as they were."""
        assert self._tls.keystore.exists()
        shutil.copy(made.keystore, self._tls.keystore)

    def _shown(self) -> str | None:
        settings = self.node.settings
        try:
            return ssl.get_server_certificate((settings.address, settings.native_port), timeout=5)
        except OSError:
            return None


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[SecureNode]:
    made = SecureNode(tmp_path / "secure")
    yield made
    made.node.kill()


@pytest.fixture
def secure_fleet(tmp_path: Path, secure: SecureNode) -> Iterator[Fleet]:
    settings = secure.node.settings
    (tmp_path / "fleet").mkdir()
    fleet = Fleet(
        tmp_path / "fleet",
        contact_points=[settings.address],
        port=settings.native_port,
        copies=1,
        memcached=memcached_server().address,
        ca_file=secure.authority.certificate,
    )
    try:
        yield fleet
    finally:
        fleet.end()


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_certificates_of_the_store_change(
    tmp_path: Path, secure: SecureNode, secure_fleet: Fleet
) -> None:
    fleet = secure_fleet
    await fleet.apply_schema()
    servers, worker = [fleet.add("server"), fleet.add("server")], fleet.add("worker")
    await fleet.start(*servers, worker, fleet.add("control-plane"))
    stranger = Authority(tmp_path / "stranger", "somebody else")

    async def shown(authority: Authority, **validity: int) -> None:
        await asyncio.to_thread(secure.show, authority, **validity)

    async def kept_out(why: str) -> None:
        """Nobody talks to such a node: neither those who did before, nor a newcomer."""
        for server in servers:
            await refused_for(server, "STORE_UNAVAILABLE")
            await asyncio.to_thread(server.wait_health, "", NOT_SERVING, FOUND_OUT_WITHIN_S)
        new = ("server", "--config", str(fleet.config), "--listen", "127.0.0.1:0")
        refused = await asyncio.to_thread(run_tally, *new)
        assert refused.returncode == 1
        [line] = refused.stderr.splitlines()
        assert "no TLS connection, check cassandra.tls" in line
        assert why in line

    addresses = [each.address for each in servers]
    async with under_load(*addresses, late_s=LATE_S, counters=60, pause_s=0.1) as load:
        await load.acknowledged(100)
        await shown(secure.authority)  # replaced in time
        await load.acknowledged(100)
        await shown(secure.authority, from_days=-10, days=5)
        await kept_out("certificate has expired")
        await shown(stranger)
        await kept_out("certificate verify failed")
        await shown(secure.authority)
        await load.acknowledged(100)
        for each in (*servers, worker):
            await asyncio.to_thread(each.wait_ready)
        await load.finish(converges_s=CONVERGENCE_S, worker=worker.address)
    assert load.history.refusals["STORE_UNAVAILABLE"] > 0
