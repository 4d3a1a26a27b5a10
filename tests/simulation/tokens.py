"""Tokens as the SDK makes them, with times that rise; and others, whose times need not."""

from random import Random

from counter.clock import NS_PER_S
from tests.simulation.caller import Token
from tests.simulation.machines import MachineClock
from tests.simulation.scenario import Scenario


class Tokens:
    def __init__(self, name: str, scenario: Scenario, clock: MachineClock, chance: Random) -> None:
        self._name = name
        self._scenario = scenario
        self._clock = clock
        self._chance = chance
        self._made = 0
        self._last_ns = 0

    def next(self) -> Token:
        self._last_ns = max(self._clock.now_ns(), self._last_ns + 1)
        return self._token(self._last_ns)

    def aged(self, age_s: float) -> Token:
        return self._token(self._clock.now_ns() - int(age_s * NS_PER_S))

    def at_the_edge(self) -> Token:
        """Of a window that is about to be closed, or has just been."""
        scenario = self._scenario
        grace_s = (scenario.accept_limit_ms + scenario.max_clock_skew_ms) / 1_000
        window_s = scenario.window_ms / 1_000
        now_s = self._clock.now_ns() / NS_PER_S
        closed_at_s = now_s + self._chance.uniform(-0.2, 0.6) * window_s
        window = (closed_at_s - grace_s) // window_s  # the one after it is closed next
        time_s = (window - 1 + self._chance.random()) * window_s
        return self.aged(now_s - time_s)

    def _token(self, time_ns: int) -> Token:
        self._made += 1
        return f"{self._name}.{self._made}", time_ns
