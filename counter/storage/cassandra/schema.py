"""The schema's versions: which migrations there are, which a keyspace has, and running the rest.

Safe to run from several places at once. Whoever applies holds a lock: a row that expires, taken by
insert-if-absent. The two tables that must be there before there can be a lock have ids that follow
from their names, so that even their creation by two at once makes one table.
"""

import asyncio
import re
import secrets
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from cassandra import DriverException
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.protocol import ConfigurationException

from counter.errors import SetupError, StoreUnavailable
from counter.storage.cassandra.cluster import open_cluster
from counter.storage.cassandra.settings import ClusterSettings

_MIGRATION = re.compile(r"^-- migration (\d+): (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"--.*$", re.MULTILINE)
_LOCK_TTL_S = 120  # longer than any migration takes; the longest wait for somebody who died
_LOCK_POLL_S = 0.5
_DDL_TIMEOUT_S = 60.0
_IDS = uuid.UUID("7b1f0f64-7b0e-5a0e-9a52-2f4b1f0d6c11")  # whatever: it only must not change
_BEFORE_THE_LOCK = {
    "schema_versions": "version int PRIMARY KEY, title text, applied_at timestamp",
    "schema_lock": "name text PRIMARY KEY, owner text",
}
_VERSIONS = "SELECT version FROM {}.schema_versions"


class Migration(NamedTuple):
    version: int
    title: str
    statements: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SchemaStatus:
    version: int  # 0: the keyspace has no schema of Tally
    latest: int  # what this Tally needs
    pending: tuple[Migration, ...]


def migrations() -> list[Migration]:
    """The migrations of schema.cql, in order."""
    text = files(__package__).joinpath("schema.cql").read_text()
    found = list(_MIGRATION.finditer(text))
    ends = [each.start() for each in found[1:]] + [len(text)]
    return [
        Migration(int(each[1]), each[2], _statements(text[each.end() : end]))
        for each, end in zip(found, ends, strict=True)
    ]


def _statements(text: str) -> tuple[str, ...]:
    pieces = _COMMENT.sub("", text).split(";")
    return tuple(each.strip() for each in pieces if each.strip())


def require_schema(cluster: Cluster, session: Session, settings: ClusterSettings) -> None:
    """Raises SetupError unless the keyspace has exactly the schema that this Tally works with."""
    status = _status(cluster, session, settings)
    if status.version > status.latest:
        raise SetupError(
            f"cassandra.keyspace: {settings.keyspace} has schema version {status.version}, this "
            f"Tally knows {status.latest}: run a newer Tally"
        )
    if status.pending:
        has = f"schema version {status.version}" if status.version else "no schema"
        raise SetupError(
            f"cassandra.keyspace: {settings.keyspace} has {has}, this Tally needs version "
            f"{status.latest}: run 'tally schema apply --config FILE'"
        )


async def status(settings: ClusterSettings) -> SchemaStatus:
    def work() -> SchemaStatus:
        cluster, session = open_cluster(settings)
        try:
            return _status(cluster, session, settings)
        finally:
            cluster.shutdown()

    return await asyncio.to_thread(work)


async def apply(
    settings: ClusterSettings, replication: Mapping[str, int], progress: Callable[[str], None]
) -> list[int]:
    """Creates the keyspace and runs what is pending; answers with the versions that it ran."""

    def work() -> list[int]:
        cluster, session = open_cluster(settings)
        try:
            return _apply(cluster, session, settings, replication, progress)
        except (DriverException, NoHostAvailable) as error:
            raise StoreUnavailable(f"{settings.where} failed: {error}; run it again") from error
        finally:
            cluster.shutdown()

    return await asyncio.to_thread(work)


def _status(cluster: Cluster, session: Session, settings: ClusterSettings) -> SchemaStatus:
    keyspace = cluster.metadata.keyspaces.get(settings.keyspace)
    version = 0
    if keyspace is not None and "schema_versions" in keyspace.tables:
        version = max(
            (row[0] for row in session.execute(_VERSIONS.format(settings.keyspace))), default=0
        )
    known = migrations()
    return SchemaStatus(
        version=version,
        latest=known[-1].version,
        pending=tuple(each for each in known if each.version > version),
    )


def _apply(
    cluster: Cluster,
    session: Session,
    settings: ClusterSettings,
    replication: Mapping[str, int],
    progress: Callable[[str], None],
) -> list[int]:
    _create_keyspace(cluster, session, settings, replication, progress)
    session.set_keyspace(settings.keyspace)
    for table, columns in _BEFORE_THE_LOCK.items():
        table_id = uuid.uuid5(_IDS, f"{settings.keyspace}.{table}")
        _define(session, f"CREATE TABLE IF NOT EXISTS {table} ({columns}) WITH id = {table_id}")
    owner = secrets.token_hex(8)
    _lock(session, owner, progress)
    try:
        applied = []
        for migration in _pending(session):
            progress(f"migration {migration.version}: {migration.title}")
            for statement in migration.statements:
                _define(session, statement)
            session.execute(
                "INSERT INTO schema_versions (version, title, applied_at) "
                "VALUES (%s, %s, to_timestamp(now()))",
                (migration.version, migration.title),
            )
            applied.append(migration.version)
        return applied
    finally:
        session.execute("DELETE FROM schema_lock WHERE name = 'schema' IF owner = %s", (owner,))


def _pending(session: Session) -> list[Migration]:
    has = {row[0] for row in session.execute("SELECT version FROM schema_versions")}
    return [each for each in migrations() if each.version not in has]


def _create_keyspace(
    cluster: Cluster,
    session: Session,
    settings: ClusterSettings,
    replication: Mapping[str, int],
    progress: Callable[[str], None],
) -> None:
    wanted = {name: str(copies) for name, copies in sorted(replication.items())}
    present = cluster.metadata.keyspaces.get(settings.keyspace)
    if present is not None:
        factors = getattr(present.replication_strategy, "dc_replication_factors", {})
        holds = {name: str(copies) for name, copies in sorted(factors.items())}
        if holds != wanted:
            progress(
                f"keyspace {settings.keyspace} has replication {holds}, the config says {wanted}: "
                "left as it is. To change it: ALTER KEYSPACE, then repair"
            )
        return
    if not all(re.fullmatch(r"[\w.-]+", name) for name in wanted):
        raise SetupError("cassandra.replication: not a name of a data centre")
    progress(f"keyspace {settings.keyspace}, replication {wanted}")
    options = ", ".join(f"'{name}': {copies}" for name, copies in wanted.items())
    try:
        _define(
            session,
            f"CREATE KEYSPACE IF NOT EXISTS {settings.keyspace} WITH replication = "
            f"{{'class': 'NetworkTopologyStrategy', {options}}}",
        )
    except ConfigurationException as error:
        raise SetupError(f"cassandra.replication: {error}") from error


def _lock(session: Session, owner: str, progress: Callable[[str], None]) -> None:
    """Waits for its turn. A lock whose owner died is free when its row expires."""
    told = False
    while True:
        taken = session.execute(
            "INSERT INTO schema_lock (name, owner) VALUES ('schema', %s) "
            f"IF NOT EXISTS USING TTL {_LOCK_TTL_S}",
            (owner,),
        ).one()
        if taken[0]:
            return
        if not told:
            progress("somebody else is applying the schema: waiting")
            told = True
        time.sleep(_LOCK_POLL_S)


def _define(session: Session, statement: str) -> None:
    session.execute(statement, timeout=_DDL_TIMEOUT_S)
