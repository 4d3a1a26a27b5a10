from hypothesis.internal.conjecture.engine import ConjectureRunner

ConjectureRunner.generate_mutations_from = lambda self, data: None
import os
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.machine import CounterMachine


def test_memory():
    CounterMachine.backend = os.environ.get("B", "memory")
    run_state_machine_as_test(
        CounterMachine,
        settings=settings(
            max_examples=int(os.environ.get("N", "50")),
            stateful_step_count=int(os.environ.get("S", "40")),
            deadline=None,
            derandomize="R" not in os.environ,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate] + ([Phase.shrink] if "SHRINK" in os.environ else []),
        ),
    )
    print(CounterMachine.happened)
    assert 0
