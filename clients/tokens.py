"""The client's tokens, on a clock that the platform's answers correct.

A caller whose clock is wrong must not notice. When the platform refuses a token for its time, the
answer brings the platform's time, and later tokens follow it. Going forward is easy; going back has
to keep "add, then clear" in order, so it stops at the last token that may have been applied. Tokens
after that one were refused or belong to calls still under way, which have no order among them.
"""

import secrets
import threading

from counter.clock import Clock
from counter.tokens import Token


class ClientTokens:
    """Makes tokens whose generation times strictly increase, whatever the clock does in between.

    The string is a random prefix per client and a number, so no two clients agree on one.
    Safe to use from several threads: the synchronous client makes tokens in its callers'.
    """

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self.now_ns = clock.now_ns  # the local clock, as it is
        self._prefix = secrets.token_hex(6)
        self._number = 0
        self._last_ns = 0
        self._used_ns = 0
        self.offset_ns = 0  # what is added to the local clock

    def next(self) -> Token:
        [text], [time_ns] = self.next_many(1)
        return Token(text, time_ns)

    def next_many(self, count: int) -> tuple[list[str], range]:
        """The strings and times of so many tokens, at a fraction of what one by one would cost."""
        with self._lock:
            first = self._number + 1
            self._number += count
            start_ns = max(self.now_ns() + self.offset_ns, self._last_ns + 1)
            self._last_ns = start_ns + count - 1
        prefix = self._prefix
        texts = [f"{prefix}{number:x}" for number in range(first, first + count)]
        return texts, range(start_ns, start_ns + count)

    def used(self, token: Token) -> None:
        """The token may have been applied: no later one gets an earlier time."""
        self.used_through(token.generation_time_ns)

    def used_through(self, time_ns: int) -> None:
        """As `used`, for tokens up to this time."""
        with self._lock:
            self._used_ns = max(self._used_ns, time_ns)

    def correct(self, server_time_ns: int, *, sent_at_ns: int, received_at_ns: int) -> None:
        """Takes over the platform's time, which was read between the two local times.

        An offset that already fits is kept: a slow answer is no reason to move it.
        """
        with self._lock:
            lowest_ns = server_time_ns - received_at_ns
            highest_ns = server_time_ns - sent_at_ns
            self.offset_ns = min(max(self.offset_ns, lowest_ns), highest_ns)
            if self._last_ns > self.now_ns() + self.offset_ns:
                self._last_ns = self._used_ns
