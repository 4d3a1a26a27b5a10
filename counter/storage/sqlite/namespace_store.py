import sqlite3

from counter.namespaces import (
    Snapshot,
    VersionInfo,
    snapshot_from_json,
    snapshot_to_json,
    version_info_from_json,
    version_info_to_json,
)
from counter.storage.ports import FOREVER
from counter.storage.sqlite.database import Database

_LATEST = "SELECT body FROM namespace_versions ORDER BY version DESC LIMIT 1"
_GET = "SELECT body FROM namespace_versions WHERE version = ?"
_LIST = (
    "SELECT version, about FROM namespace_versions WHERE version < ? ORDER BY version DESC LIMIT ?"
)
_PUT = (
    "INSERT INTO namespace_versions (version, about, body) SELECT ?1, ?2, ?3 WHERE ?1 = "
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
        row = (snapshot.version, version_info_to_json(snapshot.info), snapshot_to_json(snapshot))

        def job(connection: sqlite3.Connection) -> bool:
            return connection.execute(_PUT, row).rowcount == 1

        return await self._database.write(job)

    async def versions(self, *, before: int | None, limit: int) -> list[VersionInfo]:
        rows = self._database.read(_LIST, (FOREVER if before is None else before, limit))
        return [
            self._info_of_body(version) if about is None else version_info_from_json(about)
            for version, about in rows
        ]

    def _info_of_body(self, version: int) -> VersionInfo:
        """Of a version that was written before versions had `about`."""
        [(body,)] = self._database.read(_GET, (version,))
        return snapshot_from_json(body).info
