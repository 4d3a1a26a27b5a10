"""One real Cassandra node as a child process."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cassandra import DriverException
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.policies import WhiteListRoundRobinPolicy

from counter.errors import SetupError
from tally.dev.cassandra_files import (
    FIRST_PASSWORD,
    FIRST_USER,
    NodeSettings,
    java_command,
    marker,
    write_files,
)
from tally.dev.jars import cassandra_jars
from tally.dev.processes import Backend, ManagedProcess
from tally.dev.requirements import find_java

READY_WITHIN_S = 180.0
STOPPED_WITHIN_S = 30.0
LOOK_EVERY_S = 0.1
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 2.0
SHOWN_LINES = 15
SHOWN_COLUMNS = 200

# How far a start has come, by what the log says; the last one that is found counts.
_STAGES = (
    ("Configuration location", "reading its settings"),
    ("Initializing system.", "opening its tables"),
    ("Replaying ", "replaying its commit log"),
    ("Starting up server gossip", "joining the ring"),
    ("Starting listening for CQL clients", "taking connections"),
)
_FIRST_STAGE = "starting Java"
# Java's complaints about how Cassandra was written.
_ALWAYS_SAID = "WARNING: "

# CQL's smallest question, "which options do you have?" (protocol 4), and the start of its answer.
_ASK_OPTIONS = bytes([0x04, 0, 0, 0, 0x05, 0, 0, 0, 0])
_OPTIONS_ARE = bytes([0x84, 0, 0, 0, 0x06])


class CassandraNode(Backend):
    """A node whose data stays in its home, whatever happens to the process.

    With `detached` the node outlives this process, and another CassandraNode with the same home
    finds it again. Otherwise it dies with this process, however that ends.
    """

    def __init__(
        self, settings: NodeSettings, *, jars: Path | None = None, detached: bool = False
    ) -> None:
        self.settings = settings
        self.log = settings.home / "logs" / "system.log"
        # What Java itself says, and what is said before the log is open.
        self.output = settings.home / "output.log"
        self._jars = jars
        process = ManagedProcess(
            pid_file=settings.home / "cassandra.pid",
            marker=marker(settings.home),
            detached=detached,
        )
        super().__init__(process, stopped_within_s=STOPPED_WITHIN_S)

    def start(self) -> None:
        """Starts the process; `wait_ready` waits for the node. Also after `stop` and `kill`.

        Brings Cassandra first if nobody did yet.
        """
        settings = self.settings
        command = java_command(find_java(), self._jars or cassandra_jars(), settings)
        write_files(settings)
        # Only what this start says is of interest when it fails.
        self.output.unlink(missing_ok=True)
        self.log.unlink(missing_ok=True)
        ports = (settings.native_port, settings.storage_port)
        listens = [(settings.address, port) for port in ports]
        self._process.start(command, log=self.output, listens=listens)

    def wait_ready(
        self,
        within_s: float = READY_WITHIN_S,
        progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Returns when a client can connect and read. Raises SetupError with the node's last lines.

        `progress` is called now and then with what the node is doing.
        """
        ends_s = time.monotonic() + within_s
        while (stage := self.unready()) is not None:
            progress(stage)
            if time.monotonic() >= ends_s:
                raise self.too_late(stage)
            time.sleep(LOOK_EVERY_S)

    def unready(self) -> str | None:
        """What keeps the node from being ready now, or None. SetupError if it has ended."""
        if not self.is_running:
            why = self._last_error()
            raise SetupError(f"Cassandra on {self.address} ended: {why}\n{self.last_lines()}")
        # The node opens this port as the last thing of its start.
        if not self._listens():
            return self._stage()
        try:
            with self.session() as session:
                session.execute("SELECT release_version FROM system.local")
        except (NoHostAvailable, DriverException) as error:
            return f"refusing connections: {error}"
        return None

    def too_late(self, stage: str) -> SetupError:
        return SetupError(
            f"Cassandra on {self.address} is not ready in time, it is {stage}.\n"
            + self.last_lines()
        )

    def answers(self, within_s: float = ANSWER_TIMEOUT_S) -> bool:
        """Whether the node answers CQL now, which one that is starting or paused does not.

        Not for nodes with TLS.
        """
        assert self.settings.tls is None
        where = (self.settings.address, self.settings.native_port)
        try:
            with socket.create_connection(where, within_s) as connection:
                connection.settimeout(within_s)
                connection.sendall(_ASK_OPTIONS)
                return connection.recv(len(_OPTIONS_ARE)) == _OPTIONS_ARE
        except OSError:
            return False

    @contextmanager
    def session(self) -> Iterator[Any]:
        """A driver session to this node alone, as the first user if the node asks for one."""
        cluster = self.cluster()
        try:
            yield cluster.connect()
        finally:
            cluster.shutdown()

    def cluster(self) -> Any:
        """A driver `Cluster` that talks to this node alone; the caller shuts it down."""
        settings = self.settings
        only_here = WhiteListRoundRobinPolicy([settings.address])
        context: ssl.SSLContext | None = None
        if settings.tls is not None:
            context = ssl.create_default_context(cafile=str(settings.tls.certificate))
            context.check_hostname = False
        return Cluster(
            [settings.address],
            port=settings.native_port,
            protocol_version=5,
            execution_profiles={
                EXEC_PROFILE_DEFAULT: ExecutionProfile(load_balancing_policy=only_here)
            },
            auth_provider=(
                PlainTextAuthProvider(FIRST_USER, FIRST_PASSWORD)
                if settings.uses_passwords
                else None
            ),
            ssl_context=context,
            connect_timeout=CONNECT_TIMEOUT_S,
        )

    @property
    def address(self) -> str:
        """HOST:PORT, for clients."""
        return f"{self.settings.address}:{self.settings.native_port}"

    def last_lines(self, count: int = SHOWN_LINES) -> str:
        """The end of what the node said, for people, with where to read the rest."""
        parts = []
        for file in (self.output, self.log):
            lines = [line for line in _lines(file) if not line.startswith(_ALWAYS_SAID)]
            if lines:
                shown = [line[:SHOWN_COLUMNS] for line in lines[-count:]]
                parts.append("\n".join([f"{file} ends with:", *shown]))
        return "\n".join(parts)

    def _last_error(self) -> str:
        errors = [line for line in _lines(self.log) if line.startswith("ERROR ")]
        return errors[-1].partition(" - ")[2] if errors else "it does not say why."

    def _stage(self) -> str:
        said = "\n".join(_lines(self.log))
        return next((stage for text, stage in reversed(_STAGES) if text in said), _FIRST_STAGE)

    def _listens(self) -> bool:
        where = (self.settings.address, self.settings.native_port)
        try:
            with socket.create_connection(where, CONNECT_TIMEOUT_S):
                return True
        except OSError:
            return False


def _lines(file: Path) -> list[str]:
    try:
        return [line for line in file.read_text(errors="replace").splitlines() if line.strip()]
    except FileNotFoundError:
        return []
