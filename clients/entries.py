"""Adds on their way to the stream: what waits, by namespace, and the batches it is sent as.

This is the path of every single add, so it is made of tuples and lists: an add costs less here than
an object with a name for each part would cost to build.
"""

import asyncio
import concurrent.futures
from collections.abc import Iterable, Sequence
from operator import index
from typing import NamedTuple

from clients.errors import InvalidRequest
from clients.listeners import Listener
from clients.retry import attempt_timeout_s
from clients.tokens import ClientTokens
from clients.translate import check_delta, check_name, token_message
from clients.values import AddResult
from clients.writes import Write
from counter.tokens import Token
from counter.v1 import counter_service_pb2 as pb

# Who is told: a task or a thread that waits, or whoever listens for many adds.
Caller = asyncio.Future[AddResult] | concurrent.futures.Future[AddResult]
Waiter = Caller | Listener

# counter, delta, token, generation_time_ns, region, when its deadline is (loop time), who is told,
# whether the client makes the token, and what its attempts did so far if one has failed. A token
# that is empty is made when it is about to be sent: waiting must not age it.
Entry = tuple[str, int, str, int, str, float, Waiter, bool, Write | None]

# Longer names are refused here with the server's reason: one of them must not make a batch of other
# callers' adds too large to be sent.
NAME_CHARACTERS_MAX = 1_024
TOKEN_CHARACTERS_MAX = 64
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


class Lane:
    """What waits to be sent in one namespace."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace
        self.waiting: list[Entry] = []
        self.abandoned = False  # some callers no longer wait: `drop_abandoned` is due

    def take(self, size: int) -> list[Entry]:
        waiting = self.waiting
        if len(waiting) <= size:
            self.waiting = []
            return waiting
        self.waiting = waiting[size:]
        del waiting[size:]
        return waiting

    def take_expired(self, now_s: float) -> list[Entry]:
        """Removes those whose deadline has passed."""
        expired = [entry for entry in self.waiting if entry[5] <= now_s]
        if expired:
            self.waiting = [entry for entry in self.waiting if entry[5] > now_s]
        return expired

    def drop_abandoned(self) -> int:
        """Removes those whose callers were cancelled; how many."""
        before = len(self.waiting)
        self.waiting = [entry for entry in self.waiting if not entry[6].done()]
        self.abandoned = False
        return before - len(self.waiting)


class SoonAdd(NamedTuple):
    """An add that nobody waits for, checked where it was made."""

    lane: Lane
    counter: str
    delta: int
    token: Token
    own_token: bool
    timeout_s: float


class Batch:
    """Adds of one namespace that are sent together. None of them has passed its deadline."""

    def __init__(
        self, lane: Lane, entries: list[Entry], *, now_s: float, tokens: ClientTokens
    ) -> None:
        self.lane = lane
        self.sent_at_s = now_s
        self.sent_at_ns = tokens.now_ns()
        self._entries = entries
        names, deltas, texts, times, regions, ends, waiters, owns, _ = zip(*entries, strict=True)
        self._names, self._deltas, self._regions, self._owns = names, deltas, regions, owns
        self.waiters = waiters
        self.texts: Sequence[str] = texts
        self.times: Sequence[int] = times
        if not any(texts):
            self.texts, self.times = tokens.next_many(len(entries))
        elif not all(texts):
            made = zip(*tokens.next_many(texts.count("")), strict=True)
            pairs = [
                (text, time_ns) if text else next(made)
                for text, time_ns in zip(texts, times, strict=True)
            ]
            self.texts, self.times = zip(*pairs, strict=True)
        # The shortest deadline of them rules the attempt: nobody's add may outlive its own.
        self.attempt_end_s = now_s + attempt_timeout_s(min(ends) - now_s)

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[Entry]:
        """With the tokens that were sent."""
        return [
            (*entry[:2], text, time_ns, *entry[4:])
            for entry, text, time_ns in zip(self._entries, self.texts, self.times, strict=True)
        ]

    def added(self) -> Iterable[tuple[Waiter, str, int, str]]:
        """Whoever is told, and the token."""
        return zip(self.waiters, self.texts, self.times, self._regions, strict=True)

    def request(self, sequence_number: int) -> pb.StreamAddCountRequest:
        request = pb.StreamAddCountRequest(
            sequence_number=sequence_number, namespace=self.lane.namespace
        )
        columns = request.columns
        columns.counter_name.extend(self._names)
        columns.delta.extend(self._deltas)
        columns.token.extend(self.texts)
        columns.generation_time_ns.extend(self.times)
        if any(self._regions):
            columns.region.extend(self._regions)
        return request

    def last_own_ns(self) -> int:
        """The latest time of a token that the client made; 0 if there is none."""
        if all(self._owns):
            return max(self.times)
        own = [time_ns for time_ns, own in zip(self.times, self._owns, strict=True) if own]
        return max(own, default=0)


def check_add(counter: str, delta: int) -> int:
    """The delta, if the wire can carry both; the server checks the rest of the rules."""
    check_counter(counter)
    return check_delta(index(delta))


def check_counter(counter: str) -> str:
    if len(counter) > NAME_CHARACTERS_MAX:
        raise InvalidRequest(
            f"the counter name {counter[:40]!r}... has {len(counter)} characters: shorten it, or "
            "hash it",
            reason="NAME_TOO_LONG",
            field="counter_name",
        )
    return check_name(counter)


def check_token(token: Token) -> Token:
    """The token, if a column can carry it."""
    text, time_ns, region = token
    if (
        text.isascii()
        and 0 < len(text) <= TOKEN_CHARACTERS_MAX
        and not region
        and 0 <= time_ns <= INT64_MAX
    ):
        return token
    token_message(token)
    if not 0 < len(token.token) <= NAME_CHARACTERS_MAX or len(token.region) > NAME_CHARACTERS_MAX:
        raise InvalidRequest(
            f"the token {token.token[:40]!r} is empty or too long to be sent: use 1 to 64 bytes",
            reason="TOKEN_MALFORMED",
            field="idempotency_token",
        )
    if not INT64_MIN <= token.generation_time_ns <= INT64_MAX:
        raise InvalidRequest(
            f"{token!r} cannot be sent: its time is not within 1970 to 2262",
            reason="TOKEN_MALFORMED",
            field="idempotency_token",
        )
    return token
