"""Peers as child processes: they are started, waited for and ended."""

import asyncio
import socket
import stat
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import psutil

from counter.errors import SetupError
from tally.dev.processes import ManagedProcess

HOST = "127.0.0.1"
_READY_WITHIN_S = 30.0
_STOPPED_WITHIN_S = 10.0
_POLL_S = 0.02
_SHOWN_CHARACTERS = 2_000


def folder(home: Path) -> Path:
    """Made if it is not there; its whole path, because programs start in folders of their own."""
    home.mkdir(parents=True, exist_ok=True)
    return home.resolve()


def let_pass(home: Path) -> None:
    """Others may pass through: PostgreSQL has a user of its own when this one is root."""
    home.chmod(home.stat().st_mode | stat.S_IXGRP | stat.S_IXOTH)


@asynccontextmanager
async def running(
    name: str, home: Path, command: Sequence[str], *, marker: str, port: int
) -> AsyncIterator[int]:
    """The process's number, once its port takes connections. It ends with this process."""
    home = folder(home)
    log = home / f"{name}.log"
    process = ManagedProcess(pid_file=home / f"{name}.pid", marker=marker, detached=False)
    process.start(command, log=log, listens=[(HOST, port)])
    try:
        ends_s = time.monotonic() + _READY_WITHIN_S
        while not _listens(port):
            if not process.is_running or time.monotonic() >= ends_s:
                said = log.read_text(errors="replace")[-_SHOWN_CHARACTERS:].strip()
                raise SetupError(f"{name} does not start; it says: {said or 'nothing'}")
            await asyncio.sleep(_POLL_S)
        pid = process.pid
        assert pid is not None
        yield pid
    finally:
        process.stop(_STOPPED_WITHIN_S)


def _listens(port: int) -> bool:
    try:
        with socket.create_connection((HOST, port), timeout=1.0):
            return True
    except OSError:
        return False


def tree_cpu_s(pid: int) -> float:
    """Processor time since the start, also of processes that it started and that have ended."""
    root = psutil.Process(pid)
    total_s = 0.0
    for process in (root, *root.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            # User, system, and both again of those that have ended: they count where they began.
            total_s += sum(process.cpu_times()[:4])
    return total_s
