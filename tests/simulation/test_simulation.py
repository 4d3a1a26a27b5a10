"""A bounded number of seeds with every test run, and whether the simulation can be believed."""

from collections import Counter
from functools import cache

import pytest

from tests.simulation.fault_kinds import KINDS
from tests.simulation.planted import PLANTED, SEEDS_MAX, find, focused, planted
from tests.simulation.run import Result, run
from tests.simulation.scenario import scenario_from_json, scenario_of
from tests.simulation.shrink import rules_of, shrink

SEEDS = range(60)
# In these a server whose clock is far behind is asked for a rolling window.
SEEDS_WITH_SLOW_CLOCKS = (1714, 1876, 6046, 6676)
# In this one a segment that an agreed record names expires before its worker is back.
SEED_WITH_A_LONG_OUTAGE = 9290

# What the simulation found in the product, each with a seed that shows it when it is put back.
REGRESSIONS = {"idle at midnight": 14, "version 0 from the store": 19}

# A test that never saw its fault has tested nothing. Over all seeds, each of these takes place.
MUST_OCCUR = (
    # The store and the network.
    "writes timed out after they were applied",
    "writes landed after their answer",
    "segments held up",
    "segments landed after their fold",
    "reads repaired",
    "agreements completed for others",
    "answers of agreements lost",
    "own proposals met again",
    "ballots lost",
    "statements slowed down",
    "replies lost",
    "older values in the cache",
    "caches flushed",
    "machines paused",
    # What clients did, and were told.
    "calls retried",
    "calls cancelled",
    "duplicates acknowledged",
    "adds with their counts",
    "adjustments folded",
    "streams",
    "streams ended early",
    "streams timed out",
    "batches with both outcomes",
    "writes: fail TOKEN_EXPIRED",
    "writes: fail TOKEN_FROM_FUTURE",
    "writes: fail OVERLOADED",
    "writes: fail FOLD_LAGGING",
    "writes: unknown CLOCK_SKEWED",
    "writes: unknown FOLD_PENDING",
    "writes taken over a quarter of log_retention behind",
    "writes refused over a quarter of log_retention behind",
    "writes refused over half of log_retention behind",
    "reads: SOURCE_LOCAL_CACHE",
    "reads: SOURCE_SHARED_CACHE",
    "reads: SOURCE_ROLLUP",
    "reads: SOURCE_ROLLUP_AND_TAIL",
    "rolling windows looked at",
    "counts of the past: from the history",
    "counts of the past: from the rollup",
    "points of histories",
    "pages of lists",
    "rankings",
    "rankings by growth",
    "rows of histories",
    "states of rolling windows",
    "logged: fold_lag_alarm",
    # What was done to them.
    "namespaces changed: delete",
    *(f"fault: {kind}" for kind in KINDS),
)


@cache
def result_of(seed: int) -> Result:
    return run(scenario_of(seed))


@pytest.mark.parametrize("seed", [*SEEDS, *SEEDS_WITH_SLOW_CLOCKS, SEED_WITH_A_LONG_OUTAGE])
def test_every_promise_holds(seed: int) -> None:
    result = result_of(seed)
    assert not result.violations, f"make sim SEED={seed}: {result.violations[0]}"


def test_the_faults_took_place() -> None:
    counted: Counter[str] = Counter()
    for seed in SEEDS:
        counted += result_of(seed).counted
    assert [each for each in MUST_OCCUR if not counted[each]] == []
    # Between any two steps of a server or of a fold: so many kinds, at so many places.
    ambushes = [each.removeprefix("ambushes: ") for each in counted if "ambushes" in each]
    assert {each.split()[0] for each in ambushes} == {"crash", "pause", "step", "namespaces"}
    assert len({each.split()[-1] for each in ambushes}) > 8


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


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_breaks_the_promise_that_it_is_said_to_break(mistake: str) -> None:
    """`make sim SIM=--planted` says after how many seeds."""
    promises = " or ".join(PLANTED[mistake].breaks)
    assert find(mistake) is not None, f"{promises} was not seen to break in {SEEDS_MAX} seeds"


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
