"""One real memcached as a child process, on a port that stays the same over restarts."""

import os
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from counter.errors import SetupError
from tally.dev.processes import Backend, ManagedProcess
from tally.dev.requirements import MEMCACHED, find_program

READY_WITHIN_S = 10.0
STOPPED_WITHIN_S = 5.0
ANSWER_TIMEOUT_S = 2.0
LOOK_EVERY_S = 0.01
MEMORY_MB = 64
THREADS = 2


class Memcached(Backend):
    """What it holds is gone when it ends."""

    def __init__(
        self,
        home: Path,
        *,
        port: int,
        host: str = "127.0.0.1",
        options: Sequence[str] = (),
        detached: bool = False,
    ) -> None:
        """`options` are memcached's own, as on its command line."""
        self.home = home
        self.host = host
        self.port = port
        self.log = home / "memcached.log"
        self._options = options
        # memcached takes no argument that could tell this one from others: it gets a name instead.
        self._name = home / "memcached"
        process = ManagedProcess(
            pid_file=home / "memcached.pid", marker=str(self._name), detached=detached
        )
        super().__init__(process, stopped_within_s=STOPPED_WITHIN_S)

    def start(self) -> None:
        """Returns when memcached answers. SetupError says why it does not."""
        program = find_program(MEMCACHED, "memcached")
        self.home.mkdir(parents=True, exist_ok=True)
        self._name.unlink(missing_ok=True)
        self._name.symlink_to(program)
        self.log.unlink(missing_ok=True)
        command = [str(self._name), f"--listen={self.host}", f"--port={self.port}"]
        command += ["--udp-port=0", f"--memory-limit={MEMORY_MB}", f"--threads={THREADS}"]
        command += self._options
        if os.geteuid() == 0:
            command += ["--user=nobody"]  # it refuses to be root
        self._process.start(command, log=self.log, listens=[(self.host, self.port)])
        ends_s = time.monotonic() + READY_WITHIN_S
        while not self.answers():
            if not self.is_running or time.monotonic() >= ends_s:
                said = self.log.read_text(errors="replace").strip()
                self.kill()
                raise SetupError(f"memcached on {self.address} does not start: {said}")
            time.sleep(LOOK_EVERY_S)

    def answers(self, within_s: float = ANSWER_TIMEOUT_S) -> bool:
        """Whether it answers now, which one that is paused does not."""
        try:
            with socket.create_connection((self.host, self.port), within_s) as connection:
                connection.settimeout(within_s)
                connection.sendall(b"version\r\n")
                return connection.recv(7) == b"VERSION"
        except OSError:
            return False

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"
