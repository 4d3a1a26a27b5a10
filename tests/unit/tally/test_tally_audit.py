"""`tally audit`, `recount` and `quarantine` against a scripted server."""

import getpass
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

from counter import errors
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import rollup_service_pb2 as rollup_pb
from counter.v1 import rollup_service_pb2_grpc as rollup_pb_grpc

TIME_NS = 1_700_000_040_000_000_000  # 2023-11-14 22:14
Kind = rollup_pb.AuditDifference
ROLLUP = Kind.KIND_ROLLUP


def equal() -> rollup_pb.AuditCounterResponse:
    answer = rollup_pb.AuditCounterResponse(
        result=rollup_pb.AUDIT_RESULT_EQUAL, expected_count=5, actual_count=5, events=7
    )
    answer.base.kind = rollup_pb.AuditBase.KIND_START
    answer.audited_through.FromNanoseconds(TIME_NS)
    return answer


def different(
    *kinds: Any, expected: int = 1_234, actual: int = 1_200
) -> rollup_pb.AuditCounterResponse:
    answer = rollup_pb.AuditCounterResponse(
        result=rollup_pb.AUDIT_RESULT_DIFFERENT, expected_count=expected, actual_count=actual
    )
    answer.base.kind = rollup_pb.AuditBase.KIND_HISTORY
    answer.base.time.FromNanoseconds(TIME_NS - 60_000_000_000)
    answer.base.count = 1_000
    answer.audited_through.FromNanoseconds(TIME_NS)
    for kind in kinds:
        found = answer.differences.add(
            kind=kind, expected=expected, actual=actual, message="it is lower than its events"
        )
        getattr(found, "from").FromNanoseconds(TIME_NS - 10_000_000_000)
        found.to.FromNanoseconds(TIME_NS)
    return answer


def test_counters_that_are_equal(tally: Any, script: Any, rollups: Any) -> None:
    rollups.audits = {"a": equal(), "b": equal()}
    ran = tally("audit", "plays", "a", "b", "--base", "2023-11-14T22:00")
    assert (ran.code, ran.err) == (0, "")
    titles = ["counter", "result", "expected", "actual", "events", "base", "base time", "through"]
    assert ran.table == [
        titles,
        ["a", "equal", "5", "5", "7", "start", "unknown", "2023-11-14T22:14:00Z"],
        ["b", "equal", "5", "5", "7", "start", "unknown", "2023-11-14T22:14:00Z"],
    ]
    assert rollups.requests[0].namespace == "plays"
    assert rollups.requests[0].base_time.seconds == 1_700_000_040 - 14 * 60


def test_a_counter_that_differs(tally: Any, script: Any, rollups: Any) -> None:
    rollups.audits = {"a": different(ROLLUP, Kind.KIND_HISTORY_MISSING), "b": equal()}
    made = rollups.audits["a"].adjustments.add(delta=5, author="release", reason="bug 2")
    made.time.FromNanoseconds(TIME_NS)
    ran = tally("audit", "plays", "a", "b")
    assert ran.code == 1
    assert ran.table[1][:7] == [
        "a", "different", "1,234", "1,200", "0", "history", "2023-11-14T22:13:00Z",
    ]  # fmt: skip
    windows = ["2023-11-14T22:13:50Z", "2023-11-14T22:14:00Z"]
    assert ran.table[4:7] == [
        ["counter", "differs", "from", "to", "expected", "actual", "what"],
        ["a", "rollup", *windows, "1,234", "1,200", "it is lower than its events"],
        ["a", "missing", *windows, "1,234", "1,200", "it is lower than its events"],
    ]
    assert ran.table[-1] == ["a", "2023-11-14T22:14:00Z", "+5", "release", "bug 2"]
    document = tally("audit", "plays", "a", "--json").json
    assert document["counters"][0]["differences"][0]["kind"] == "rollup"
    assert document["counters"][0]["base_count"] == 1_000


def test_a_counter_that_cannot_be_audited(tally: Any, script: Any, rollups: Any) -> None:
    rollups.audits = {"a": equal()}
    ran = tally("audit", "plays", "old", "a")
    assert ran.code == 1
    assert ran.table[1][0] == "a"
    assert ran.err == "tally: plays/old is not audited: too little is kept\n"
    ran = tally("audit", "plays", "old", "a", "--json")
    assert [each["result"] for each in ran.json["counters"]] == ["without_base", "equal"]


def test_audit_of_a_window(tally: Any, script: Any, rollups: Any) -> None:
    window = rollups.window
    window.segments, window.events, window.late_segments = 4, 1_000, 2
    window.recorded_digest = window.computed_digest = "ab" * 16
    aside = window.set_aside.add(segment_id="5f", events=17, author="oncall", reason="disk failure")
    aside.time.FromNanoseconds(TIME_NS)
    ran = tally("audit", "--window", "2023-11-14T22:14", "--shard", "3")
    assert ran.code == 0
    assert ["late segments", "2, which do not count"] in ran.table
    assert ["computed digest", "as recorded"] in ran.table
    assert ["5f", "17", "2023-11-14T22:14:00Z", "oncall", "disk failure"] in ran.table
    assert (rollups.requests[0].shard, rollups.requests[0].time.seconds) == (3, 1_700_000_040)
    window.result = rollup_pb.AUDIT_RESULT_DIFFERENT
    window.computed_digest = "cd" * 16
    ran = tally("audit", "--window", "2023-11-14T22:14", "--shard", "3")
    assert ran.code == 1
    assert ["computed digest", "cd" * 16 + ", not as recorded"] in ran.table


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("plays",),
        ("--window", "-1m"),
        ("--shard", "0"),
        ("plays", "a", "--window", "-1m", "--shard", "0"),
        ("--base", "-1h", "--window", "-1m", "--shard", "0"),
        ("--window", "-1m", "--shard", "-1"),
    ],
)
def test_audits_of_nothing(
    tally: Any, script: Any, rollups: Any, arguments: tuple[str, ...]
) -> None:
    ran = tally("audit", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert rollups.requests == []


def test_recount_shows_the_adjustment(tally: Any, script: Any, rollups: Any) -> None:
    rollups.audits = {"a b": different(ROLLUP)}
    ran = tally("recount", "plays", "a b")
    assert ran.code == 1
    assert "an adjustment of +34 would repair plays/a b" in ran.out
    command = shlex.split(ran.out.splitlines()[-1].removeprefix("send it with: "))
    assert script.requests == []
    assert tally(*command[1:]).code == 0
    (request,) = script.requests
    assert (request.counter_name, request.delta, request.reason) == ("a b", 34, "TEXT")
    assert request.author == getpass.getuser()


def test_recount_applies_it_once(tally: Any, script: Any, rollups: Any) -> None:
    rollups.audits = {"a": different(ROLLUP, Kind.KIND_HISTORY)}
    apply = ("recount", "plays", "a", "--apply", "--author", "oncall", "--reason", "bug 1")
    ran = tally(*apply)
    assert ran.code == 0
    assert "adjusted by +34: plays/a\n" in ran.out
    assert "after the next fold" in ran.out
    rollups.audits["a"].pending_adjustments.add(delta=34, author="oncall", reason="bug 1")
    assert "check with: tally audit plays a" in ran.out
    assert script.requests[0].author == "oncall"
    assert script.counts == {"a": 34}
    (line,) = [line for line in ran.out.splitlines() if line.startswith("token: ")]
    again = tally(*apply, *shlex.split(line.removeprefix("token: ")), "--json")
    assert script.counts == {"a": 34}
    assert again.json["duplicate"] is True
    assert (again.json["applied"], again.json["delta"]) == (True, 34)
    assert again.json["audit"]["result"] == "different"


def test_recount_sends_no_other_adjustment_before_one_is_folded(
    tally: Any, script: Any, rollups: Any
) -> None:
    rollups.audits = {"a": different(ROLLUP)}
    rollups.audits["a"].pending_adjustments.add(delta=34, author="release", reason="bug 2")
    ran = tally("recount", "plays", "a", "--apply", "--reason", "bug 1")
    assert ran.code == 1
    assert "an adjustment of +34 by release (bug 2) is sent and not folded yet" in ran.out
    assert script.requests == []


@pytest.mark.parametrize(
    ("audit", "code", "why"),
    [
        (equal(), 0, "nothing to repair"),
        (different(Kind.KIND_HISTORY_MISSING), 1, "only its history differs"),
        (different(Kind.KIND_HISTORY, actual=1_234), 1, "only its history differs"),
        (different(ROLLUP, Kind.KIND_SEGMENTS), 1, "the expected count is not known"),
        (different(ROLLUP, 99), 1, "the expected count is not known"),
        (different(ROLLUP, expected=2**63 - 1), 1, "does not fit in 64 bits"),
        (different(ROLLUP, actual=-(2**63)), 1, "does not fit in 64 bits"),
    ],
)
def test_recount_repairs_only_what_an_adjustment_can_repair(
    tally: Any, script: Any, rollups: Any, audit: Any, code: int, why: str
) -> None:
    rollups.audits = {"a": audit}
    ran = tally("recount", "plays", "a", "--apply", "--reason", "bug 1")
    assert ran.code == code
    assert why in ran.out
    assert script.requests == []
    document = tally("recount", "plays", "a", "--json").json
    assert (document["delta"], document["applied"], document["token"]) == (None, False, None)
    assert why in document["problem"]


def test_recount_needs_a_reason(tally: Any, script: Any, rollups: Any) -> None:
    rollups.audits = {"a": different(ROLLUP)}
    for arguments in ((), ("--reason", " ")):
        ran = tally("recount", "plays", "a", "--apply", *arguments)
        assert (ran.code, ran.out) == (2, "")
        assert "--reason" in ran.err
    assert rollups.requests == script.requests == []


def test_an_adjustment_of_unknown_outcome(tally: Any, script: Any, rollups: Any) -> None:
    rollups.audits = {"a": different(ROLLUP)}
    script.failure = errors.StoreUnavailable("the store did not answer")
    ran = tally("recount", "plays", "a", "--apply", "--reason", "bug 1", "--timeout", "1")
    assert (ran.code, ran.out) == (4, "")
    command = shlex.split(ran.err.split("Find out with: ")[1])
    script.failure = None
    script.token_statuses = [pb.TOKEN_STATUS_APPLIED]
    assert tally(*command[1:]).code == 0


@pytest.fixture
def worker(rollups: Any) -> Iterator[str]:
    """A worker of a fleet: it has no CounterService."""

    def check(request: StringValue, context: grpc.ServicerContext) -> UInt32Value:
        if request.value not in ("", "counter.v1.RollupService"):
            context.abort(grpc.StatusCode.NOT_FOUND, "not here")
        return UInt32Value(value=1)

    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    rollup_pb_grpc.add_RollupServiceServicer_to_server(rollups, server)
    handler = grpc.unary_unary_rpc_method_handler(
        check,
        request_deserializer=StringValue.FromString,
        response_serializer=UInt32Value.SerializeToString,
    )
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(grace=None).wait()


def test_in_a_fleet_the_adjustment_goes_to_a_server(
    tally: Any, script: Any, rollups: Any, worker: str
) -> None:
    rollups.audits = {"a": different(ROLLUP)}
    apply = ("recount", "plays", "a", "--apply", "--reason", "bug 1", "--server", worker)
    ran = tally(*apply)
    assert (ran.code, ran.out) == (1, "")
    assert "--counter-server" in ran.err
    assert rollups.requests == []
    ran = tally(*apply, "--counter-server", script.address)
    assert ran.code == 0
    assert script.counts == {"a": 34}
    assert f"tally audit plays a --server {worker}" in ran.out


def test_nobody_is_there_to_audit(tally: Any, nobody: str) -> None:
    for command in (
        ("audit", "plays", "a"),
        ("recount", "plays", "a", "--apply", "--reason", "r"),
        ("quarantine", "5f", "--reason", "r", "--yes"),
    ):
        ran = tally(*command, "--server", nobody, "--timeout", "0.5")
        assert (ran.code, ran.out) == (3, "")
        assert ran.err.startswith(f"tally: no server answers at {nobody}")


def test_quarantine(tally: Any, script: Any, rollups: Any) -> None:
    ran = tally("quarantine", "5f", "--author", "oncall", "--reason", "disk failure", "--yes")
    assert ran.code == 0
    assert ran.out.splitlines()[:3] == [
        "set aside: segment 5f of shard 3, window of 2023-11-14T22:13:20Z",
        "1,234 events will never count",
        "decided by oncall: disk failure",
    ]
    (request,) = rollups.requests
    assert (request.segment_id, request.author, request.reason) == ("5f", "oncall", "disk failure")
    document = tally("quarantine", "5f", "--reason", "r", "-y", "--json").json
    assert document["events"] == 1_234
    assert document["author"] == getpass.getuser()


def test_quarantine_asks_first(tally: Any, script: Any, rollups: Any) -> None:
    ran = tally("quarantine", "5f", "--reason", "disk failure", stdin="y\n")
    assert (ran.code, ran.out) == (2, "")
    assert "--yes" in ran.err
    ran = tally("quarantine", "5f", "--yes")
    assert ran.code == 2
    assert "--reason" in ran.err
    assert rollups.requests == []


def test_a_segment_that_can_be_read_is_not_set_aside(tally: Any, script: Any, rollups: Any) -> None:
    rollups.refuse_quarantine = errors.SegmentReadable("segment 5f can be read")
    ran = tally("quarantine", "5f", "--reason", "r", "--yes")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "tally: segment 5f can be read\n"
