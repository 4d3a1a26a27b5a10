"""Mistakes that somebody could make, put into the product while a simulation runs.

A checker is believed when it finds what is known to be wrong. Each of these breaks one step, in the
product's own code or in what it asks of its stores, and says which promise that breaks.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from tests.simulation.planted import adds, folds, namespaces, past, reads, stores, tokens
from tests.simulation.planted.mistake import Mistake
from tests.simulation.run import run
from tests.simulation.scenario import Scenario, scenario_of

PLANTED: dict[str, Mistake] = {
    **adds.MISTAKES,
    **folds.MISTAKES,
    **reads.MISTAKES,
    **past.MISTAKES,
    **tokens.MISTAKES,
    **namespaces.MISTAKES,
    **stores.MISTAKES,
}
# How many seeds each may take until it is found.
SEEDS_MAX = 60


@contextmanager
def planted(mistake: str | None) -> Iterator[None]:
    with ExitStack() as stack:
        for each in PLANTED[mistake].plant() if mistake is not None else ():
            stack.enter_context(each)
        yield


def focused(mistake: str, scenario: Scenario) -> Scenario:
    return PLANTED[mistake].focus(scenario)


class Found(NamedTuple):
    seeds: int  # how many it took
    rule: str
    what: str


def find(mistake: str, *, seeds_max: int = SEEDS_MAX) -> Found | None:
    """The first violation of a promise that the mistake is said to break."""
    breaks = PLANTED[mistake].breaks
    with planted(mistake):
        for seed in range(seeds_max):
            for rule, what in run(focused(mistake, scenario_of(seed))).violations:
                if rule in breaks:
                    return Found(seed + 1, rule, what)
    return None
