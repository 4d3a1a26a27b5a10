from counter.namespaces import Snapshot, snapshot_from_json, snapshot_to_json
from counter.storage.cassandra.session import CassandraSession


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
        latest = await self.latest()
        if snapshot.version != (0 if latest is None else latest.version) + 1:
            return False
        body = snapshot_to_json(snapshot)
        present = await self._session.agree(
            "put_namespaces", (self._platform_name, snapshot.version, body)
        )
        # What is there may be our own, from an attempt that seemed to fail.
        return present is None or present[-1] == body
