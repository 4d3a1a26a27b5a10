"""Events: one add or one clear of one counter."""

from msgspec import Struct


class Event(Struct, frozen=True, array_like=True, gc=False):
    """Stored as [counter, time_ns, token, delta, note].

    (counter, time_ns, token) is the event's identity: two events that agree on it are one, and
    always meet in one partition, because the time decides the window and the counter the shard.
    """

    counter: str
    time_ns: int  # the token's generation time
    token: str
    delta: int | None  # None: a clear
    # Author and reason of an adjustment: an add that corrects a count which an audit found wrong.
    note: tuple[str, str] | None = None
