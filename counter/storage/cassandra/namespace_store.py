from counter.namespaces import (
    Snapshot,
    VersionInfo,
    snapshot_from_json,
    snapshot_to_json,
    version_info_from_json,
    version_info_to_json,
)
from counter.storage.cassandra.session import CassandraSession
from counter.storage.ports import FOREVER


class CassandraNamespaceStore:
    """A platform has one line of versions, whatever its regions."""

    def __init__(self, session: CassandraSession, *, platform_name: str = "tally") -> None:
        self._session = session
        self._platform_name = platform_name

    async def latest(self) -> Snapshot | None:
        rows = await self._session.run("latest_namespaces", (self._platform_name,))
        return snapshot_from_json(rows[0][0]) if rows else None

    async def get(self, version: int) -> Snapshot | None:
        rows = await self._session.run("get_namespaces", (self._platform_name, version))
        return snapshot_from_json(rows[0][0]) if rows else None

    async def put(self, snapshot: Snapshot) -> bool:
        newest = await self._list(FOREVER, limit=1)
        if snapshot.version != (newest[0][0] if newest else 0) + 1:
            return False
        body = snapshot_to_json(snapshot)
        about = version_info_to_json(snapshot.info)
        present = await self._session.agree(
            "put_namespaces", (self._platform_name, snapshot.version, about, body)
        )
        # What is there may be our own, from an attempt that seemed to fail. Of the columns, which
        # are sorted by name after those of the key, the body is the last.
        return present is None or present[-1] == body

    async def versions(self, *, before: int | None, limit: int) -> list[VersionInfo]:
        rows = await self._list(FOREVER if before is None else before, limit=limit)
        return [
            await self._info_of_body(version) if about is None else version_info_from_json(about)
            for version, about in rows
        ]

    async def _list(self, before: int, *, limit: int) -> list[tuple[int, bytes | None]]:
        rows = await self._session.run("list_namespaces", (self._platform_name, before, limit))
        return [(version, about) for version, about in rows]

    async def _info_of_body(self, version: int) -> VersionInfo:
        """Of a version that a Tally wrote which does not know `about`."""
        snapshot = await self.get(version)
        assert snapshot is not None, "a version is never deleted"
        return snapshot.info
