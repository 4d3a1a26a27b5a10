from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.stateful.machine import CounterMachine


def test_memory():
    run_state_machine_as_test(CounterMachine, settings=settings(max_examples=int(__import__('os').environ.get('N','50')), stateful_step_count=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)))
