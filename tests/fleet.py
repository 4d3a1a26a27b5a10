"""A fleet as child processes: control plane, workers and servers on real Cassandra and memcached.

Everything happens several times as fast as with the defaults.
"""

import asyncio
import secrets
from collections.abc import Sequence
from pathlib import Path

from counter.storage.cassandra import ClusterSettings
from counter.storage.cassandra.schema import apply
from counter.storage.cassandra.settings import TlsSettings
from tests import backends
from tests.cassandra_store import DATA_CENTER
from tests.faults.injected import Faults
from tests.processes import ProgramProcess, free_port, write_namespaces

WINDOW_MS, ACCEPT_LIMIT_MS, CLOCK_SKEW_MS = 500, 1_500, 500
CONVERGENCE_S = (WINDOW_MS + ACCEPT_LIMIT_MS + CLOCK_SKEW_MS) / 1_000
LATE_S = (1.0, 5.0)  # how old a token is that is late, or nearly

_CONFIG = """\
region: test
platform:
  window: {window_ms}ms
  shards: 4
  accept_limit: {accept_limit_ms}ms
  max_clock_skew: {clock_skew_ms}ms
  log_retention: {log_retention}
cassandra:
  contact_points: [{contact_points}]
  port: {port}
  data_center: {data_center}
  keyspace: {keyspace}
  request_timeout: 2s
{tls}memcached:
  servers: [{memcached}]
  timeout: 100ms
control_plane:
  addresses: [{control_planes}]
  namespaces: namespaces
"""


class Fleet:
    """Makes the processes of one fleet; `end` ends those that are still there."""

    def __init__(
        self,
        home: Path,
        *,
        contact_points: Sequence[str],
        port: int,
        copies: int,
        memcached: str,
        log_retention: str = "1h",
        window_ms: int = WINDOW_MS,
        ca_file: Path | None = None,
    ) -> None:
        """`ca_file`: whom to believe that a node is one, if connections are to be encrypted."""
        self._home = home
        self.cluster = ClusterSettings(
            contact_points=tuple(contact_points),
            port=port,
            data_center=DATA_CENTER,
            keyspace=f"fleet_{secrets.token_hex(6)}",
            request_timeout_ms=10_000,
            tls=None if ca_file is None else TlsSettings(ca_file=ca_file),
        )
        self._copies = copies
        # Where servers and workers listen for new versions.
        self._control_planes = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        self.namespaces = home / "namespaces"
        write_namespaces(self.namespaces)
        self._settings = {
            "window_ms": window_ms,
            "accept_limit_ms": ACCEPT_LIMIT_MS,
            "clock_skew_ms": CLOCK_SKEW_MS,
            "port": port,
            "data_center": DATA_CENTER,
            "keyspace": self.cluster.keyspace,
            "log_retention": log_retention,
            "control_planes": ", ".join(self._control_planes),
            "tls": "" if ca_file is None else f"  tls: {{ca_file: {ca_file}}}\n",
        }
        self.config = self._write_config("fleet", contact_points, memcached)
        self._unused = list(self._control_planes)
        self._processes: list[ProgramProcess] = []

    @classmethod
    def on_one_node(cls, home: Path, *, log_retention: str = "1h") -> "Fleet":
        """On the Cassandra node and the memcached that all tests share."""
        node = backends.cassandra_node().settings
        return cls(
            home,
            contact_points=[node.address],
            port=node.native_port,
            copies=1,
            memcached=backends.memcached_server().address,
            log_retention=log_retention,
        )

    async def apply_schema(self) -> None:
        await apply(self.cluster, {DATA_CENTER: self._copies}, lambda _: None)

    def add(self, program: str, *flags: str, faults: Faults | None = None) -> ProgramProcess:
        """One more process, not started yet."""
        log = self._home / f"{program}-{len(self._processes)}.log"
        address = self._unused.pop(0) if program == "control-plane" else None
        config = ("--config", str(self.config))
        process = ProgramProcess(log, program, *config, *flags, address=address, faults=faults)
        self._processes.append(process)
        return process

    def _write_config(self, name: str, contact_points: Sequence[str], memcached: str) -> Path:
        config = self._home / f"{name}.yaml"
        points = ", ".join(contact_points)
        config.write_text(
            _CONFIG.format(contact_points=points, memcached=memcached, **self._settings)
        )
        return config

    async def start(self, *processes: ProgramProcess) -> None:
        """Starts all at once and waits until they serve."""
        for process in processes:
            process.start(wait=False)
        await asyncio.gather(*(asyncio.to_thread(each.wait_ready) for each in processes))

    def end(self) -> None:
        for process in self._processes:
            process.end()
