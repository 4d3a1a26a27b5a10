"""Damage that an operator finds and repairs: a wrong rollup, a lost row of history, a segment that
cannot be read."""

import json
import sqlite3
import time
from contextlib import closing
from typing import Any

from grpc_health.v1 import health_pb2

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import rollup_service_pb2 as rollups_pb
from tests.calls import Calls, eventually, token
from tests.processes import TallyProcess, run_tally

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
ROLLUPS = "counter.v1.RollupService"


def tally_json(*arguments: str, code: int | None = 0) -> Any:
    """`code` None: whatever it is."""
    ended = run_tally(*arguments, "--json")
    assert code in (None, ended.returncode), ended.stdout + ended.stderr
    return json.loads(ended.stdout)


def folded(calls: Calls, counter: str, after_ns: int) -> pb.CountValue:
    return eventually(
        lambda: calls.get("plays", counter),
        lambda value: value.complete_through.ToNanoseconds() >= after_ns,
    )


def change(tally: TallyProcess, statement: str, *values: object) -> int:
    """What a broken disk or a wrong hand does while nobody looks."""
    with closing(sqlite3.connect(tally.data / "tally.db")) as database, database:
        return database.execute(statement, values).rowcount


def test_a_wrong_rollup_is_found_in_the_background_and_repaired(own_tally: TallyProcess) -> None:
    own_tally.start()
    with Calls(own_tally.address) as calls:
        for counter in ("right", "wrong"):
            for _ in range(3):
                calls.add("plays", counter, 2, token())
        folded(calls, "wrong", time.time_ns())
    assert own_tally.stop() == 0
    assert change(own_tally, "UPDATE rollups SET count = count + 5 WHERE counter = 'wrong'") == 1
    own_tally.start()
    with Calls(own_tally.address) as calls:
        assert calls.accurate("plays", "wrong") == 11
        log = eventually(
            lambda: own_tally.log.read_text(), lambda text: "action=audit_difference" in text
        )
        [line] = [each for each in log.splitlines() if "action=audit_difference" in each]
        assert "counter=wrong" in line
        at = ("--server", own_tally.address)
        assert run_tally("audit", "plays", "right", *at).returncode == 0
        ended = run_tally("audit", "plays", "wrong", *at)
        assert ended.returncode == 1
        assert "11" in ended.stdout
        seen = tally_json("recount", "plays", "wrong", *at, code=1)
        assert (seen["delta"], seen["applied"]) == (-5, False)
        assert calls.accurate("plays", "wrong") == 11
        note = ("--author", "oncall", "--reason", "a row was changed by hand")
        sent = tally_json("recount", "plays", "wrong", "--apply", *note, *at)
        assert (sent["delta"], sent["applied"]) == (-5, True)
        assert calls.accurate("plays", "wrong") == 6
        again = tally_json("recount", "plays", "wrong", "--apply", *note, *at, code=None)
        assert (again["delta"], again["applied"]) == (None, False)
        folded(calls, "wrong", time.time_ns())
        assert run_tally("audit", "plays", "wrong", *at).returncode == 0
        assert tally_json("recount", "plays", "wrong", *at)["delta"] is None
        request = pb.GetCountHistoryRequest(namespace="plays", counter_name="wrong")
        request.start.FromNanoseconds(time.time_ns() - 60_000_000_000)
        [adjustment] = calls.counters.GetCountHistory(request, timeout=10).adjustments
        assert (adjustment.delta, adjustment.author) == (-5, "oncall")
        assert adjustment.reason == "a row was changed by hand"
    assert own_tally.stop() == 0


def test_a_segment_that_cannot_be_read_stops_its_shard_until_an_operator_decides(
    own_tally: TallyProcess,
) -> None:
    own_tally.start()
    with Calls(own_tally.address) as calls:
        folded(calls, "before", time.time_ns() - 2_000_000_000)
        status = calls.rollups.GetRollupStatus(rollups_pb.GetRollupStatusRequest(), timeout=10)
        assert len(status.shards) == 2
        lost = token()
        # One of these is in the other shard: it goes on.
        counters = [f"counter-{number}" for number in range(8)]
        for counter in counters:
            calls.add("plays", counter, 1, token())
        calls.add("plays", "damaged", 7, lost)
        own_tally.kill()
    damage = "UPDATE segments SET body = x'01ff00' WHERE instr(body, CAST('damaged' AS BLOB))"
    assert change(own_tally, damage) == 1
    with closing(sqlite3.connect(own_tally.data / "tally.db")) as database:
        [(segment_id,)] = database.execute(
            "SELECT lower(hex(segment_id)) FROM segments WHERE body = x'01ff00'"
        )
    own_tally.start(wait=False)
    own_tally.wait_health(ROLLUPS, NOT_SERVING)
    at = ("--server", own_tally.address)
    with Calls(own_tally.address) as calls:
        shown = run_tally("status", *at)
        assert segment_id in shown.stdout + shown.stderr
        # The other shard is folded, adds go on in both.
        eventually(
            lambda: [calls.get("plays", each).count for each in counters],
            lambda counts: 1 in counts,
        )
        kept = token()
        calls.add("plays", "damaged", 2, kept)
        wrong = run_tally("quarantine", "00" * 16, *at, "--yes", "--author", "oncall")
        assert wrong.returncode == 2
        note = ("--author", "oncall", "--reason", "bad sector")
        unknown = run_tally("quarantine", "00" * 16, *at, "--yes", *note)
        assert unknown.returncode == 1
        assert len(unknown.stderr.strip().splitlines()) == 1
        done = tally_json("quarantine", segment_id, *at, "--yes", *note)
        assert done["segment_id"] == segment_id
        own_tally.wait_health(ROLLUPS, SERVING)
        assert calls.folded_status("plays", "damaged", kept) == pb.TOKEN_STATUS_APPLIED
        assert calls.folded_status("plays", "damaged", lost) == pb.TOKEN_STATUS_NOT_APPLIED
        assert calls.accurate("plays", "damaged") == 2
        window = calls.rollups.AuditWindow(
            rollups_pb.AuditWindowRequest(shard=done["shard"], time=lost.generation_time),
            timeout=10,
        )
        [set_aside] = window.set_aside
        assert (set_aside.segment_id, set_aside.author) == (segment_id, "oncall")
        assert set_aside.reason == "bad sector"
        assert window.result == rollups_pb.AUDIT_RESULT_EQUAL
    assert own_tally.stop() == 0
