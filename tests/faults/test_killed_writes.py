"""F1: the process is killed (kill -9) at each step of a write.

A caller that got no answer sends the same token again: it is told OK, and the add counts once.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from tally.verify.history import Outcome
from tests.calls import NS_PER_S, Calls, fresh_counter, token
from tests.faults.deeds import kill_at
from tests.faults.injected import Deed, Faults
from tests.faults.steps import WRITE_STEPS, Step
from tests.load import under_load
from tests.processes import TallyProcess

# So that a token is good for longer than a restart takes.
ACCEPT_LIMIT_S = 60.0
PATIENT = ("--window", "200ms", "--accept-limit", "60s", "--max-clock-skew", "500ms")
CONVERGENCE_S = 0.2 + ACCEPT_LIMIT_S + 0.5


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


@pytest.mark.long
@pytest.mark.timeout(1_200)
async def test_all_that_were_cut_off_send_again_and_are_told_ok(
    patient: TallyProcess, faults: Faults
) -> None:
    async with under_load(
        patient.address, late_s=(ACCEPT_LIMIT_S, ACCEPT_LIMIT_S + 5), pause_s=0.2
    ) as load:
        for step in WRITE_STEPS:
            await kill_at(step, 1, load, patient, faults)
            cut_off = load.unanswered()
            assert cut_off
            await load.send_again(cut_off)
            for event in cut_off:
                is_late = event.time_ns < time.time_ns() - ACCEPT_LIMIT_S * NS_PER_S
                assert load.history.outcomes[event] is Outcome.OK or is_late, event
        await load.finish(converges_s=CONVERGENCE_S, worker=patient.address)


def refusal_code(calls: Calls, counter: str, add: pb.IdempotencyToken) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as raised:
        calls.add("quotas", counter, 1, add)
    code: grpc.StatusCode = raised.value.code()
    return code
