"""A bounded number of seeds with every test run, and whether the simulation can be believed."""

from collections import Counter
from functools import cache

import pytest

from tests.simulation.planted import PLANTED, focused, planted
from tests.simulation.run import Result, run
from tests.simulation.scenario import scenario_from_json, scenario_of
from tests.simulation.shrink import rules_of, shrink

SEEDS = range(60)

# What the simulation found in the product, each with a seed that shows it when it is put back.
REGRESSIONS = {"idle at midnight": 0, "version 0 from the store": 6}

# How many seeds each planted mistake may take until it is found.
SEEDS_MAX = 60

# A test that never saw its fault has tested nothing. Over all seeds, each of these takes place.
MUST_OCCUR = (
    "writes timed out after they were applied",
    "writes landed after their answer",
    "reads repaired",
    "agreements completed for others",
    "ballots lost",
    "calls retried",
    "calls cancelled",
    "replies lost",
    "duplicates acknowledged",
    "machines paused",
    "statements slowed down",
    "fault: crash",
    "fault: stop",
    "fault: cut",
    "fault: cut off",
    "fault: replica down",
    "fault: storm",
    "fault: step",
    "fault: drift",
    "fault: store step",
    "fault: namespaces",
    "caches flushed",
    "writes: fail TOKEN_EXPIRED",
    "writes: fail TOKEN_FROM_FUTURE",
    "writes: fail OVERLOADED",
    "writes: unknown CLOCK_SKEWED",
    "writes: unknown FOLD_PENDING",
    "reads: SOURCE_LOCAL_CACHE",
    "reads: SOURCE_SHARED_CACHE",
    "reads: SOURCE_ROLLUP",
    "reads: SOURCE_ROLLUP_AND_TAIL",
)


@cache
def result_of(seed: int) -> Result:
    return run(scenario_of(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_promise_holds(seed: int) -> None:
    result = result_of(seed)
    assert not result.violations, f"make sim SEED={seed}: {result.violations[0]}"


def test_the_faults_took_place() -> None:
    counted: Counter[str] = Counter()
    for seed in SEEDS:
        counted += result_of(seed).counted
    assert [each for each in MUST_OCCUR if not counted[each]] == []


def test_runs_get_somewhere() -> None:
    acknowledged = sum(result_of(seed).counted["writes: ok"] for seed in SEEDS)
    assert acknowledged > 10 * len(SEEDS)


@pytest.mark.parametrize("seed", [3, 8])
def test_a_seed_makes_the_same_run_each_time(seed: int) -> None:
    again = run(scenario_of(seed))
    assert again.trace_hash == result_of(seed).trace_hash
    assert again.history == result_of(seed).history


def test_other_seeds_make_other_runs() -> None:
    assert len({result_of(seed).trace_hash for seed in SEEDS}) == len(SEEDS)


def test_a_scenario_can_be_written_down() -> None:
    scenario = scenario_of(7)
    assert scenario_from_json(scenario.to_json()) == scenario


@pytest.mark.parametrize("bug", REGRESSIONS)
def test_what_was_found_stays_fixed(bug: str) -> None:
    scenario = focused(bug, scenario_of(REGRESSIONS[bug]))
    assert not run(scenario).violations
    with planted(bug):
        assert run(scenario).violations


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_mistake_is_found(bug: str) -> None:
    with planted(bug):
        for seed in range(SEEDS_MAX):
            if run(focused(bug, scenario_of(seed))).violations:
                return
    pytest.fail(f"{bug} was not found")


def test_a_failing_scenario_is_made_smaller() -> None:
    with planted("token deduped per segment"):
        scenario = next(
            scenario_of(seed) for seed in range(20) if run(scenario_of(seed)).violations
        )
        smaller, runs = shrink(scenario, run, runs_max=40)
        assert rules_of(run(smaller)) & rules_of(run(scenario))
    assert runs <= 41
    assert (smaller.steps, smaller.clients, len(smaller.faults)) < (
        scenario.steps,
        scenario.clients,
        len(scenario.faults),
    )
