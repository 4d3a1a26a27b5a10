"""One server of two processes on one port: `tally server --processes 2`, on real stores.

Processes are killed under load, and their supervisor too; callers see retries and nothing else.
"""

import asyncio
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.calls import Calls, eventually, fresh_counter
from tests.fleet import CONVERGENCE_S, LATE_S, Fleet
from tests.load import open_channel, under_load
from tests.processes import ProgramProcess, free_port, run_tally
from tests.scrape import Scrape
from tests.sdk_callers import callers_who_must_not_notice

PROCESSES = {"1", "2"}
SERVE_AGAIN_WITHIN_S = 60.0


class Server:
    """A server of two processes, as its operator sees it."""

    def __init__(self, fleet: Fleet) -> None:
        self.metrics = f"127.0.0.1:{free_port()}"
        self.process: ProgramProcess = fleet.add(
            "server", "--processes", "2", "--metrics", self.metrics
        )

    @property
    def address(self) -> str:
        return self.process.address

    def pid(self, number: str) -> int:
        """Of the process with this number, as the log has it."""
        started = re.findall(
            rf"action=child_started pid=(\d+) process={number}\b", self.process.log.read_text()
        )
        return int(started[-1])

    def pids(self) -> list[int]:
        return [self.pid(number) for number in sorted(PROCESSES)]

    def kill(self, number: str) -> int:
        """kill -9 of one process; answers with its id, which the next one does not have."""
        pid = self.pid(number)
        os.kill(pid, signal.SIGKILL)
        return pid

    def health(self) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{self.metrics}/healthz", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_whole(self) -> None:
        """Until both processes serve."""
        whole = (200, "2 of 2 processes serve\n")
        eventually(self.health, lambda seen: seen == whole, within_s=SERVE_AGAIN_WITHIN_S)

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series of a sample that have these labels."""
        return Scrape(self.metrics).total(name, **labels)

    def calls(self, number: str) -> float:
        """How many calls a process has answered since its start."""
        return self.total("tally_call_seconds_count", process=number, code="OK")

    def wait_calls(self, number: str) -> None:
        eventually(lambda: self.calls(number), lambda calls: calls > 0)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    fleet = Fleet.on_one_node(tmp_path_factory.mktemp("processes"))
    # So short that callers spread while a test runs.
    fleet.config.write_text(fleet.config.read_text() + "server:\n  connection_age: 1s\n")
    asyncio.run(fleet.apply_schema())
    try:
        yield fleet
    finally:
        fleet.end()


@pytest.fixture(scope="module")
def worker(fleet: Fleet) -> ProgramProcess:
    return fleet.add("worker")


@pytest.fixture(scope="module")
def server(fleet: Fleet, worker: ProgramProcess) -> Server:
    server = Server(fleet)
    asyncio.run(fleet.start(fleet.add("control-plane"), worker, server.process))
    server.wait_whole()
    return server


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_gone(pids: list[int]) -> None:
    eventually(lambda: [pid for pid in pids if is_alive(pid)], lambda left: left == [])


def test_both_are_health_checked_and_scraped_in_one_place(server: Server) -> None:
    assert server.total("tally_processes_wanted") == server.total("tally_processes_up") == 2
    for process in (*PROCESSES, "supervisor"):
        assert server.total("process_resident_memory_bytes", process=process) > 1_000_000
    for _ in range(8):  # each connection may reach another one
        with grpc.insecure_channel(
            server.address, options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            for service in ("", "counter.v1.CounterService"):
                request = health_pb2.HealthCheckRequest(service=service)
                answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=10)
                assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_a_caller_that_stays_reaches_both(server: Server) -> None:
    """Its connection ends when it is old enough, and no call fails because of that."""
    counter, added = fresh_counter(), 0
    before = {number: server.calls(number) for number in PROCESSES}

    def one_more() -> bool:
        nonlocal added
        for _ in range(20):
            calls.add("quotas", counter)
        added += 20
        return all(server.calls(number) > before[number] for number in PROCESSES)

    with Calls(server.address) as calls:
        eventually(one_more, bool)
        assert calls.accurate("quotas", counter) == added


@pytest.mark.timeout(240)
async def test_exactly_once_through_the_kill_of_a_process(
    server: Server, worker: ProgramProcess
) -> None:
    async with under_load(server.address, late_s=LATE_S) as load:
        await load.acknowledged(300)
        for number in PROCESSES:
            await asyncio.to_thread(server.wait_calls, number)
        restarts = server.total("tally_process_restarts_total", process="1")
        killed = server.kill("1")
        await asyncio.to_thread(eventually, server.health, lambda seen: "1 of 2" in seen[1])
        assert server.health()[0] == 200  # callers are served all the time
        await load.acknowledged(300)
        await asyncio.to_thread(server.wait_whole)
        assert server.pid("1") != killed
        assert server.total("tally_process_restarts_total", process="1") == restarts + 1
        await asyncio.to_thread(server.wait_calls, "1")  # it takes its share again
        await load.acknowledged(500)
        await load.stop()
        await asyncio.sleep(CONVERGENCE_S)  # I2: nobody reads or writes meanwhile
        await load.check(worker=worker.address)


async def test_callers_of_the_sdk_do_not_notice(server: Server) -> None:
    async with callers_who_must_not_notice(server.address, count=8) as callers:
        await callers.everybody_adds()
        server.kill("2")
        await callers.everybody_adds()
        await asyncio.to_thread(server.wait_whole)
        await callers.everybody_adds()


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_second_server_on_the_port_is_refused(
    server: Server, fleet: Fleet, processes: str
) -> None:
    ended = run_tally(
        *("server", "--config", str(fleet.config), "--listen", server.address),
        *("--processes", processes),
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        f"tally: cannot listen on {server.address}: is it taken by another process? "
        "Give another address with --listen"
    )
    assert "Traceback" not in ended.stderr
    assert server.health()[0] == 200


def test_a_start_that_cannot_succeed_is_refused(
    server: Server, fleet: Fleet, tmp_path: Path
) -> None:
    config = tmp_path / "fleet.yaml"
    config.write_text(fleet.config.read_text().replace("shards: 4", "shards: 5"))
    ended = run_tally(
        "server", "--config", str(config), "--listen", "127.0.0.1:0", "--processes", "2"
    )
    assert ended.returncode == 1
    refusals = [line for line in ended.stderr.splitlines() if line.startswith("tally: ")]
    assert len(refusals) == 1
    assert refusals[0].startswith(f"tally: {config}:4:")
    assert "platform.shards" in refusals[0]
    assert "Traceback" not in ended.stderr
    assert "Tally server" not in ended.stdout


@pytest.mark.timeout(240)
async def test_its_end_is_the_end_of_all_however_it_comes(server: Server, fleet: Fleet) -> None:
    other = Server(fleet)
    for number, code in ((signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)):
        await asyncio.to_thread(other.process.start)
        await asyncio.to_thread(other.wait_whole)
        pids = other.pids()
        assert all(map(is_alive, pids))
        # Somebody is connected, so what is left of connections is in nobody's way either.
        async with open_channel(other.address) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            await health.Check(health_pb2.HealthCheckRequest(), timeout=10)
            assert await asyncio.to_thread(other.process.stop, number) == code
            await asyncio.to_thread(wait_gone, pids)
        with socket.socket() as caller:
            host, port = other.address.rsplit(":", 1)
            assert caller.connect_ex((host, int(port))) != 0
