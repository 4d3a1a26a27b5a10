from typing import Literal

from counter.settings import Platform
from counter.storage.cassandra.session import CassandraSession

Group = Literal["workers", "processes"]


class CassandraMembership:
    """Rows that expire by themselves."""

    def __init__(
        self, session: CassandraSession, platform: Platform, *, group: Group = "workers"
    ) -> None:
        self._session = session
        # The workers have the partition that bears the region's name alone, as they had it when
        # there was no other group. No region has a slash in its name.
        self._partition = platform.region if group == "workers" else f"{platform.region}/{group}"

    async def beat(self, member: str, report: bytes, *, ttl_s: int) -> None:
        await self._session.run("beat", (self._partition, member, report, ttl_s))

    async def live(self) -> list[tuple[str, bytes]]:
        rows = await self._session.run("live_members", (self._partition,))
        # A worker of the version before says nothing.
        return sorted((member, report or b"") for member, report in rows)

    async def leave(self, member: str) -> None:
        await self._session.run("leave", (self._partition, member))
