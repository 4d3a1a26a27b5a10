"""A limit per second of one namespace, as one server keeps it: its share of the fleet's."""

from collections.abc import Callable
from dataclasses import dataclass

from counter.clock import NS_PER_MS
from counter.errors import Overloaded
from counter_server.token_bucket import TokenBucket


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """What a share depends on. Servers are taken for equal: each gets as much as any other."""

    servers_alive: Callable[[], int]
    monotonic_ns: Callable[[], int]

    def share(self, per_s: int) -> float:
        return per_s / max(1, self.servers_alive())


class RateLimit:
    def __init__(
        self, namespace: str, what: str, per_s: int, error: type[Overloaded], fleet: Fleet
    ) -> None:
        """`what` is limited: adds or reads."""
        self.per_s = per_s
        self._namespace = namespace
        self._what = what
        self._error = error
        self._fleet = fleet
        self._bucket = TokenBucket(now_ns=fleet.monotonic_ns(), rate_per_s=fleet.share(per_s))

    def refusal(self) -> Overloaded | None:
        """Why no call may pass now, if so."""
        share_per_s = self._fleet.share(self.per_s)
        wait_ns = self._bucket.wait_ns(self._fleet.monotonic_ns(), share_per_s)
        if not wait_ns:
            return None
        retry_ms = wait_ns // NS_PER_MS + 1
        servers = self._fleet.servers_alive()
        shared = ""
        if servers > 1:
            shared = f" in all, {round(share_per_s, 2):.12g} on each of {servers} servers"
        return self._error(
            f"namespace {self._namespace} takes {self.per_s} {self._what} per second{shared} "
            f"(limits.{self._what}_per_s), which are used up: send the same again after "
            f"{retry_ms / 1_000:.12g} s, send less, or ask its owner for a higher limit",
            retry_after_ms=retry_ms,
        )

    def take(self, cost: int) -> None:
        """For a call that may pass."""
        self._bucket.take(cost)
