"""The servers under measurement: child processes, reached only through their port."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import grpc
import psutil
from grpc_health.v1 import health_pb2, health_pb2_grpc

from counter.rpc.server import MESSAGE_BYTES_MAX

T = TypeVar("T")

NAMESPACE = "plays"
_NAMESPACE_YAML = f"namespace: {NAMESPACE}\nstrategy: eventual\n"
_READY_WITHIN_S = 30.0
_STOPPED_WITHIN_S = 30.0
_POLL_S = 0.05


class Server:
    """A running child process, with the processes that it started, and one channel to it."""

    def __init__(
        self, process: subprocess.Popen[bytes], channel: grpc.aio.Channel, address: str
    ) -> None:
        self._process = psutil.Process(process.pid)
        self.channel = channel
        self.address = address

    @property
    def pid(self) -> int:
        return self._process.pid

    def cpu_s(self) -> float:
        """Processor time since the start, of all processes and threads."""
        return sum(times.user + times.system for times in self._each(psutil.Process.cpu_times))

    def memory_bytes(self) -> int:
        return sum(memory.rss for memory in self._each(psutil.Process.memory_info))

    def _each(self, look: Callable[[psutil.Process], T]) -> list[T]:
        """Looks at the process and at those that it started, but for one that has just ended."""
        looked = [look(self._process)]
        for child in self._process.children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                looked.append(look(child))
        return looked

    def peak_memory_bytes(self) -> int:
        """The most resident memory that the process ever had, as the kernel counts it."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1_024
        raise RuntimeError("the kernel does not tell VmHWM: peak memory is measured on Linux only")


@asynccontextmanager
async def empty_server(home: Path) -> AsyncIterator[Server]:
    """An empty handler; see `benchmarks.empty_server`."""
    async with _running("empty", home, ["benchmarks.empty_server"]) as server:
        yield server


@asynccontextmanager
async def tally_server(home: Path, *flags: str) -> AsyncIterator[Server]:
    """`tally serve` on a new data directory, with its default settings but for `flags`."""
    namespaces = home / "namespaces"
    namespaces.mkdir(parents=True)
    (namespaces / f"{NAMESPACE}.yaml").write_text(_NAMESPACE_YAML)
    arguments = ["tally", "serve", "--data", str(home / "data"), "--namespaces", str(namespaces)]
    async with _running("tally", home, [*arguments, *flags]) as server:
        yield server


@asynccontextmanager
async def program(name: str, home: Path, config: Path, *flags: str) -> AsyncIterator[Server]:
    """A program of a fleet: `tally server`, `tally worker` or `tally control-plane`."""
    async with _running(name, home, ["tally", name, "--config", str(config), *flags]) as server:
        yield server


@asynccontextmanager
async def _running(name: str, home: Path, arguments: Sequence[str]) -> AsyncIterator[Server]:
    address = f"127.0.0.1:{_free_port()}"
    log = home / f"{name}.log"
    process = _start([*arguments, "--listen", address], log)
    try:
        options = [
            ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
            ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
        ]
        async with grpc.aio.insecure_channel(address, options=options) as channel:
            if not await _ready(process, channel):
                raise RuntimeError(f"{name} did not start: {_end_of(log)}")
            yield Server(process, channel, address)
    finally:
        process.terminate()
        try:
            process.wait(_STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


async def _ready(process: subprocess.Popen[bytes], channel: grpc.aio.Channel) -> bool:
    stub = health_pb2_grpc.HealthStub(channel)
    ends_s = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < ends_s and process.poll() is None:
        try:
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=1)
        except grpc.aio.AioRpcError:
            pass
        else:
            if answer.status == health_pb2.HealthCheckResponse.SERVING:
                return True
        await asyncio.sleep(_POLL_S)
    return False


def _start(arguments: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        return subprocess.Popen([sys.executable, "-m", *arguments], stdout=output, stderr=output)


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-4_000:]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
