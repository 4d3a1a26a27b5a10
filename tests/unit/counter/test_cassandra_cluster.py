"""Connecting: a wrong setting is named, a cluster that is not there yet is waited for."""

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from counter.errors import SetupError, StoreUnavailable
from counter.storage.cassandra import CassandraSession, ClusterSettings, TlsSettings
from tests.cassandra_store import settings


async def refusal(of: ClusterSettings) -> str:
    with pytest.raises(SetupError) as refused:
        await CassandraSession.connect(of)
    assert "\n" not in refused.value.message
    return refused.value.message


async def test_an_unknown_host() -> None:
    message = await refusal(replace(settings(), contact_points=("no-such-host.invalid",)))
    assert message.startswith("cassandra.contact_points: 'no-such-host.invalid'")


async def test_another_data_center_than_the_cluster_has() -> None:
    message = await refusal(replace(settings(), data_center="atlantis"))
    assert "cassandra.data_center: there is no 'atlantis' in this cluster" in message
    assert settings().data_center in message


async def test_a_keyspace_without_schema() -> None:
    message = await refusal(replace(settings(), keyspace="nobody_made_this"))
    assert "cassandra.keyspace: nobody_made_this has no schema" in message
    assert "tally schema apply" in message


async def test_tls_files_that_cannot_be_read(tmp_path: Path) -> None:
    tls = TlsSettings(ca_file=tmp_path / "missing.pem")
    message = await refusal(replace(settings(), tls=tls))
    assert message.startswith("cassandra.tls.ca_file: cannot use")


async def test_nobody_there_is_not_a_wrong_setting() -> None:
    with socket.socket() as reserved:  # bound and not listening: connections are refused
        reserved.bind(("127.0.0.1", 0))
        nobody = replace(settings(), port=reserved.getsockname()[1])
        with pytest.raises(StoreUnavailable, match="does not answer"):
            await CassandraSession.connect(nobody)
