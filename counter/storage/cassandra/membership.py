from counter.settings import Platform
from counter.storage.cassandra.session import CassandraSession


class CassandraMembership:
    """Rows that expire by themselves."""

    def __init__(self, session: CassandraSession, platform: Platform) -> None:
        self._session = session
        self._region = platform.region

    async def beat(self, member: str, report: bytes, *, ttl_s: int) -> None:
        await self._session.run("beat", (self._region, member, report, ttl_s))

    async def live(self) -> list[tuple[str, bytes]]:
        rows = await self._session.run("live_members", (self._region,))
        # A worker of the version before says nothing.
        return sorted((member, report or b"") for member, report in rows)

    async def leave(self, member: str) -> None:
        await self._session.run("leave", (self._region, member))
