"""F10: a segment that reaches the log after its window was folded: a write held up on its way.

It is not counted, its token is NOT_APPLIED for ever, a retry of it is told so, and the audit says
that it is there and came too late.
"""

import asyncio
import time

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import rollup_service_pb2 as rollups_pb
from tests.calls import Calls, Refusal, eventually, fresh_counter, refusal, token
from tests.faults.proxy import Way
from tests.faults.ring_fleet import Member, RingFleet

EARLY, LATE = 5, 1_000


def shards_that_folded(calls: Calls, of: pb.IdempotencyToken) -> list[int]:
    """All shards, once each has folded the token's window: they take turns."""
    request = rollups_pb.GetRollupStatusRequest()
    generated_ns = of.generation_time.ToNanoseconds()
    shards = eventually(
        lambda: calls.rollups.GetRollupStatus(request, timeout=30).shards,
        lambda shards: all(each.watermark.ToNanoseconds() > generated_ns for each in shards),
    )
    return [each.shard for each in shards]


def late_segments(worker: Member, of: pb.IdempotencyToken) -> list[int]:
    """By shard: how many segments of the token's window are in the log and do not count."""
    found = []
    with Calls(worker.address) as calls:
        for shard in shards_that_folded(calls, of):
            request = rollups_pb.AuditWindowRequest(shard=shard, time=of.generation_time)
            audit = calls.rollups.AuditWindow(request, timeout=30)
            assert audit.result == rollups_pb.AUDIT_RESULT_EQUAL, audit
            found.append(audit.late_segments)
    return found


def assert_expired(said: Refusal) -> None:
    expected = (grpc.StatusCode.FAILED_PRECONDITION, "TOKEN_EXPIRED")
    assert (said.code, said.reason) == expected


@pytest.mark.timeout(600)
async def test_a_segment_write_that_is_held_up_until_its_window_is_folded(fleet: RingFleet) -> None:
    held, other = fleet.servers
    counter = fresh_counter()

    def add_too_late() -> None:
        with Calls(held.address) as calls, Calls(other.address) as elsewhere:
            elsewhere.add("plays", counter, EARLY, token())
            held.cassandra.hold(Way.REQUESTS)
            late = token()
            said = refusal(lambda: calls.add("plays", counter, LATE, late))
            assert (said.code, said.reason) == (
                grpc.StatusCode.UNAVAILABLE,
                "STORE_UNAVAILABLE",
            )
            assert held.cassandra.seen["hold requests"] > 0
            status = elsewhere.folded_status("plays", counter, late)
            assert status == pb.TOKEN_STATUS_NOT_APPLIED
            before = late_segments(fleet.workers[0], late)
            held.cassandra.heal()  # it goes on its way
            eventually(
                lambda: sum(late_segments(fleet.workers[0], late)),
                lambda found: found == sum(before) + 1,
            )
            held.wait_ready()
            for each in (calls, elsewhere):
                assert each.status("plays", counter, late) == pb.TOKEN_STATUS_NOT_APPLIED
                assert_expired(refusal(lambda each=each: each.add("plays", counter, LATE, late)))
                assert each.accurate("plays", counter) == EARLY
            # Later folds do not pick it up.
            elsewhere.add("plays", counter, 2, token())
            now_ns = time.time_ns()
            value = eventually(
                lambda: elsewhere.get("plays", counter),
                lambda value: value.complete_through.ToNanoseconds() > now_ns,
            )
            assert value.count == EARLY + 2
            assert elsewhere.status("plays", counter, late) == pb.TOKEN_STATUS_NOT_APPLIED
            with Calls(fleet.workers[1].address) as worker:
                request = rollups_pb.AuditCounterRequest(namespace="plays", counter_name=counter)
                audit = worker.rollups.AuditCounter(request, timeout=30)
                assert audit.result == rollups_pb.AUDIT_RESULT_EQUAL
                assert audit.actual_count == EARLY + 2

    # The held server has this add alone to write.
    async with fleet.under_load("f10", servers=[other.address]):
        await asyncio.to_thread(add_too_late)
