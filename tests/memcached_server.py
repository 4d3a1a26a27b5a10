"""A real memcached as a child process, on a loopback port that stays the same over restarts."""

import atexit
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache

from counter.storage.memcached import MemcachedServers, MemcachedSettings

READY_WITHIN_S = 10.0
# Tests run on machines that are busy with tests: only those about time limits use short ones.
PATIENT_MS = 5_000


class MemcachedServer:
    def __init__(self, *options: str) -> None:
        self.name = f"127.0.0.1:{_free_port()}"
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        host, port = self.name.split(":")
        command = ["memcached", "-l", host, "-p", port, "-U", "0", "-t", "2", *self._options]
        if os.geteuid() == 0:
            command += ["-u", "nobody"]  # it refuses to be root
        self._process = subprocess.Popen(command)
        ends = time.monotonic() + READY_WITHIN_S
        while not self._answers():
            assert self._process.poll() is None, f"memcached ended: {command}"
            assert time.monotonic() < ends, f"memcached does not answer: {command}"
            time.sleep(0.01)

    def kill(self) -> None:
        """kill -9: all that it had is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        """It hangs: connections are taken by the kernel, and nobody answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)  # all of its threads

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def say(self, request: bytes) -> bytes:
        """What memcached answers to one command in raw form."""
        host, port = self.name.split(":")
        with socket.create_connection((host, int(port)), timeout=READY_WITHIN_S) as connection:
            connection.sendall(request + b"quit\r\n")
            answer = b""
            while part := connection.recv(65_536):
                answer += part
        return answer

    def _answers(self) -> bool:
        try:
            return self.say(b"mn\r\n") == b"MN\r\n"
        except OSError:
            return False


@asynccontextmanager
async def connected(
    servers: Sequence[MemcachedServer],
    *,
    prefix: str = "test",
    timeout_ms: int = PATIENT_MS,
    connections_per_server: int = 1,
) -> AsyncIterator[MemcachedServers]:
    opened = MemcachedServers(
        MemcachedSettings(
            servers=tuple(server.name for server in servers),
            prefix=prefix,
            timeout_ms=timeout_ms,
            connections_per_server=connections_per_server,
            probe_interval_ms=20,
        )
    )
    await opened.start()
    try:
        yield opened
    finally:
        await opened.close()


@cache
def shared_server() -> MemcachedServer:
    """One for all tests of a run that do no harm to it; each takes a prefix of its own."""
    server = MemcachedServer()
    atexit.register(server.kill)
    return server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
