"""What a node is started with: settings that say what was asked for, whatever is in the names."""

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from tally.dev.cassandra_files import NodeSettings, NodeTls, java_command, marker, write_files
from tally.dev.requirements import Java
from tally.dev.ring import ring_settings


def written(settings: NodeSettings) -> Any:
    write_files(settings)
    return YAML(typ="safe").load(settings.home / "conf" / "cassandra.yaml")


def test_a_node_is_what_its_settings_say(tmp_path: Path) -> None:
    home = tmp_path / 'with space, "quotes" and: colon'
    found = written(
        NodeSettings(
            home=home,
            address="127.0.0.2",
            seeds=("127.0.0.1", "127.0.0.2"),
            native_port=1,
            storage_port=2,
            cluster_name="one: two",
            token=-5,
        )
    )
    assert found["cluster_name"] == "one: two"
    assert found["listen_address"] == found["rpc_address"] == "127.0.0.2"
    assert (found["native_transport_port"], found["storage_port"]) == (1, 2)
    assert found["seed_provider"][0]["parameters"] == [{"seeds": "127.0.0.1,127.0.0.2"}]
    assert found["initial_token"] == -5
    assert found["commitlog_sync"] == "batch"
    assert found["authenticator"] == "AllowAllAuthenticator"
    assert found["client_encryption_options"] == {"enabled": False}
    directories = [*found["data_file_directories"], found["commitlog_directory"]]
    assert directories == [f"{home}/data", f"{home}/commitlog"]


def test_a_node_with_passwords_and_encryption(tmp_path: Path) -> None:
    tls = NodeTls(keystore=tmp_path / "keys", password="p: 1", certificate=tmp_path / "pem")
    found = written(NodeSettings(home=tmp_path, authenticator="PasswordAuthenticator", tls=tls))
    assert found["authenticator"] == "PasswordAuthenticator"
    assert found["authorizer"] == "CassandraAuthorizer"
    assert found["client_encryption_options"]["enabled"] is True
    assert found["client_encryption_options"]["optional"] is False
    assert found["client_encryption_options"]["keystore_password"] == "p: 1"
    assert "initial_token" not in found


def test_a_periodic_commit_log_has_a_period(tmp_path: Path) -> None:
    found = written(NodeSettings(home=tmp_path, commitlog_sync="periodic"))
    assert (found["commitlog_sync"], found["commitlog_sync_period"]) == ("periodic", "1000ms")
    assert "commitlog_sync_period" not in written(NodeSettings(home=tmp_path))


def test_the_data_centre_is_that_of_the_settings(tmp_path: Path) -> None:
    write_files(NodeSettings(home=tmp_path, data_center="east", rack="r7"))
    properties = (tmp_path / "conf" / "cassandra-rackdc.properties").read_text()
    assert properties.split() == ["dc=east", "rack=r7"]


def test_the_command_can_be_told_from_others(tmp_path: Path) -> None:
    java = Java(path="/opt/java", version=17)
    settings = NodeSettings(home=tmp_path, heap_mb=300, fsync=False)
    command = java_command(java, Path("/jars"), settings)
    assert command[0] == "/opt/java"
    assert marker(tmp_path) in command
    assert marker(tmp_path / "x") not in command
    assert {"-Xmx300m", "-Dcassandra.skip_sync=true", "-XX:TieredStopAtLevel=1"} <= set(command)


@pytest.mark.parametrize(("version", "needed"), [(11, False), (17, True), (21, True)])
def test_a_newer_java_must_be_asked_for_its_security_manager(version: int, needed: bool) -> None:
    settings = NodeSettings(home=Path("/home"), like_a_server=True)
    command = java_command(Java(path="java", version=version), Path("/jars"), settings)
    # Java 11 takes the word for the name of a class.
    assert ("-Djava.security.manager=allow" in command) == needed
    assert {"-Xms512m", "-XX:+UseG1GC"} <= set(command)
    assert "-XX:TieredStopAtLevel=1" not in command


def test_the_nodes_of_a_ring_share_it_evenly(tmp_path: Path) -> None:
    first = NodeSettings(home=tmp_path, native_port=5, storage_port=6)
    nodes = ring_settings(tmp_path, 3, first)
    assert [node.address for node in nodes] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
    assert {node.seeds for node in nodes} == {("127.0.0.1", "127.0.0.2", "127.0.0.3")}
    assert {(node.native_port, node.storage_port) for node in nodes} == {(5, 6)}
    assert len({node.home for node in nodes}) == 3
    tokens = [node.token for node in nodes if node.token is not None]
    assert tokens[0] == -(2**63)
    assert tokens[1] - tokens[0] == tokens[2] - tokens[1] == 2**64 // 3
