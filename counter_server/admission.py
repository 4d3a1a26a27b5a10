"""Admission: may this event be written at all?

It checks what the request alone can tell (names, deltas, tokens), and what the server knows about
itself: whether its clock can be trusted and whether folds keep up. Whether the event's window is
still open is known for sure only after the write (see `commit`); a window that is known to be
closed spares the write.
"""

from collections.abc import Sequence
from random import Random
from typing import NoReturn

from counter.clock import NS_PER_S, Clock, skew_between, skew_ns_between
from counter.errors import (
    ClockSkewed,
    FoldLagging,
    InvalidRequest,
    TallyError,
    TokenFromFuture,
    WrongRegion,
)
from counter.events import Event
from counter.metrics import CLOCK_SKEW_SECONDS
from counter.namespaces import Namespace
from counter.settings import COUNTER_NAME_BYTES_MAX, Platform
from counter.storage.ports import Closed
from counter.tokens import TOKEN_BYTES_MAX, TokenFactory
from counter.windows import Layout

RawToken = tuple[str, int, str]  # token, generation time in ns, region
# Counter, delta, token, generation time in ns, region. Instead of the token: None if the server is
# to make it, or what is wrong with it.
RawAdd = tuple[str, int, str | TallyError | None, int, str]

# Of log_retention: folds this far behind slow writes down, and this far stop them (I8).
LAG_SLOWED_FRACTION = 4
_LAG_REFUSED_FRACTION = 2
# How long refused callers are asked to wait: this when slowing down begins, so much more when
# writes stop, and never more than the last.
_RETRY_MS_MIN, _RETRY_MS_GROWTH, _RETRY_MS_MAX = 500, 4_500, 30_000


class Admission:
    def __init__(
        self, platform: Platform, layout: Layout, clock: Clock, chance: Random | None = None
    ) -> None:
        """`chance` draws who is refused while writes are slowed down."""
        self._chance = chance or Random()
        self._platform = platform
        self._layout = layout
        self._clock = clock
        self._tokens = TokenFactory(clock)
        self._clock_problem: str | None = "the store's clock was not read yet"
        self._fold_lag_ns = 0
        # Of the calls: 0 up to a quarter of log_retention of lag, 1 at half of it, more beyond.
        self._refused_share = 0.0
        self.closed_through = layout.from_window - 1
        self._clock_skew = CLOCK_SKEW_SECONDS.at()

    # What the server knows about itself.

    def observe(self, closed: Closed) -> None:
        """Takes in a read of the ledger: how far windows are closed, and the store's clock."""
        self.closed_through = max(self.closed_through, closed.through)
        now_ns = self._clock.now_ns()
        skew_ns = skew_ns_between(now_ns, closed.store_time_ns, age_ns_max=closed.age_ns_max)
        self._clock_skew.set(skew_ns / NS_PER_S)
        limit_ns = self._platform.max_clock_skew_ns
        skew = skew_between(
            now_ns, closed.store_time_ns, age_ns_max=closed.age_ns_max, limit_ns=limit_ns
        )
        if skew is not None:
            self._clock_problem = (
                f"this server's clock is {skew}: set it right, then restart Tally if it runs on "
                "its embedded store"
            )
        elif self._layout.window_of(now_ns) <= self.closed_through:
            behind_ns = self._layout.end_ns(self.closed_through) - now_ns
            self._clock_problem = (
                f"windows are closed up to {behind_ns / NS_PER_S:.1f} s from now: the clock of "
                "this server is behind, or the one that closed them was ahead"
            )
        else:
            self._clock_problem = None

    def observe_fold_lag(self, lag_ns: int) -> None:
        self._fold_lag_ns = lag_ns
        slowed_ns = self._platform.log_retention_ns // LAG_SLOWED_FRACTION
        refused_ns = self._platform.log_retention_ns // _LAG_REFUSED_FRACTION
        self._refused_share = max(0.0, (lag_ns - slowed_ns) / (refused_ns - slowed_ns))

    def problem(self) -> TallyError | None:
        """Why no event can be accepted now, if so."""
        if self._clock_problem is not None:
            return self._clock_skewed(self._clock_problem)
        if self._refused_share >= 1:
            return self._fold_lagging("half of log_retention: no writes until they catch up")
        return None

    def refusal(self) -> TallyError | None:
        """Why this call is not accepted, if so.

        Between a quarter and a half of log_retention of fold lag a growing share of the calls is
        refused, so that folds can catch up while most callers notice nothing but retries.
        """
        problem = self.problem()
        if problem is None and self._refused_share and self._chance.random() < self._refused_share:
            return self._fold_lagging(
                "over a quarter of log_retention: some writes are refused until they catch up"
            )
        return problem

    def _clock_skewed(self, problem: str) -> ClockSkewed:
        return ClockSkewed(problem, retry_after_ms=1_000)

    def _fold_lagging(self, consequence: str) -> FoldLagging:
        retry_ms = _RETRY_MS_MIN + round(_RETRY_MS_GROWTH * self._refused_share)
        return FoldLagging(
            f"folds are {self._fold_lag_ns / NS_PER_S:.0f} s behind, {consequence}",
            retry_after_ms=min(retry_ms, _RETRY_MS_MAX),
        )

    # What the request alone can tell.

    def check_counter(self, counter: str, field: str = "counter_name") -> None:
        size = _utf8_bytes(counter)
        if size == 0:
            raise InvalidRequest("NAME_EMPTY", field, f"{field} is empty: name a counter")
        if size > COUNTER_NAME_BYTES_MAX:
            raise InvalidRequest(
                "NAME_TOO_LONG",
                field,
                f"{field} has {size} bytes: at most {COUNTER_NAME_BYTES_MAX} are allowed",
            )

    def check_counters(self, counters: Sequence[str], field: str) -> None:
        """The same for many; all of them are plainly right, or each is looked at."""
        if (
            all(counters)
            and all(map(str.isascii, counters))
            and max(map(len, counters)) <= COUNTER_NAME_BYTES_MAX
        ):
            return
        for position, counter in enumerate(counters):
            self.check_counter(counter, f"{field}[{position}]")

    def check_token(
        self, token: str, time_ns: int, region: str, now_ns: int, field: str = "idempotency_token"
    ) -> None:
        if not 0 < _utf8_bytes(token) <= TOKEN_BYTES_MAX:
            raise InvalidRequest(
                "TOKEN_MALFORMED",
                f"{field}.token",
                f"{field}.token must have 1 to {TOKEN_BYTES_MAX} bytes",
            )
        if region and region != self._platform.region:
            raise WrongRegion(
                f"the token belongs to region {region}, this is {self._platform.region}: "
                "send it to a server of its own region"
            )
        if time_ns > now_ns + self._platform.accept_limit_ns:
            if self._clock_problem is not None:  # then it may well be ours that is wrong
                raise self._clock_skewed(self._clock_problem)
            ahead_s = (time_ns - now_ns) / NS_PER_S
            raise TokenFromFuture(
                f"{field}.generation_time is {ahead_s:.1f} s ahead of this server: "
                "set your clock right",
                server_time_ns=now_ns,
            )

    def event(
        self,
        namespace: Namespace,
        counter: str,
        delta: int | None,
        token: RawToken | None,
        now_ns: int,
    ) -> Event:
        """The event for a request that passes all checks; `delta` None is a clear."""
        self.check_counter(counter)
        if delta is not None and not 0 < abs(delta) <= namespace.max_delta:
            self._refuse_delta(namespace, delta)
        if token is None:
            made = self._tokens.next()
            return Event(counter, made.generation_time_ns, made.token, delta)
        text, time_ns, region = token
        self.check_token(text, time_ns, region, now_ns)
        return Event(counter, time_ns, text, delta)

    def events(
        self, namespace: Namespace, adds: Sequence[RawAdd], now_ns: int
    ) -> tuple[list[Event], dict[int, TallyError]]:
        """The same for many: the events in order, and by position what is wrong with the others.

        What is plainly right is seen at one glance; everything else goes through the checks.
        """
        admitted: list[Event] = []
        errors: dict[int, TallyError] = {}
        max_delta, latest_ns = namespace.max_delta, now_ns + self._platform.accept_limit_ns
        for position, (counter, delta, text, time_ns, region) in enumerate(adds):
            if (
                isinstance(text, str)
                and 0 < len(counter) <= COUNTER_NAME_BYTES_MAX
                and counter.isascii()
                and 0 < len(text) <= TOKEN_BYTES_MAX
                and text.isascii()
                and time_ns <= latest_ns
                and not region
                and delta
                and -max_delta <= delta <= max_delta
            ):
                admitted.append(Event(counter, time_ns, text, delta))
                continue
            try:
                if isinstance(text, TallyError):
                    raise text
                token = None if text is None else (text, time_ns, region)
                admitted.append(self.event(namespace, counter, delta, token, now_ns))
            except TallyError as error:
                errors[position] = error
        return admitted, errors

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def latest_ns(self) -> int:
        """What callers may take for now: their clocks may be ahead by accept_limit."""
        return self._clock.now_ns() + self._platform.accept_limit_ns

    def _refuse_delta(self, namespace: Namespace, delta: int) -> NoReturn:
        if delta == 0:
            raise InvalidRequest("DELTA_ZERO", "delta", "delta is 0: add something, or read")
        raise InvalidRequest(
            "DELTA_TOO_LARGE",
            "delta",
            f"delta {delta} is beyond max_delta {namespace.max_delta} "
            f"of namespace {namespace.name}",
        )


def _utf8_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
