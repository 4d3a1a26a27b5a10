"""Tally as a child process, reached only as a user would: its command line and its port."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.faults.injected import Faults

ROOT = Path(__file__).parents[1]
READY_WITHIN_S = 120.0
NAMESPACES = {
    "plays": (
        "namespace: plays\nstrategy: eventual\ncache: {ttl: 200ms, local_ttl: 50ms}\n"
        "history:\n  - {step: 1m, retention: 7d}\n  - {step: 1h, retention: 90d}\n"
    ),
    "quotas": "namespace: quotas\nstrategy: accurate\n",
    "large": "namespace: large\nstrategy: eventual\nmax_delta: 9007199254740992\n",
    "recent": "namespace: recent\nstrategy: rolling_window\nrolling_window: {length: 10s}\n",
    "hits": "namespace: hits\nstrategy: best_effort\ndedupe_ttl: 60s\n",
}
# Everything happens five times as fast as with the defaults.
FAST = ("--window", "200ms", "--accept-limit", "1s", "--max-clock-skew", "300ms")
FAST_CONVERGENCE_S = 0.2 + 1.0 + 0.3


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def write_namespaces(directory: Path, files: dict[str, str] | None = None) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in (files or NAMESPACES).items():
        (directory / f"{name}.yaml").write_text(text)
    return directory


class ProgramProcess:
    """A program of Tally on a port that stays the same over restarts."""

    def __init__(
        self,
        log: Path,
        program: str,
        *arguments: str,
        run_by: Sequence[str] = (),
        address: str | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.address = address or f"127.0.0.1:{free_port()}"
        self.log = log
        started_by: Sequence[str] = ("-m", "tally")
        self._environment = dict(os.environ)
        self._directory: Path | None = None  # in which it runs; None: where the tests do
        if faults is not None:
            started_by = faults.python_arguments
            self._environment["PYTHONPATH"] = str(ROOT)
        self._command = [*run_by, sys.executable, *started_by, program]
        self._command += ["--listen", self.address, *arguments]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> Self:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=log,
                stderr=log,
                env=self._environment,
                cwd=self._directory,
            )
        if wait:
            self.wait_ready()
        return self

    def wait_ready(self) -> None:
        self.wait_health("", health_pb2.HealthCheckResponse.SERVING)

    def wait_health(self, service: str, wanted: int, within_s: float = READY_WITHIN_S) -> None:
        ends = time.monotonic() + within_s
        seen: object = None
        with grpc.insecure_channel(self.address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            request = health_pb2.HealthCheckRequest(service=service)
            while time.monotonic() < ends:
                try:
                    seen = stub.Check(request, timeout=1, wait_for_ready=True).status
                except grpc.RpcError as error:
                    seen = error.code()
                if seen == wanted:
                    return
                if self._process is not None and self._process.poll() is not None:
                    break
                time.sleep(0.02)
        raise AssertionError(f"health is {seen}, not {wanted}:\n{self.log.read_text()[-4000:]}")

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    def kill(self) -> None:
        """kill -9: no chance to finish anything."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def wait_killed(self, within_s: float = 60.0) -> None:
        """Waits until something killed it (kill -9)."""
        assert self.process.wait(within_s) == -signal.SIGKILL, self.log.read_text()[-4000:]

    def pause(self) -> None:
        """The process stands still: no chance to say so, and it does not know."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """A signal; answers with the exit code."""
        self.process.send_signal(number)
        return self.process.wait(30)

    def end(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()


class TallyProcess(ProgramProcess):
    """`tally serve`: all of it, on its embedded store."""

    def __init__(
        self,
        home: Path,
        *flags: str,
        run_by: Sequence[str] = (),
        faults: Faults | None = None,
    ) -> None:
        self.data = home / "data"
        self.namespaces = home / "namespaces"
        if not self.namespaces.exists():
            write_namespaces(self.namespaces)
        places = ("--data", str(self.data), "--namespaces", str(self.namespaces))
        log = home / "tally.log"
        super().__init__(log, "serve", *places, *flags, run_by=run_by, faults=faults)


def run_tally(*arguments: str, timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tally", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "120"},
        check=False,
    )
