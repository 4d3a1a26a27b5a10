"""Which shards this worker folds: they are spread over the live workers.

This is for efficiency alone. Two workers on one shard write the same rollups, because fold records
decide; a shard that nobody takes for some seconds is folded when somebody does.
"""

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from counter.metrics import SHARDS_OWNED, WORKERS_ALIVE
from counter.storage.ports import Membership
from rollup_worker.report import Report, decode, encode

# A worker that died is forgotten after this long; one that stops says so itself.
MEMBER_TTL_S = 10
BEAT_EVERY_S = 2.0


def owner_of(shard: int, members: Sequence[str]) -> str:
    """Rendezvous hashing: when a member comes or goes, only its own shards change hands."""
    return max(
        members, key=lambda member: (xxh3_64_intdigest(f"{shard} {member}".encode()), member)
    )


class Ownership:
    def __init__(self, membership: Membership, member: str, *, shards: int) -> None:
        self._membership = membership
        self.member = member
        self._shards = shards
        # Those to fold, as of the last beat.
        self.shards: list[int] = []
        self._shards_owned = SHARDS_OWNED.at()
        self._workers_alive = WORKERS_ALIVE.at()

    async def beat(self, report: Report) -> None:
        """Says that this worker is alive and how it is; finds out which shards are its own."""
        await self._membership.beat(self.member, encode(report), ttl_s=MEMBER_TTL_S)
        members = sorted({*(member for member, _ in await self._membership.live()), self.member})
        self.shards = [
            shard for shard in range(self._shards) if owner_of(shard, members) == self.member
        ]
        self._shards_owned.set(len(self.shards))
        self._workers_alive.set(len(members))

    async def fleet(self, report: Report) -> dict[str, Report | None]:
        """The live workers, this one with `report`, the others with what they last said; None:
        it cannot be read."""
        live = await self._membership.live()
        return dict(
            sorted(
                ({member: decode(said) for member, said in live} | {self.member: report}).items()
            )
        )

    async def leave(self) -> None:
        await self._membership.leave(self.member)
