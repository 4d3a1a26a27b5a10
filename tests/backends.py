"""Real backends for tests, started by the same code as `tally dev up`.

One Cassandra node and one memcached serve all tests of a run that do no harm to them; each test
takes a keyspace or a prefix of its own. They start when they are first asked for, and they end
with this process, also when it is killed. A backend that cannot start fails the test, with the
reason.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

from tally.dev.cassandra_files import NodeSettings
from tally.dev.cassandra_node import CassandraNode
from tally.dev.memcached import Memcached
from tally.dev.ports import free_port
from tally.dev.ring import ring_settings, wait_ring_ready


@cache
def cassandra_node() -> CassandraNode:
    """The node of this run, ready: data centre datacenter1, no passwords, no TLS."""
    node = start_node(_run_directory() / "cassandra")
    _at_exit(node.kill)
    return node


@cache
def cassandra_ring() -> list[CassandraNode]:
    """Three nodes of this run, ready. Whoever kills one starts it again."""
    nodes = start_ring(Path(tempfile.mkdtemp(prefix="ring-", dir=_run_directory())))
    for node in nodes:
        _at_exit(node.kill)
    return nodes


def end_ring() -> None:
    """Ends the three nodes, if there are any; who asks for them later gets new ones."""
    if cassandra_ring.cache_info().currsize:
        for node in cassandra_ring():
            node.kill()
        cassandra_ring.cache_clear()


@cache
def memcached_server() -> Memcached:
    """The memcached of this run; `.address` is for clients."""
    server = start_memcached()
    _at_exit(server.kill)
    return server


def start_node(home: Path, settings: NodeSettings | None = None) -> CassandraNode:
    """A node of the test's own, ready, on free ports; the test kills it.

    `settings` says what is special about it; home and ports are filled in.
    """
    node = CassandraNode(
        replace(
            settings or NodeSettings(home=home),
            home=home,
            native_port=free_port(),
            storage_port=free_port(),
            # Tests kill processes, not machines.
            fsync=False,
        )
    )
    node.start()
    try:
        node.wait_ready()
    except BaseException:
        node.kill()
        raise
    return node


def start_ring(home: Path, count: int = 3) -> list[CassandraNode]:
    """Nodes on 127.0.0.1 and up that form one ring, ready, on free ports; the test kills them."""
    addresses = [f"127.0.0.{number}" for number in range(1, count + 1)]
    first = NodeSettings(
        home=home,
        native_port=free_port(addresses),
        storage_port=free_port(addresses),
        fsync=False,
    )
    nodes = [CassandraNode(settings) for settings in ring_settings(home, count, first)]
    try:
        for node in nodes:
            node.start()
        wait_ring_ready(nodes)
    except BaseException:
        for node in nodes:
            node.kill()
        raise
    return nodes


def start_memcached(*options: str) -> Memcached:
    """A memcached of the test's own, on a port that stays the same over restarts; the test kills
    it. `options` as on memcached's command line."""
    port = free_port()
    server = Memcached(_run_directory() / f"memcached-{port}", port=port, options=options)
    server.start()
    return server


@cache
def _run_directory() -> Path:
    """Removed at the end of the run; what a killed run left is removed by the next one."""
    base = Path(tempfile.gettempdir()) / f"tally-tests-{os.getuid()}"
    base.mkdir(exist_ok=True)
    for left in base.iterdir():
        if not _is_alive(int(left.name)):
            shutil.rmtree(left, ignore_errors=True)
    directory = base / str(os.getpid())
    directory.mkdir()
    _at_exit(lambda: shutil.rmtree(directory, ignore_errors=True))
    return directory


def _at_exit(action: Callable[[], None]) -> None:
    made_by = os.getpid()
    # A forked child inherits the registration, but not what it is about.
    atexit.register(lambda: action() if os.getpid() == made_by else None)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
