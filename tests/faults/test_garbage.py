"""F23: anything at all on the port. Every call has a defined answer, no count is touched by what
was refused, and the process goes on."""

import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counter.v1 import counter_service_pb2 as pb
from counter.v1 import namespace_service_pb2 as namespaces_pb
from tests.calls import Calls, fresh_counter, reason_of, refusal, refusal_of, token
from tests.faults.drawn_messages import INT64, TEXT, messages, path_of, unary_methods
from tests.processes import TallyProcess
from tests.stores import NAMES

METHODS = unary_methods()
MEBIBYTE = 1 << 20
MAX_DELTA = 2**53  # of the namespace `large`
DEFINED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNAVAILABLE,  # nothing is as fresh as that
}
# What gRPC answers before Tally sees anything.
UNREADABLE = {grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN}

drawing = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
drawing_long = settings(drawing, max_examples=5_000)


@pytest.fixture(scope="module")
def calls(steady: TallyProcess) -> Iterator[Calls]:
    """In the end it still serves, with the namespaces that it had."""
    with Calls(steady.address) as calls:
        before = namespaces(calls)
        yield calls
        steady.wait_ready()
        assert namespaces(calls) == before
        counter = fresh_counter()
        calls.add("plays", counter, 1, token())
        assert calls.accurate("plays", counter) == 1


def namespaces(calls: Calls) -> Any:
    request = namespaces_pb.ListNamespacesRequest()
    return list(calls.namespaces.ListNamespaces(request, timeout=10).namespaces)


@st.composite
def drawn_calls(draw: st.DrawFn) -> tuple[Any, Any]:
    method = draw(st.sampled_from(METHODS))
    return method, draw(messages(method.input_type))


def assert_defined_answer(calls: Calls, method: Any, request: Any) -> None:
    call = calls.channel.unary_unary(
        path_of(method), request_serializer=lambda message: message.SerializeToString()
    )
    try:
        call(request, timeout=60)
    except grpc.RpcError as error:
        seen = refusal_of(error)  # a rich one, or this fails
        assert seen.code in DEFINED, (method.full_name, request, seen)
        assert seen.reason
        assert 0 < len(seen.message.encode()) < 4_000


@drawing
@given(drawn=drawn_calls())
def test_any_message_to_any_method(calls: Calls, drawn: tuple[Any, Any]) -> None:
    assert_defined_answer(calls, *drawn)


@pytest.mark.long
@pytest.mark.timeout(1_800)
@drawing_long
@given(drawn=drawn_calls())
def test_very_many_messages_to_any_method(calls: Calls, drawn: tuple[Any, Any]) -> None:
    assert_defined_answer(calls, *drawn)


@drawing
@given(method=st.sampled_from(METHODS), body=st.binary(max_size=200))
def test_any_bytes_to_any_method(calls: Calls, method: Any, body: bytes) -> None:
    assert code_of(lambda: calls.channel.unary_unary(path_of(method))(body, timeout=60)) in DEFINED


def code_of(call: Callable[[], Any]) -> grpc.StatusCode:
    """OK stands for bytes that gRPC cannot read, too: it says so before Tally sees them."""
    try:
        call()
    except grpc.RpcError as error:
        is_unreadable = not reason_of(error) and error.code() in UNREADABLE
        return grpc.StatusCode.OK if is_unreadable else error.code()
    return grpc.StatusCode.OK


@drawing
@given(
    adds=st.lists(
        st.tuples(TEXT, st.sampled_from([*INT64, 0, 1, -1, 10**6]) | st.integers(*INT64)),
        min_size=1,
        max_size=20,
    )
)
def test_any_name_and_any_delta(calls: Calls, adds: list[tuple[str, int]]) -> None:
    """What is taken counts, and what is refused does not: of each name by itself."""
    prefix = fresh_counter()[-12:]  # leaves room for names of nearly any length
    items = [
        pb.AddCountItem(counter_name=prefix + name, delta=delta, idempotency_token=token())
        for name, delta in adds
    ]
    request = pb.BatchAddCountRequest(namespace="large", items=items)
    outcomes = calls.counters.BatchAddCount(request, timeout=60).outcomes
    expected: Counter[str] = Counter()
    for item, seen in zip(items, outcomes, strict=True):
        if len(item.counter_name.encode()) > 256:
            assert seen.reason == "NAME_TOO_LONG"
        elif item.delta == 0:
            assert seen.reason == "DELTA_ZERO"
        elif abs(item.delta) > MAX_DELTA:
            assert seen.reason == "DELTA_TOO_LARGE"
        else:
            assert seen.code == 0, seen
            expected[item.counter_name] += item.delta
    for name, count in expected.items():
        assert calls.accurate("large", name) == count


def test_names_that_look_alike_are_different_counters(calls: Calls) -> None:
    """By every way in, and in every answer: accurate, from rollups, in a list."""
    prefix = fresh_counter()
    names = [f"{prefix}{name}"[:256] for name in NAMES if len(f"{prefix}{name}".encode()) <= 256]
    tokens = [token() for _ in names]
    for number, (name, add) in enumerate(zip(names, tokens, strict=True), 1):
        calls.add("plays", name, number, add)
    for number, (name, add) in enumerate(zip(names, tokens, strict=True), 1):
        assert calls.folded_status("plays", name, add) == pb.TOKEN_STATUS_APPLIED
        assert calls.accurate("plays", name) == number
    listed = pb.ListCountersRequest(namespace="plays", prefix=prefix, page_size=100)
    page = calls.counters.ListCounters(listed, timeout=10)
    seen = {each.counter_name: each.value.count for each in page.counters}
    assert seen == {name: number for number, name in enumerate(names, 1)}


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_beyond_64_bits_both_ways(calls: Calls, sign: int) -> None:
    counter = fresh_counter()

    def add_many(delta: int, times: int) -> None:
        item = {"counter_name": counter, "delta": delta}
        items = [pb.AddCountItem(**item, idempotency_token=token()) for _ in range(times)]
        request = pb.BatchAddCountRequest(namespace="large", items=items)
        outcomes = calls.counters.BatchAddCount(request, timeout=60).outcomes
        assert all(each.code == 0 for each in outcomes)

    add_many(sign * MAX_DELTA, 1_100)
    value = calls.get("large", counter, max_staleness_s=0)
    assert (value.count, value.saturated) == (INT64[sign > 0], True)
    add_many(-sign * MAX_DELTA, 1_099)
    value = calls.get("large", counter, max_staleness_s=0)
    assert (value.count, value.saturated) == (sign * MAX_DELTA, False)


def test_giants(calls: Calls) -> None:
    counter = fresh_counter()
    too_long = refusal(lambda: calls.add("plays", counter + "x" * 8 * MEBIBYTE))
    assert too_long.reason == "NAME_TOO_LONG"
    assert len(too_long.message) < 200
    for call in (
        lambda: calls.add("plays", counter + "x" * 17 * MEBIBYTE),
        lambda: calls.counters.AddCount(
            pb.AddCountRequest(namespace="plays", counter_name=counter, delta=1),
            timeout=20,
            metadata=[("huge", "x" * 100_000)],
        ),
    ):
        with pytest.raises(grpc.RpcError) as raised:
            call()
        assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert calls.accurate("plays", counter) == 0


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
STRANGERS = {
    "noise": os.urandom(100_000),
    "HTTP/1.1": b"GET / HTTP/1.1\r\nHost: tally\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + os.urandom(193),
    "half a preface": PREFACE[:16],
    "frames of noise": PREFACE + os.urandom(10_000),
    "a frame that is too large": PREFACE + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01",
    "nothing": b"",
}


@pytest.mark.parametrize("said", STRANGERS)
def test_strangers_on_the_port(steady: TallyProcess, calls: Calls, said: str) -> None:
    """Many at once, who say something else than gRPC and stay; others are served meanwhile."""
    host, _, port = steady.address.rpartition(":")

    def connect(_: int) -> socket.socket:
        stranger = socket.create_connection((host, int(port)), timeout=20)
        try:
            stranger.sendall(STRANGERS[said])
        except OSError:
            pass  # shown the door while still speaking
        return stranger

    with ThreadPoolExecutor(20) as pool:
        strangers = list(pool.map(connect, range(100)))
    try:
        counter = fresh_counter()
        calls.add("plays", counter, 1, token())
        with Calls(steady.address) as newcomer:
            assert newcomer.accurate("plays", counter) == 1
    finally:
        for stranger in strangers:
            stranger.close()


def test_no_such_method(calls: Calls) -> None:
    for path in ("/counter.v1.CounterService/NoSuch", "/no.Such/Service", "/"):
        with pytest.raises(grpc.RpcError) as raised:
            calls.channel.unary_unary(path)(b"", timeout=10)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
