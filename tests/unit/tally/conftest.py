"""A real gRPC server that follows a script, and the command line run against it."""

import contextlib
import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value
from google.rpc import status_pb2
from grpc_status import rpc_status

from counter import errors
from counter.rpc.status import status_of
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter.v1 import namespace_service_pb2_grpc as namespace_pb_grpc
from counter.v1 import rollup_service_pb2 as rollup_pb
from counter.v1 import rollup_service_pb2_grpc as rollup_pb_grpc
from tally.main import main
from tests.streamed_adds import adds_of, outcome_of
from tests.unit.tally.control_plane_script import ControlPlane


@dataclass(frozen=True, kw_only=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def table(self) -> list[list[str]]:
        return [line.split("\t") for line in self.out.splitlines()]


class Script(pb_grpc.CounterServiceServicer):
    """Counters in a dictionary, and errors where a test asks for them."""

    def __init__(self) -> None:
        self.address = ""
        self._adding = threading.Lock()
        self.counts: dict[str, int] = {}
        self.epochs: dict[str, int] = {}
        self.tokens: set[tuple[str, str, int]] = set()
        self.requests: list[Any] = []
        self.token_statuses = [pb.TOKEN_STATUS_APPLIED]
        self.history = pb.GetCountHistoryResponse()
        self.count_at = pb.GetCountAtResponse()
        self.top = pb.TopCountersResponse()
        self.rolling_window = False
        self.health = dict.fromkeys(("", "counter.v1.CounterService"), 1)
        # Asked before each add with its counter; an error that it gives is the answer.
        self.refuse: Callable[[str, pb.IdempotencyToken], errors.TallyError | None] = (
            lambda counter, token: None
        )
        # Instead of every answer, until a test says otherwise.
        self.failure: errors.TallyError | None = None

    def _abort(self, context: grpc.ServicerContext, error: errors.TallyError) -> None:
        status: status_pb2.Status = status_of(error)
        context.abort_with_status(rpc_status.to_status(status))

    def _start(self, request: Any, context: grpc.ServicerContext) -> None:
        self.requests.append(request)
        refused = self._refused(request)
        if refused is not None:
            self._abort(context, refused)

    def _refused(self, request: Any) -> errors.TallyError | None:
        if self.failure is None and request.namespace != "plays":
            return errors.NamespaceUnknown(f"there is no namespace {request.namespace!r}")
        return self.failure

    def _add(self, counter: str, delta: int, token: pb.IdempotencyToken) -> bool:
        key = (counter, token.token, token.generation_time.ToNanoseconds())
        with self._adding:  # calls are answered by several threads
            duplicate = key in self.tokens
            if not duplicate:
                self.tokens.add(key)
                self.counts[counter] = self.counts.get(counter, 0) + delta
        return duplicate

    def _value(self, counter: str) -> pb.CountValue:
        value = pb.CountValue(
            count=self.counts.get(counter, 0),
            epoch=self.epochs.get(counter, 0),
            strategy=pb.STRATEGY_EVENTUAL,
            source=pb.SOURCE_ROLLUP,
        )
        value.complete_through.FromNanoseconds(time.time_ns() - 6_200_000_000)
        if self.rolling_window:
            value.strategy = pb.STRATEGY_ROLLING_WINDOW
            value.rate_per_s = value.count / 300
            value.window_start.FromNanoseconds(time.time_ns() - 300_000_000_000)
        return value

    def AddAndGetCount(self, request, context):  # type: ignore[no-untyped-def]
        self._start(request, context)
        duplicate = self._add(request.counter_name, request.delta, request.idempotency_token)
        return pb.AddAndGetCountResponse(
            idempotency_token=request.idempotency_token,
            duplicate=duplicate,
            value=self._value(request.counter_name),
        )

    def GetCount(self, request, context):  # type: ignore[no-untyped-def]
        self._start(request, context)
        return pb.GetCountResponse(value=self._value(request.counter_name))

    def ClearCount(self, request, context):  # type: ignore[no-untyped-def]
        self._start(request, context)
        self.counts[request.counter_name] = 0
        self.epochs[request.counter_name] = self.epochs.get(request.counter_name, 0) + 1
        return pb.ClearCountResponse(idempotency_token=request.idempotency_token)

    def StreamAddCount(self, request_iterator, context):  # type: ignore[no-untyped-def]
        for batch in request_iterator:
            adds = adds_of(batch)
            self.requests.extend(adds)
            yield pb.StreamAddCountResponse(
                sequence_number=batch.sequence_number,
                outcomes=[self._streamed(add) for add in adds],
            )

    def _streamed(self, add: pb.AddCountRequest) -> pb.AddCountOutcome:
        refused = self._refused(add) or self.refuse(add.counter_name, add.idempotency_token)
        if refused is not None:
            return outcome_of(refused)
        duplicate = self._add(add.counter_name, add.delta, add.idempotency_token)
        return pb.AddCountOutcome(duplicate=duplicate)

    def BatchGetCount(self, request, context):  # type: ignore[no-untyped-def]
        self._start(request, context)
        return pb.BatchGetCountResponse(
            values=[self._value(counter) for counter in request.counter_name]
        )

    def GetTokenStatus(self, request, context):  # type: ignore[no-untyped-def]
        self._start(request, context)
        status = (
            self.token_statuses.pop(0) if len(self.token_statuses) > 1 else self.token_statuses[0]
        )
        return pb.GetTokenStatusResponse(status=status)

    def AdjustCount(self, request, context):  # type: ignore[no-untyped-def]
        self._start(request, context)
        duplicate = self._add(request.counter_name, request.delta, request.idempotency_token)
        return pb.AdjustCountResponse(
            idempotency_token=request.idempotency_token, duplicate=duplicate
        )

    def GetCountAt(self, request, context):  # type: ignore[no-untyped-def]
        self._start(request, context)
        return self.count_at

    def GetCountHistory(self, request, context):  # type: ignore[no-untyped-def]
        self._start(request, context)
        return self.history

    def TopCounters(self, request, context):  # type: ignore[no-untyped-def]
        self._start(request, context)
        return self.top

    def ListCounters(self, request, context):  # type: ignore[no-untyped-def]
        """The token of a page is the last name before it."""
        self._start(request, context)
        names = sorted(name for name in self.counts if name.startswith(request.prefix))
        names = [name for name in names if name > request.page_token]
        page, rest = names[: request.page_size], names[request.page_size :]
        answer = pb.ListCountersResponse(next_page_token=page[-1] if rest else "")
        for name in page:
            answer.counters.add(counter_name=name, value=self._value(name))
        answer.complete_through.FromNanoseconds(time.time_ns() - 6_200_000_000)
        return answer


class Rollups(rollup_pb_grpc.RollupServiceServicer):
    def __init__(self) -> None:
        self.problem = ""
        self.shard_problems: dict[int, str] = {}
        # Instead of the one that is made below.
        self.status: rollup_pb.GetRollupStatusResponse | None = None
        self.requests: list[Any] = []
        # By counter: what an audit answers. A counter without one has too little to be audited.
        self.audits: dict[str, rollup_pb.AuditCounterResponse] = {}
        self.window = rollup_pb.AuditWindowResponse(result=rollup_pb.AUDIT_RESULT_EQUAL)
        self.refuse_quarantine: errors.TallyError | None = None

    def AuditCounter(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        if request.counter_name not in self.audits:
            refused = status_of(errors.AuditWithoutBase("too little is kept"))
            context.abort_with_status(rpc_status.to_status(refused))
        return self.audits[request.counter_name]

    def AuditWindow(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        return self.window

    def QuarantineSegment(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        if self.refuse_quarantine is not None:
            context.abort_with_status(rpc_status.to_status(status_of(self.refuse_quarantine)))
        answer = rollup_pb.QuarantineSegmentResponse(shard=3, events=1_234)
        answer.window.FromNanoseconds(1_700_000_000_000_000_000)
        return answer

    def GetRollupStatus(self, request, context):  # type: ignore[no-untyped-def]
        if self.status is not None:
            return self.status
        answer = rollup_pb.GetRollupStatusResponse(region="local", problem=self.problem)
        now_ns = time.time_ns()
        answer.window.FromMilliseconds(1_000)
        answer.closed_through.FromNanoseconds(now_ns - 6_000_000_000)
        answer.folded_through.FromNanoseconds(now_ns - 7_000_000_000)
        for shard, lag_ms in enumerate((6_100, 7_300)):
            each = answer.shards.add(shard=shard, folded_events=10, last_pass_events=5)
            each.watermark.FromNanoseconds(now_ns - lag_ms * 1_000_000)
            each.lag.FromMilliseconds(lag_ms)
            each.problem = self.shard_problems.get(shard, "")
        return answer


def _health_handler(script: Script) -> grpc.GenericRpcHandler:
    def check(request: StringValue, context: grpc.ServicerContext) -> UInt32Value:
        return UInt32Value(value=script.health.get(request.value, 1))

    return grpc.method_handlers_generic_handler(
        "grpc.health.v1.Health",
        {
            "Check": grpc.unary_unary_rpc_method_handler(
                check,
                request_deserializer=StringValue.FromString,
                response_serializer=UInt32Value.SerializeToString,
            )
        },
    )


@pytest.fixture
def rollups() -> Rollups:
    return Rollups()


@pytest.fixture
def control_plane() -> ControlPlane:
    return ControlPlane()


@pytest.fixture
def script(
    rollups: Rollups, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Script]:
    """The scripted server, running, and named by TALLY_SERVER."""
    script = Script()
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    pb_grpc.add_CounterServiceServicer_to_server(script, server)
    namespace_pb_grpc.add_NamespaceServiceServicer_to_server(control_plane, server)
    rollup_pb_grpc.add_RollupServiceServicer_to_server(rollups, server)
    server.add_generic_rpc_handlers((_health_handler(script),))
    script.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    monkeypatch.setenv("TALLY_SERVER", script.address)
    yield script
    server.stop(grace=None).wait()


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address at which nothing listens, kept from others by holding it without listening."""
    import socket

    with contextlib.closing(socket.socket()) as held:
        held.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def tally(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """Runs a command line in this process, with its output going to no terminal."""

    def run(*arguments: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return Ran(code=code, out=captured.out, err=captured.err)

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Relative, as people give it."""
    (tmp_path / "namespaces").mkdir()
    (tmp_path / "namespaces" / "plays.yaml").write_text("namespace: plays\nstrategy: eventual\n")
    (tmp_path / "namespaces" / "README.md").write_text("not a namespace")
    (tmp_path / "namespaces" / ".plays.yaml").write_text("an editor's copy")
    monkeypatch.chdir(tmp_path)
    return "namespaces"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Runs a command line whose output goes to a terminal; answers its code and all it showed."""

    def run(*arguments: str, columns: int = 80, **environment: str) -> tuple[int, str]:
        screen = Screen()
        for name in ("NO_COLOR", "FORCE_COLOR"):
            monkeypatch.delenv(name, raising=False)
        for name, value in (
            {"TERM": "xterm-256color", "COLUMNS": str(columns)} | environment
        ).items():
            monkeypatch.setenv(name, value)
        for stream in ("stdin", "stdout", "stderr"):
            monkeypatch.setattr(sys, stream, screen)
        return main(list(arguments)), screen.getvalue()

    return run
