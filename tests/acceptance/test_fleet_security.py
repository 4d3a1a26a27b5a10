"""Passwords and certificates between a fleet and Cassandra."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tally.dev.cassandra_files import FIRST_PASSWORD, FIRST_USER, NodeSettings
from tally.dev.cassandra_node import CassandraNode
from tally.dev.certificates import make_certificate
from tests.backends import start_node
from tests.processes import run_tally


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CassandraNode]:
    """One that wants a password, and encrypted connections."""
    home = tmp_path_factory.mktemp("secure")
    special = NodeSettings(
        home=home,
        authenticator="PasswordAuthenticator",
        tls=make_certificate(home / "certificates"),
    )
    started = start_node(home / "cassandra", special)
    yield started
    started.kill()


def write_config(
    home: Path,
    node: CassandraNode,
    *,
    user: str | None = FIRST_USER,
    password: str = FIRST_PASSWORD,
    ca_file: Path | None = None,
) -> Path:
    tls = node.settings.tls
    assert tls is not None
    (home / "password").write_text(f"{password}\n")
    (home / "password").chmod(0o600)
    lines = [
        "cassandra:",
        f"  contact_points: [{node.settings.address}]",
        f"  port: {node.settings.native_port}",
        f"  data_center: {node.settings.data_center}",
        f"  replication: {{{node.settings.data_center}: 1}}",
        f"  tls: {{ca_file: {ca_file or tls.certificate}}}",
    ]
    if user is not None:
        lines += [f"  username: {user}", "  password_file: password"]
    config = home / "fleet.yaml"
    config.write_text("\n".join(lines) + "\n")
    return config


def refused(config: Path) -> str:
    ended = run_tally("worker", "--config", str(config), "--listen", "127.0.0.1:0")
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    (line,) = ended.stderr.splitlines()
    return line.removeprefix(f"tally: {config}:")


def test_what_the_node_wants_is_enough(tmp_path: Path, node: CassandraNode) -> None:
    config = write_config(tmp_path, node)
    applied = run_tally("schema", "apply", "--config", str(config))
    assert applied.returncode == 0, applied.stderr
    assert run_tally("schema", "status", "--config", str(config)).returncode == 0


@pytest.mark.parametrize(("user", "password"), [(FIRST_USER, "guess"), ("nobody", "cassandra")])
def test_a_wrong_user_or_password(
    tmp_path: Path, node: CassandraNode, user: str, password: str
) -> None:
    line = refused(write_config(tmp_path, node, user=user, password=password))
    assert line.startswith("7:13: ")
    assert f"refuses user '{user}': check cassandra.username and cassandra.password_file" in line
    assert "guess" not in line


def test_no_password_where_one_is_wanted(tmp_path: Path, node: CassandraNode) -> None:
    line = refused(write_config(tmp_path, node, user=None))
    assert line.startswith("2:3: ")
    assert "asks for a password: set cassandra.username and cassandra.password_file" in line


def test_a_node_that_somebody_else_vouches_for(tmp_path: Path, node: CassandraNode) -> None:
    other = make_certificate(tmp_path / "other").certificate
    line = refused(write_config(tmp_path, node, ca_file=other))
    assert line.startswith("6:8: ")
    assert "no TLS connection, check cassandra.tls" in line
