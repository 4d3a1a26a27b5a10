import time
from collections.abc import Callable

from counter.clock import NS_PER_S


class MemoryMembership:
    def __init__(self, *, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._monotonic_ns = monotonic_ns
        self._beats: dict[str, tuple[int, bytes]] = {}  # the end of each, and its report

    async def beat(self, member: str, report: bytes, *, ttl_s: int) -> None:
        self._beats[member] = (self._monotonic_ns() + ttl_s * NS_PER_S, report)

    async def live(self) -> list[tuple[str, bytes]]:
        now_ns = self._monotonic_ns()
        self._beats = {member: beat for member, beat in self._beats.items() if beat[0] > now_ns}
        return sorted((member, report) for member, (_, report) in self._beats.items())

    async def leave(self, member: str) -> None:
        self._beats.pop(member, None)
