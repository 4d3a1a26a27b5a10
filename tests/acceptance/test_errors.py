"""Bad input of every kind gets its status, reason and field, and leaves no trace in any count."""

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import namespace_service_pb2 as namespaces_pb
from tests.calls import Calls, fresh_counter, refusal, token
from tests.processes import FAST_CONVERGENCE_S

INVALID = grpc.StatusCode.INVALID_ARGUMENT

# What is wrong -> the request's fields, the reason, the field that is named.
BAD_ADDS = {
    "empty namespace": ({"namespace": ""}, "NAME_EMPTY", "namespace"),
    "empty counter": ({"counter_name": ""}, "NAME_EMPTY", "counter_name"),
    "long counter": ({"counter_name": "x" * 257}, "NAME_TOO_LONG", "counter_name"),
    "long counter in bytes": ({"counter_name": "ü" * 129}, "NAME_TOO_LONG", "counter_name"),
    "delta 0": ({"delta": 0}, "DELTA_ZERO", "delta"),
    "delta too large": ({"delta": 1_000_001}, "DELTA_TOO_LARGE", "delta"),
    "delta too small": ({"delta": -1_000_001}, "DELTA_TOO_LARGE", "delta"),
    "int64 min": ({"delta": -(2**63)}, "DELTA_TOO_LARGE", "delta"),
    "empty token": (
        {"idempotency_token": pb.IdempotencyToken()},
        "TOKEN_MALFORMED",
        "idempotency_token.generation_time",
    ),
    "token without a time": (
        {"idempotency_token": pb.IdempotencyToken(token="abc")},
        "TOKEN_MALFORMED",
        "idempotency_token.generation_time",
    ),
}


def add_request(counter: str, **changes: object) -> pb.AddCountRequest:
    fields: dict[str, object] = {"namespace": "plays", "counter_name": counter, "delta": 1}
    return pb.AddCountRequest(**{**fields, **changes})


@pytest.mark.parametrize("what", BAD_ADDS)
def test_bad_add(calls: Calls, what: str) -> None:
    changes, reason, field = BAD_ADDS[what]
    counter = fresh_counter()
    seen = refusal(lambda: calls.counters.AddCount(add_request(counter, **changes), timeout=5))
    assert (seen.code, seen.reason, seen.fields) == (INVALID, reason, [field])
    assert seen.message
    assert calls.accurate("plays", counter) == 0


def test_bad_token_times(calls: Calls) -> None:
    counter = fresh_counter()
    bad = []
    for seconds, nanos in ((-1, 0), (2**40, 0), (1, -1), (1, 1_000_000_000)):
        message = pb.IdempotencyToken(token="t")
        message.generation_time.seconds, message.generation_time.nanos = seconds, nanos
        bad.append(message)
    bad.append(token(name="x" * 65))
    long_in_bytes = token(name="é" * 33)
    for message in (*bad, long_in_bytes):
        seen = refusal(lambda message=message: calls.add("plays", counter, 1, message))
        assert (seen.code, seen.reason) == (INVALID, "TOKEN_MALFORMED"), message
        assert seen.fields[0].startswith("idempotency_token.")
    empty_string = token()
    empty_string.token = ""
    seen = refusal(lambda: calls.add("plays", counter, 1, empty_string))
    assert (seen.code, seen.fields) == (INVALID, ["idempotency_token.token"])
    assert calls.accurate("plays", counter) == 0


def test_longest_names_and_tokens_are_fine(calls: Calls) -> None:
    counter = ("é" * 128)[:128]
    before = calls.accurate("plays", counter)
    calls.add("plays", counter, 1, token(name="é" * 32))
    assert calls.accurate("plays", counter) == before + 1


def test_unknown_namespace(calls: Calls) -> None:
    for call in (
        lambda: calls.add("playz", "c"),
        lambda: calls.get("playz", "c"),
        lambda: calls.clear("playz", "c"),
        lambda: calls.status("playz", "c", token()),
        lambda: calls.namespaces.GetNamespace(
            namespaces_pb.GetNamespaceRequest(namespace="playz"), timeout=5
        ),
    ):
        seen = refusal(call)
        assert (seen.code, seen.reason) == (grpc.StatusCode.NOT_FOUND, "NAMESPACE_UNKNOWN")
        assert "plays" in seen.message  # the nearest name


def test_token_from_the_future_and_from_elsewhere(calls: Calls) -> None:
    counter = fresh_counter()
    seen = refusal(lambda: calls.add("plays", counter, 1, token(age_s=-60)))
    assert (seen.code, seen.reason) == (grpc.StatusCode.OUT_OF_RANGE, "TOKEN_FROM_FUTURE")
    assert seen.server_time_ns is not None
    seen = refusal(lambda: calls.add("plays", counter, 1, token(region="mars")))
    assert (seen.code, seen.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "WRONG_REGION")
    assert calls.accurate("plays", counter) == 0
    calls.add("plays", counter, 1, token(region="local"))
    assert calls.accurate("plays", counter) == 1


def test_late_token_expires_and_is_never_applied(calls: Calls) -> None:
    counter, late = fresh_counter(), token(age_s=FAST_CONVERGENCE_S + 1)
    seen = refusal(lambda: calls.add("plays", counter, 1, late))
    assert (seen.code, seen.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "TOKEN_EXPIRED")
    assert seen.server_time_ns is not None
    assert calls.status("plays", counter, late) == pb.TOKEN_STATUS_NOT_APPLIED
    assert calls.accurate("plays", counter) == 0


def test_unreadable_freshness(calls: Calls) -> None:
    request = pb.GetCountRequest(namespace="plays", counter_name="c")
    request.max_staleness.seconds = -1
    seen = refusal(lambda: calls.counters.GetCount(request, timeout=5))
    assert (seen.reason, seen.fields) == ("FRESHNESS_MALFORMED", ["max_staleness"])
    request = pb.GetCountRequest(namespace="plays", counter_name="c")
    request.at_least.seconds = -1
    seen = refusal(lambda: calls.counters.GetCount(request, timeout=5))
    assert (seen.reason, seen.fields) == ("FRESHNESS_MALFORMED", ["at_least"])


def test_what_best_effort_cannot_answer(calls: Calls) -> None:
    for seen in (
        refusal(lambda: calls.get("hits", "c", max_staleness_s=1)),
        refusal(lambda: calls.status("hits", "c", token())),
    ):
        assert seen.code is grpc.StatusCode.FAILED_PRECONDITION
        assert seen.reason == "STRATEGY_UNSUPPORTED"


def test_batches_that_are_empty_or_too_large(calls: Calls) -> None:
    item = pb.AddCountItem(counter_name="c", delta=1)
    for size, reason in ((0, "BATCH_EMPTY"), (10_001, "BATCH_TOO_LARGE")):
        adds = pb.BatchAddCountRequest(namespace="plays", items=[item] * size)
        seen = refusal(lambda adds=adds: calls.counters.BatchAddCount(adds, timeout=10))
        assert (seen.code, seen.reason, seen.fields) == (INVALID, reason, ["items"])
        reads = pb.BatchGetCountRequest(namespace="plays", counter_name=["c"] * size)
        seen = refusal(lambda reads=reads: calls.counters.BatchGetCount(reads, timeout=10))
        assert (seen.code, seen.reason, seen.fields) == (INVALID, reason, ["counter_name"])


def test_one_bad_item_does_not_fail_the_others(calls: Calls) -> None:
    counter = fresh_counter()
    items = [
        pb.AddCountItem(counter_name=counter, delta=5, idempotency_token=token()),
        pb.AddCountItem(counter_name="", delta=1, idempotency_token=token()),
        pb.AddCountItem(counter_name=counter, delta=0, idempotency_token=token()),
        pb.AddCountItem(counter_name=counter, delta=1, idempotency_token=token(age_s=-60)),
        pb.AddCountItem(counter_name=counter, delta=1, idempotency_token=token(age_s=60)),
        pb.AddCountItem(counter_name=counter, delta=7),
    ]
    request = pb.BatchAddCountRequest(namespace="plays", items=items)
    outcomes = calls.counters.BatchAddCount(request, timeout=10).outcomes
    assert [(each.code, each.reason) for each in outcomes] == [
        (0, ""),
        (INVALID.value[0], "NAME_EMPTY"),
        (INVALID.value[0], "DELTA_ZERO"),
        (grpc.StatusCode.OUT_OF_RANGE.value[0], "TOKEN_FROM_FUTURE"),
        (grpc.StatusCode.FAILED_PRECONDITION.value[0], "TOKEN_EXPIRED"),
        (0, ""),
    ]
    assert outcomes[3].HasField("server_time")
    assert outcomes[4].HasField("server_time")
    assert [each.HasField("idempotency_token") for each in outcomes] == [False] * 5 + [True]
    assert calls.accurate("plays", counter) == 12
