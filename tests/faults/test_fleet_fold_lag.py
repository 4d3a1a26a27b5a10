"""F17: workers that stand still. Servers slow their callers down, then refuse, before anything is
lost; everything goes on when the workers do."""

import asyncio
import time
from pathlib import Path

import grpc
import pytest

from counter.v1 import rollup_service_pb2 as rollups_pb
from tests.calls import Calls, Refusal, eventually, refusal_of, token
from tests.fleet import Fleet

LOG_RETENTION_S = 80
LAG_BEFORE_S_MAX = 10
COUNTERS = [f"counter-{number}" for number in range(12)]


@pytest.mark.long
@pytest.mark.timeout(600)
async def test_writes_are_refused_before_events_could_be_forgotten_unfolded(
    tmp_path: Path,
) -> None:
    fleet = Fleet.on_one_node(tmp_path, log_retention=f"{LOG_RETENTION_S}s")
    try:
        await fleet.apply_schema()
        server, worker, control_plane = map(fleet.add, ("server", "worker", "control-plane"))
        await fleet.start(server, worker, control_plane)
        acknowledged = dict.fromkeys(COUNTERS, 0)
        with Calls(server.address) as calls:
            assert add_to_all(calls, acknowledged) == []
            worker.pause()
            paused_s = time.monotonic()
            refused: dict[int, int] = {}  # by seconds since the pause
            while refused.get(lag_s(paused_s) - 1, 0) < len(COUNTERS):
                at = lag_s(paused_s)
                assert at < LOG_RETENTION_S, "everything should be refused by now"
                for said in add_to_all(calls, acknowledged):
                    assert said.code is grpc.StatusCode.RESOURCE_EXHAUSTED
                    assert said.reason == "FOLD_LAGGING"
                    assert said.retry_after_s is not None
                    assert said.retry_after_s > 0
                    refused[at] = refused.get(at, 0) + 1
                await asyncio.sleep(paused_s + at + 1 - time.monotonic())
            # Not before a quarter of log_retention; some at first, all in the end. Folds were
            # some seconds behind already when the worker was paused.
            assert min(refused) >= LOG_RETENTION_S / 4 - LAG_BEFORE_S_MAX
            assert min(refused.values()) < len(COUNTERS)
            assert calls.get("plays", COUNTERS[0]).count <= acknowledged[COUNTERS[0]]
            worker.resume()
            eventually(lambda: add_to_all(calls, acknowledged), lambda said: said == [])
            for counter in COUNTERS:
                assert calls.accurate("plays", counter) == acknowledged[counter]
                last = token()
                calls.add("plays", counter, 1, last)
                acknowledged[counter] += 1
                eventually(
                    lambda counter=counter: calls.get("plays", counter).count,
                    lambda count, counter=counter: count == acknowledged[counter],
                )
        with Calls(worker.address) as calls:
            for counter in COUNTERS:
                request = rollups_pb.AuditCounterRequest(namespace="plays", counter_name=counter)
                audit = calls.rollups.AuditCounter(request, timeout=10)
                assert audit.result == rollups_pb.AUDIT_RESULT_EQUAL
                assert audit.actual_count == acknowledged[counter]
    finally:
        worker.resume()
        fleet.end()


def lag_s(paused_s: float) -> int:
    return int(time.monotonic() - paused_s)


def add_to_all(calls: Calls, acknowledged: dict[str, int]) -> list[Refusal]:
    """One add to each counter; answers with the refusals."""
    refusals = []
    for counter in COUNTERS:
        try:
            calls.add("plays", counter, 1, token())
        except grpc.RpcError as error:
            refusals.append(refusal_of(error))
        else:
            acknowledged[counter] += 1
    return refusals
