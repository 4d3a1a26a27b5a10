import time
from collections.abc import Callable

from counter.clock import NS_PER_S


class MemoryMembership:
    def __init__(self, *, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._ends_ns: dict[str, int] = {}

    async def beat(self, member: str, *, ttl_s: int) -> None:
        self._ends_ns[member] = self._monotonic_ns() + ttl_s * NS_PER_S

    async def live(self) -> list[str]:
        now_ns = self._monotonic_ns()
        return sorted(member for member, ends_ns in self._ends_ns.items() if ends_ns > now_ns)

    async def leave(self, member: str) -> None:
        self._ends_ns.pop(member, None)
