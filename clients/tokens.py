"""The client's tokens, on a clock that the platform's answers correct.

A caller whose clock is wrong must not notice. When the platform refuses a token for its time, the
answer brings the platform's time, and later tokens follow it. Going forward is easy; going back has
to keep "add, then clear" in order, so it stops at the last token that may have been applied. Tokens
after that one were refused or belong to calls still under way, which have no order among them.
"""

import threading

from counter.clock import Clock
from counter.tokens import Token, TokenFactory


class ClientTokens:
    """Safe to use from several threads: the synchronous client makes tokens in its callers'."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._clock = clock
        self._factory = TokenFactory(clock)
        self._last_ns = 0
        self._used_ns = 0

    @property
    def offset_ns(self) -> int:
        """What is added to the local clock."""
        return self._factory.offset_ns

    def now_ns(self) -> int:
        """The local clock, as it is."""
        return self._clock.now_ns()

    def next(self) -> Token:
        with self._lock:
            made = self._factory.next()
            self._last_ns = max(made.generation_time_ns, self._last_ns + 1)
            return Token(token=made.token, generation_time_ns=self._last_ns)

    def used(self, token: Token) -> None:
        """The token may have been applied: no later one gets an earlier time."""
        with self._lock:
            self._used_ns = max(self._used_ns, token.generation_time_ns)

    def correct(self, server_time_ns: int, *, sent_at_ns: int, received_at_ns: int) -> None:
        """Takes over the platform's time, which was read between the two local times.

        An offset that already fits is kept: a slow answer is no reason to move it.
        """
        with self._lock:
            lowest_ns = server_time_ns - received_at_ns
            highest_ns = server_time_ns - sent_at_ns
            offset_ns = min(max(self._factory.offset_ns, lowest_ns), highest_ns)
            if self._last_ns > self._clock.now_ns() + offset_ns:
                # A factory never goes back, so a new one takes its place.
                self._factory = TokenFactory(self._clock)
                self._last_ns = self._used_ns
            self._factory.offset_ns = offset_ns
