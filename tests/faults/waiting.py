"""What tests of the fleet wait for."""

import asyncio

from counter.v1 import rollup_service_pb2 as pb
from tests.calls import Calls, Refusal, eventually, refusal, token
from tests.faults.ring_fleet import Member
from tests.load import Load

FOUND_OUT_WITHIN_S = 60.0
FOLDED_WITHIN_S = 90.0


def worker_status(worker: Member) -> pb.GetRollupStatusResponse:
    with Calls(worker.address) as calls:
        return calls.rollups.GetRollupStatus(pb.GetRollupStatusRequest(), timeout=30)


async def refused_for(server: Member, reason: str, saying: str = "") -> Refusal:
    """Waits until an add is refused for this reason, with these words in its message."""

    def ask() -> Refusal:
        with Calls(server.address) as calls:
            return eventually(
                lambda: refusal(lambda: calls.add("plays", "of nobody", 1, token())),
                lambda said: said.reason == reason and saying in said.message,
                within_s=FOUND_OUT_WITHIN_S,
            )

    return await asyncio.to_thread(ask)


async def folded_anew(server: Member, load: Load) -> None:
    """Waits until cheap reads of all counters have whatever was sent until now."""
    counters = {each.counter for each in load.history.deltas if each.namespace == "plays"}
    latest_ns = max(event.time_ns for event in load.history.deltas)

    def behind() -> list[str]:
        return [
            counter
            for counter in counters
            if calls.get("plays", counter).complete_through.ToNanoseconds() < latest_ns
        ]

    with Calls(server.address) as calls:
        await asyncio.to_thread(
            eventually, behind, lambda left: left == [], within_s=FOLDED_WITHIN_S
        )
