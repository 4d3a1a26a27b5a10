"""What `tally dev` decides before anything runs, and memcached, which is quick to start."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from counter.errors import SetupError
from tally.config import load
from tally.dev.backends import Backends, State
from tally.dev.cassandra_files import NodeSettings
from tally.dev.cassandra_node import CassandraNode
from tally.dev.fleet_config import write_config
from tally.dev.memcached import Memcached
from tally.dev.ports import addresses_are_there, free_port, is_free

STATE = State(nodes=3, native_port=21_001, storage_port=21_002, memcached_port=21_003)


class Silent:
    def fetching(self, files: int) -> None:
        pass

    def fetched(self) -> None:
        pass

    def stage(self, name: str, address: str, stage: str) -> None:
        pass


def made(directory: Path) -> Backends:
    """Backends that have been decided about, and never started."""
    directory.mkdir()
    (directory / "state.json").write_text(json.dumps(vars(STATE)))
    return Backends(directory)


def test_a_directory_is_one_cluster(tmp_path: Path) -> None:
    backends = made(tmp_path / "dev")
    assert backends.state == STATE
    with pytest.raises(SetupError, match=r"has 3 node\(s\), not 1"):
        backends.up(1, Silent())


def test_a_directory_with_other_things_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(SetupError, match="not of tally dev"):
        Backends(tmp_path).up(1, Silent())
    assert Backends(tmp_path).down(purge=True) == []
    assert [each.name for each in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_state_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}")
    with pytest.raises(SetupError, match=r"state\.json cannot be read"):
        Backends(tmp_path).down(purge=False)


def test_purging_leaves_what_others_put_there(tmp_path: Path) -> None:
    backends = made(tmp_path / "dev")
    write_config(backends, STATE, tmp_path / "none")
    (backends.directory / "node1").mkdir()
    assert backends.down(purge=True) == []
    assert not backends.directory.exists()
    backends = made(tmp_path / "dev")
    (backends.directory / "thesis.txt").touch()
    backends.down(purge=True)
    assert [each.name for each in backends.directory.iterdir()] == ["thesis.txt"]


def test_a_port_that_somebody_took_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        node = CassandraNode(
            NodeSettings(home=tmp_path, native_port=free_port(), storage_port=port), jars=tmp_path
        )
        with pytest.raises(SetupError, match=f"127.0.0.1:{port} is taken"):
            node.start()
        assert not node.is_running


def test_the_config_is_one_that_the_programs_take(tmp_path: Path) -> None:
    backends = made(tmp_path / "dev")
    config = load(write_config(backends, STATE, tmp_path / "none"))
    assert config.cassandra.contact_points == ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    assert (config.cassandra.port, config.cassandra.data_center) == (21_001, "datacenter1")
    assert config.replication == {"datacenter1": 3}
    assert config.memcached is not None
    assert config.memcached.servers == ("127.0.0.1:21003",)


def test_an_edited_config_stays(tmp_path: Path) -> None:
    backends = made(tmp_path / "dev")
    write_config(backends, STATE, tmp_path / "none").write_text("edited")
    assert write_config(backends, STATE, tmp_path / "none").read_text() == "edited"


def test_the_users_namespaces_are_taken_if_there_are_some(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    backends = made(tmp_path / "dev")
    text = write_config(backends, STATE, tmp_path / "configs").read_text()
    assert 'namespaces: "../configs"' in text
    assert not (backends.directory / "namespaces").exists()


def test_a_free_port_is_free_everywhere() -> None:
    port = free_port(("127.0.0.1", "127.0.0.2"))
    with socket.socket() as server:
        server.bind(("127.0.0.2", port))
        server.listen()
        assert not is_free("127.0.0.2", port)
        assert is_free("127.0.0.1", port)
    assert is_free("127.0.0.2", port)


def test_an_address_that_is_not_ours_is_said() -> None:
    with pytest.raises(SetupError, match=r"no address 192\.0\.2\.1"):
        addresses_are_there(["127.0.0.1", "192.0.2.1"])


@pytest.fixture
def memcached(tmp_path: Path) -> Iterator[Memcached]:
    server = Memcached(tmp_path / "memcached", port=free_port())
    yield server
    server.kill()


def test_memcached_comes_back_on_its_port(memcached: Memcached) -> None:
    assert not memcached.answers()
    for _ in range(2):
        memcached.start()
        assert memcached.answers()
        assert memcached.is_running
        memcached.kill()
        assert not memcached.answers()
        assert not memcached.is_running


def test_a_paused_memcached_does_not_answer(memcached: Memcached) -> None:
    memcached.start()
    memcached.pause()
    assert memcached.is_running
    assert not memcached.answers(within_s=0.05)
    memcached.resume()
    assert memcached.answers()


def test_a_memcached_that_cannot_start_says_why(tmp_path: Path) -> None:
    server = Memcached(tmp_path, port=free_port(), host="192.0.2.1")
    with pytest.raises(SetupError, match="failed to listen"):
        server.start()
    assert not server.is_running


def test_another_server_on_the_port_is_not_taken_for_ours(
    memcached: Memcached, tmp_path: Path
) -> None:
    memcached.start()
    with pytest.raises(SetupError, match=f"{memcached.address} is taken"):
        Memcached(tmp_path / "second", port=memcached.port).start()
    assert memcached.answers()
