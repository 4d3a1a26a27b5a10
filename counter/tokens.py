"""Tokens: what makes an add or a clear idempotent.

A token is made once per logical call and sent unchanged with every retry. Its generation time is
the event's time, so it decides the window; its string tells apart the tokens of one instant.
"""

import itertools
import secrets
from typing import NamedTuple

from counter.clock import Clock

TOKEN_BYTES_MAX = 64


class Token(NamedTuple):  # made for every add, and several times cheaper than a frozen dataclass
    token: str
    generation_time_ns: int
    region: str = ""  # empty: the region of the server that gets it


class TokenFactory:
    """Makes tokens whose generation times strictly increase.

    "Add, then clear" by one caller is therefore in that order, whatever the clock does in between.
    The string is a random prefix per factory and a number, so no two factories agree on one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._prefix = secrets.token_hex(6)
        self._numbers = itertools.count()
        self._last_ns = 0
        # What to add to the local clock to get the platform's; corrected from its answers.
        self.offset_ns = 0

    def next(self) -> Token:
        self._last_ns = max(self._clock.now_ns() + self.offset_ns, self._last_ns + 1)
        return Token(
            token=f"{self._prefix}{next(self._numbers):x}", generation_time_ns=self._last_ns
        )
