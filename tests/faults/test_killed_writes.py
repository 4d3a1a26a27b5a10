"""F1: the process is killed (kill -9) at each step of a write.

A caller that got no answer sends the same token again: it is told OK, and the add counts once.
"""

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from tests.calls import Calls, fresh_counter, token
from tests.faults.injected import Deed, Faults
from tests.faults.steps import WRITE_STEPS, Step
from tests.processes import TallyProcess

# So that a token is good for longer than a restart takes.
PATIENT = ("--window", "200ms", "--accept-limit", "60s", "--max-clock-skew", "500ms")


@pytest.fixture
def patient(tmp_path: Path, faults: Faults) -> Iterator[TallyProcess]:
    process = TallyProcess(tmp_path, *PATIENT, faults=faults)
    try:
        yield process.start()
    finally:
        process.end()


def test_a_retry_after_a_kill_at_each_step_counts_once(
    patient: TallyProcess, faults: Faults
) -> None:
    for number, step in enumerate(WRITE_STEPS, 1):
        counter, add = fresh_counter(), token()
        with Calls(patient.address) as calls:
            faults.kill_at(step)
            unanswered = refusal_code(calls, counter, add)
            assert unanswered is grpc.StatusCode.UNAVAILABLE
            patient.wait_killed()
            assert faults.hits()[number - 1 :] == [(step, Deed.KILL, patient.process.pid)]
            patient.start()
            written = step is not Step.BEFORE_WRITE
            assert calls.accurate("quotas", counter) == written
            calls.add("quotas", counter, 1, add)
            calls.add("quotas", counter, 1, add)
            assert calls.accurate("quotas", counter) == 1


def refusal_code(calls: Calls, counter: str, add: pb.IdempotencyToken) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as raised:
        calls.add("quotas", counter, 1, add)
    code: grpc.StatusCode = raised.value.code()
    return code
