"""Which shards this worker folds: they are spread over the live workers.

This is for efficiency alone. Two workers on one shard write the same rollups, because fold records
decide; a shard that nobody takes for some seconds is folded when somebody does.
"""

import asyncio
from collections.abc import Sequence

from xxhash import xxh3_64_intdigest

from counter.metrics import SHARDS_OWNED, WORKERS_ALIVE
from counter.storage.ports import Membership

# A worker that died is forgotten after this long; one that stops says so itself.
MEMBER_TTL_S = 10
_BEAT_EVERY_S = 2.0


def owner_of(shard: int, members: Sequence[str]) -> str:
    """Rendezvous hashing: when a member comes or goes, only its own shards change hands."""
    return max(
        members, key=lambda member: (xxh3_64_intdigest(f"{shard} {member}".encode()), member)
    )


class Ownership:
    def __init__(self, membership: Membership, member: str, *, shards: int) -> None:
        self._membership = membership
        self._member = member
        self._shards = shards
        self._next_beat_s = 0.0
        self._owned: list[int] = []
        self._shards_owned = SHARDS_OWNED.at()
        self._workers_alive = WORKERS_ALIVE.at()

    async def shards(self) -> list[int]:
        """Those to fold now. Beats when it is time."""
        time = asyncio.get_running_loop().time
        if time() >= self._next_beat_s:
            await self._membership.beat(self._member, ttl_s=MEMBER_TTL_S)
            members = sorted({*await self._membership.live(), self._member})
            self._owned = [
                shard for shard in range(self._shards) if owner_of(shard, members) == self._member
            ]
            self._next_beat_s = time() + _BEAT_EVERY_S
            self._shards_owned.set(len(self._owned))
            self._workers_alive.set(len(members))
        return self._owned

    async def leave(self) -> None:
        await self._membership.leave(self._member)
