import sqlite3

from counter.namespaces import Snapshot, snapshot_from_json, snapshot_to_json
from counter.storage.sqlite.database import Database

_LATEST = "SELECT body FROM namespace_versions ORDER BY version DESC LIMIT 1"
_GET = "SELECT body FROM namespace_versions WHERE version = ?"
_PUT = (
    "INSERT INTO namespace_versions SELECT ?1, ?2 WHERE ?1 = "
    "(SELECT coalesce(max(version), 0) + 1 FROM namespace_versions)"
)


class SqliteNamespaceStore:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def latest(self) -> Snapshot | None:
        rows = self._database.read(_LATEST)
        return snapshot_from_json(rows[0][0]) if rows else None

    async def get(self, version: int) -> Snapshot | None:
        rows = self._database.read(_GET, (version,))
        return snapshot_from_json(rows[0][0]) if rows else None

    async def put(self, snapshot: Snapshot) -> bool:
        body = snapshot_to_json(snapshot)

        def job(connection: sqlite3.Connection) -> bool:
            return connection.execute(_PUT, (snapshot.version, body)).rowcount == 1

        return await self._database.write(job)
