"""F14: the disk is full, or read-only. Writes are refused with the reason, health says NOT_SERVING,
nothing is acknowledged that is not stored, and it goes on where it can."""

import asyncio
import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from counter.v1 import counter_service_pb2 as pb
from tests.calls import Calls, fresh_counter, refusal, token
from tests.load import under_load
from tests.processes import FAST, FAST_CONVERGENCE_S, TallyProcess

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
COUNTER_SERVICE = "counter.v1.CounterService"
DISK_BYTES = 16 * 1024 * 1024
# What a process does to its disks in a namespace of its own, which needs no privileges.
_OWN_DISKS = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
SMALL_DISK = f'mount -t tmpfs -o size={DISK_BYTES} tmpfs "$0" && exec "$@"'
READ_ONLY_DISK = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


def on_disk(home: Path, mount: str) -> TallyProcess:
    (home / "data").mkdir(exist_ok=True)
    return TallyProcess(home, *FAST, run_by=(*_OWN_DISKS, mount, str(home / "data")))


@contextmanager
def served(tally: TallyProcess) -> Iterator[None]:
    """Ended whatever happens: a disk in use cannot be taken away."""
    try:
        tally.start()
        yield
    finally:
        tally.end()


def fill_up(file: Path) -> None:
    """Until not one page more fits."""
    with file.open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(b"\0" * 4096)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


async def assert_refused(tally: TallyProcess, *said: str) -> None:
    """Nothing is taken, and it is said why. Reads go on."""
    await asyncio.to_thread(tally.wait_health, COUNTER_SERVICE, NOT_SERVING)
    await asyncio.to_thread(tally.wait_health, "", NOT_SERVING)
    counter, kept = fresh_counter(), token()
    with Calls(tally.address) as calls:
        seen = refusal(lambda: calls.add("quotas", counter, 1, kept))
        assert (seen.code, seen.reason) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
        assert all(each in seen.message for each in said), seen.message
        assert calls.accurate("quotas", counter) == 0
        assert calls.status("quotas", counter, kept) != pb.TOKEN_STATUS_APPLIED


@pytest.mark.timeout(600)
async def test_full_disk(tmp_path: Path) -> None:
    tally = on_disk(tmp_path, SMALL_DISK)
    with served(tally):
        # The small disk is seen only by the server, and through it.
        ballast = Path(f"/proc/{tally.process.pid}/root{tally.data}/ballast")
        async with under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.05) as load:
            for _ in range(2):
                await load.acknowledged(30)
                fill_up(ballast)
                await load.refused("STORE_UNAVAILABLE")
                await assert_refused(tally, "no space left", "free some")
                os.unlink(ballast)
                await asyncio.to_thread(tally.wait_health, "", SERVING)  # by itself
            await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)
        assert tally.stop() == 0


@pytest.mark.timeout(600)
async def test_read_only_disk_at_the_start(tally: TallyProcess, tmp_path: Path) -> None:
    async with under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.05) as load:
        await load.acknowledged(100)
        assert tally.stop() == 0
        refused = on_disk(tmp_path, READ_ONLY_DISK)
        refused.log = tmp_path / "refused.log"
        refused.start(wait=False)
        assert await asyncio.to_thread(refused.process.wait, 60) == 1
        [said] = refused.log.read_text().splitlines()
        assert said.startswith("tally: cannot use data directory")
        assert "Read-only file system" in said
        await asyncio.to_thread(tally.start)  # writable again
        await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)


@contextmanager
def ext4(directory: Path) -> Iterator[Path]:
    """A file system on a disk of its own, which turns read-only at an error; the file that makes
    it believe in one. Only root can do that."""
    assert os.geteuid() == 0, "a file system that turns read-only needs root, and a loop device"
    image = directory / "disk.img"
    if not image.exists():
        image.write_bytes(bytes(4 * DISK_BYTES))
        run("mkfs.ext4", "-q", "-F", str(image))
    # What an error leaves behind: mend it as an operator would, without questions.
    repaired = subprocess.run(["e2fsck", "-f", "-p", str(image)], capture_output=True, check=False)
    assert repaired.returncode in (0, 1), repaired
    (directory / "data").mkdir(exist_ok=True)
    run("mount", "-o", "loop,errors=remount-ro", str(image), str(directory / "data"))
    try:
        device = run("findmnt", "-n", "-o", "SOURCE", str(directory / "data"))
        yield Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"
    finally:
        run("umount", str(directory / "data"))


def run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_a_disk_that_turns_read_only(tmp_path: Path) -> None:
    """As disks do when the file system has met an error: there is no way back but to mount it
    again. What was acknowledged is there then."""
    tally = TallyProcess(tmp_path, *FAST)
    async with under_load(tally.address, late_s=(1.0, 4.0), pause_s=0.05) as load:
        with ext4(tmp_path) as trigger, served(tally):
            await load.acknowledged(100)
            trigger.write_text("an error, for a test\n")
            await load.refused("STORE_UNAVAILABLE")
            await assert_refused(tally, "disk I/O error", "read-only")
        with ext4(tmp_path), served(tally):
            await load.finish(converges_s=FAST_CONVERGENCE_S, worker=tally.address)
            assert tally.stop() == 0
