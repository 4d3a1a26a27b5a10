"""The public API on each store, held against a model; and the model, held against mistakes.

A failure prints its steps, made as few as possible, which takes some minutes.
`pytest tests/stateful --hypothesis-profile=thorough` tries other steps each time, and many more.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from random import SystemRandom
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.internal.conjecture.engine import ConjectureRunner
from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.machine import CounterMachine
from tests.stateful.planted import ALSO_IN_THE_SIMULATION, PLANTED, planted

THOROUGH = settings.get_current_profile_name() == "thorough"
SEEDS_THOROUGH = 100  # times as many
STEPS = 40
# Runs are short: the first examples of one have most that is new.
EXAMPLES = 6
# A planted mistake must be found by the first so many seeds.
FOUND_WITHIN = 12


class OnMemory(CounterMachine):
    backend = "memory"
    happened = Counter()


class OnSqlite(CounterMachine):
    backend = "sqlite"
    happened = Counter()


class OnCassandra(CounterMachine):
    backend = "cassandra"
    happened = Counter()


# What must have happened on any store, and what many examples must come across.
ALWAYS = {
    "an add",
    "TOKEN_EXPIRED",
    "STORE_UNAVAILABLE",
    "a restart",
    "a rollback",
    "saturated",
    "SOURCE_HISTORY",
    "SOURCE_ROLLUP",
    "SOURCE_ROLLUP_AND_TAIL",
    "SOURCE_SHARED_CACHE",
}
OFTEN = {
    "a duplicate",
    "a write landed",
    "a write landed after its fold",
    "several worlds",
    "BATCH_TOO_LARGE",
    "CHANGE_IMPOSSIBLE",
    "DATA_LOSS_NOT_ALLOWED",
    "DELTA_TOO_LARGE",
    "DELTA_ZERO",
    "FOLD_LAGGING",
    "FOLD_PENDING",
    "HISTORY_OFF",
    "NAMESPACES_INVALID",
    "NAMESPACE_UNKNOWN",
    "NAME_EMPTY",
    "NAME_TOO_LONG",
    "NOT_FRESH_ENOUGH",
    "SOURCE_LOCAL_CACHE",
    "TIME_MALFORMED",
    "TOKEN_FROM_FUTURE",
    "TOKEN_MALFORMED",
    "TOKEN_TOO_OLD",
    "VERSION_CONFLICT",
    "WRONG_REGION",
}


def run(machine: type[CounterMachine], seeds: Iterable[int], *phases: Phase) -> None:
    wanted = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        phases=phases,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    # Hypothesis makes five of six examples from the one before, and these mostly do the same again.
    # Here each of them is dear, so all of them are new.
    with patch.object(ConjectureRunner, "generate_mutations_from", lambda self, data: None):
        for number in seeds:
            run_state_machine_as_test(seed(number)(machine), settings=wanted)


@pytest.mark.timeout(0 if THOROUGH else 1_200)  # a failure is made small before it is shown
@pytest.mark.parametrize(
    ("machine", "seeds", "expected"),
    [
        (OnMemory, range(16), ALWAYS | OFTEN),
        (OnSqlite, range(4), ALWAYS),
        (OnCassandra, [4], ALWAYS),
    ],
    ids=["memory", "sqlite", "cassandra"],
)
def test_every_answer_is_explained(
    machine: type[CounterMachine], seeds: Sequence[int], expected: set[str]
) -> None:
    if THOROUGH:
        seeds = [SystemRandom().getrandbits(64) for _ in range(len(seeds) * SEEDS_THOROUGH)]
    run(machine, seeds, Phase.generate, Phase.shrink)
    assert expected <= {what for what, times in machine.happened.items() if times}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", [*PLANTED, *ALSO_IN_THE_SIMULATION])
def test_a_planted_mistake_is_found(bug: str) -> None:
    with planted(bug), pytest.raises(AssertionError):
        run(OnMemory, range(FOUND_WITHIN), Phase.generate)
