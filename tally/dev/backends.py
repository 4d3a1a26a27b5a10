"""The backends of one directory: some Cassandra nodes and a memcached that run in the background.

The directory knows what belongs to it (`state.json`) and what runs (pid files), so that any later
command finds it again, also after a crash of the one that started it.
"""

import fcntl
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from counter.errors import SetupError
from tally.dev.cassandra_files import NodeSettings
from tally.dev.cassandra_node import CassandraNode
from tally.dev.jars import cassandra_jars
from tally.dev.memcached import Memcached
from tally.dev.ports import addresses_are_there, free_port, is_free
from tally.dev.ring import READY, ring_settings, wait_ring_ready

NATIVE_PORT = 9042
STORAGE_PORT = 7000
MEMCACHED_PORT = 11211
MEMCACHED = "memcached"
RAN_ALREADY = "ready, was running"
CONFIG_FILE = "tally.yaml"
NAMESPACES = "namespaces"
_STATE_FILE = "state.json"
_LOCK_FILE = "lock"
_IGNORE_FILE = ".gitignore"


@dataclass(frozen=True, kw_only=True)
class State:
    """What a directory's backends are. Decided once; `down --purge` forgets it."""

    nodes: int
    native_port: int
    storage_port: int
    memcached_port: int


@dataclass(frozen=True, kw_only=True)
class BackendStatus:
    name: str
    address: str
    state: str  # ready, running (but not answering) or stopped
    pid: int | None
    memory_mb: int | None
    log: Path


class Watcher(Protocol):
    """Is told how a start goes on."""

    def fetching(self, files: int) -> None:
        """Maven has brought so many files of Cassandra."""

    def fetched(self) -> None:
        """Cassandra is there, newly or since long."""

    def stage(self, name: str, address: str, stage: str) -> None:
        """What a backend is doing; the last stage is READY or RAN_ALREADY."""


class Backends:
    def __init__(self, directory: Path) -> None:
        # The same however it is spelt: the processes are found by it.
        self.directory = directory.resolve()
        self.config = self.directory / CONFIG_FILE

    @property
    def state(self) -> State | None:
        try:
            return State(**json.loads((self.directory / _STATE_FILE).read_text()))
        except FileNotFoundError:
            return None
        except (TypeError, ValueError) as error:
            raise SetupError(
                f"{self.directory / _STATE_FILE} cannot be read: {error}. "
                "Remove the directory, and end what still runs in it"
            ) from error

    def up(
        self,
        nodes: int | None,
        watcher: Watcher,
        prepare: Callable[[State], None] = lambda _: None,
    ) -> State:
        """Starts what does not run, and returns when everything is ready and `prepare` has run.

        If it fails or is interrupted, nothing is left running that this call has started.
        """
        with self._locked():
            state = self._decided(nodes)
            jars = cassandra_jars(watcher.fetching)
            watcher.fetched()
            memcached = self.memcached(state)
            nodes_by_name = self.nodes(state, jars)
            started: list[CassandraNode | Memcached] = []
            names: dict[CassandraNode | Memcached, str] = {memcached: MEMCACHED}
            names |= {node: name for name, node in nodes_by_name.items()}

            def show(each: CassandraNode | Memcached, stage: str) -> None:
                ran = stage == READY and each not in started
                watcher.stage(names[each], each.address, RAN_ALREADY if ran else stage)

            try:
                if not memcached.is_running:
                    started.append(memcached)
                    memcached.start()
                show(memcached, READY)
                for node in nodes_by_name.values():
                    if not node.is_running:
                        started.append(node)
                        node.start()
                wait_ring_ready(
                    list(nodes_by_name.values()),
                    progress=show,
                )
                prepare(state)
            except BaseException:
                for each in started:
                    each.kill()
                raise
            return state

    def down(self, *, purge: bool) -> list[str]:
        """Stops everything, and says what ran. Data stays, unless it is purged."""
        state = self.state
        if state is None:
            return []
        with self._locked():
            running: dict[str, CassandraNode | Memcached] = {
                name: each for name, each in self.all(state).items() if each.is_running
            }
            for each in running.values():
                each.ask_to_stop()
            for each in running.values():
                each.stop()
            if purge:
                self._purge(state)
        return list(running)

    def status(self, state: State) -> list[BackendStatus]:
        found = []
        for name, each in self.all(state).items():
            pid = each.pid
            found.append(
                BackendStatus(
                    name=name,
                    address=each.address,
                    state="stopped" if pid is None else "ready" if each.answers() else "running",
                    pid=pid,
                    memory_mb=None if pid is None else _memory_mb(pid),
                    log=each.log,
                )
            )
        return found

    def all(self, state: State) -> dict[str, CassandraNode | Memcached]:
        return {**self.nodes(state), MEMCACHED: self.memcached(state)}

    def nodes(self, state: State, jars: Path | None = None) -> dict[str, CassandraNode]:
        common = NodeSettings(
            home=self.directory,
            native_port=state.native_port,
            storage_port=state.storage_port,
        )
        return {
            settings.home.name: CassandraNode(settings, jars=jars, detached=True)
            for settings in ring_settings(self.directory, state.nodes, common)
        }

    def memcached(self, state: State) -> Memcached:
        return Memcached(self.directory / MEMCACHED, port=state.memcached_port, detached=True)

    def _decided(self, nodes: int | None) -> State:
        state = self.state
        if state is not None:
            if nodes not in (None, state.nodes):
                raise SetupError(
                    f"{self.directory} has {state.nodes} node(s), not {nodes}. Use another --dir, "
                    f"or remove it and its data with: tally dev down --purge"
                )
            return state
        count = nodes or 1
        addresses = [f"127.0.0.{number}" for number in range(1, count + 1)]
        addresses_are_there(addresses)
        ports = [
            port if all(is_free(address, port) for address in addresses) else free_port(addresses)
            for port in (NATIVE_PORT, STORAGE_PORT, MEMCACHED_PORT)
        ]
        state = State(
            nodes=count, native_port=ports[0], storage_port=ports[1], memcached_port=ports[2]
        )
        self.config.unlink(missing_ok=True)
        (self.directory / _IGNORE_FILE).write_text("*\n")
        (self.directory / _STATE_FILE).write_text(json.dumps(asdict(state), indent=2) + "\n")
        return state

    def _purge(self, state: State) -> None:
        """Removes what is ours, and nothing that somebody else has put there."""
        for name in (*self.all(state), NAMESPACES):
            shutil.rmtree(self.directory / name, ignore_errors=True)
        for name in (CONFIG_FILE, _IGNORE_FILE, _LOCK_FILE, _STATE_FILE):
            (self.directory / name).unlink(missing_ok=True)
        try:
            self.directory.rmdir()
        except OSError:
            pass  # not empty

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """One command at a time works on the directory; a killed one lets go."""
        if self.directory.exists() and self.state is None:
            strangers = {each.name for each in self.directory.iterdir()} - {_LOCK_FILE}
            if strangers:
                raise SetupError(
                    f"{self.directory} has files that are not of tally dev. Use another --dir"
                )
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / _LOCK_FILE).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise SetupError(
                    f"another tally dev is at work in {self.directory}. Wait for it, or end it"
                ) from error
            yield


def _memory_mb(pid: int) -> int | None:
    """How much memory the process really uses; None where that cannot be told."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) // 1_024
    except OSError:
        pass
    return None
