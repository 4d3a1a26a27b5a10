"""A gRPC server as every program of Tally runs it: limits, health, reflection, rich errors."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from time import perf_counter
from typing import Any, TypeVar, cast

import grpc
import structlog
from google.protobuf import descriptor_pool
from google.rpc import code_pb2, status_pb2
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2
from grpc_reflection.v1alpha._async import ReflectionServicer
from grpc_status import rpc_status

from counter.errors import SetupError, TallyError
from counter.instruments import HistogramSeries
from counter.metrics import CALL_ERRORS, CALL_SECONDS, CALLS_IN_FLIGHT
from counter.rpc.http2.server import Http2Server, Limits
from counter.rpc.late_services import LateServices
from counter.rpc.listening import why_not_listening
from counter.rpc.status import status_of

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
METADATA_BYTES_MAX = 16 * 1024
CONCURRENT_CALLS_MAX = 10_000
# For calls under way when their connection has reached its age: more than any stream of ours lasts.
CONNECTION_GRACE_MS = 90_000
# Counted from 0 on, so that an alert sees the first one.
_NEVER_EXPECTED = ("INTERNAL", "STORE_DAMAGED")

log = structlog.get_logger()

Servicer = TypeVar("Servicer")
Request = TypeVar("Request")
Response = TypeVar("Response")
Method = Callable[[Servicer, Request, Any], Awaitable[Response]]


def answering_errors(
    method: Method[Servicer, Request, Response],
) -> Method[Servicer, Request, Response]:
    """Turns a TallyError of a unary method into its status; anything else is logged as a bug.

    Also measures the calls.
    """
    measured = MeasuredCalls(method.__name__)

    # Every call comes through here, so the usual way is short: errors are dealt with elsewhere.
    @wraps(method)
    async def answering(self: Servicer, request: Request, context: Any) -> Response:
        began_s = perf_counter()
        measured.began()
        try:
            response = await method(self, request, context)
        except BaseException as error:
            await measured.answer(error, context, began_s)
            raise
        measured.ended_ok(perf_counter() - began_s)
        return response

    return answering


class MeasuredCalls:
    """The calls of one method, or the batches of a stream. Its series are made by the first of
    them: a process that does not serve the method does not show it."""

    __slots__ = ("__weakref__", "_ended_ok", "_in_flight", "_rpc")

    def __init__(self, rpc: str) -> None:
        self._rpc = rpc
        self._ended_ok: HistogramSeries | None = None
        self._in_flight = 0

    def began(self) -> None:
        if self._ended_ok is None:
            self._ended_ok = CALL_SECONDS.at(rpc=self._rpc, code="OK")
            CALLS_IN_FLIGHT.at(rpc=self._rpc).watch(self, lambda measured: measured._in_flight)
            for reason in _NEVER_EXPECTED:
                CALL_ERRORS.at(rpc=self._rpc, reason=reason)
        self._in_flight += 1

    def ended_ok(self, seconds: float) -> None:
        """As `ended`, for what nearly all calls end with."""
        self._in_flight -= 1
        assert self._ended_ok is not None
        self._ended_ok.record(seconds)

    def ended(self, code: str, seconds: float) -> None:
        self._in_flight -= 1
        CALL_SECONDS.at(rpc=self._rpc, code=code).record(seconds)

    def failed(self, error: TallyError) -> status_pb2.Status:
        CALL_ERRORS.at(rpc=self._rpc, reason=error.reason).add()
        return status_of(error)

    async def answer(self, error: BaseException, context: Any, began_s: float) -> None:
        """Ends a call with the status of its error, which raises.

        Returns if the call is answered already, or nobody waits for an answer.
        """
        code = "CANCELLED"
        try:
            if isinstance(error, TallyError):
                status = self.failed(error)
                code = code_pb2.Code.Name(status.code)
            elif isinstance(error, grpc.aio.AbortError):
                code = "UNKNOWN"
                return
            elif isinstance(error, Exception):
                code, unforeseen = "INTERNAL", "a call failed unexpectedly"
                log.error(unforeseen, action="call_failed", rpc=self._rpc, exc_info=error)
                hidden = TallyError("internal error; the server's log has the details")
                status = self.failed(hidden)
            else:
                return
            await context.abort_with_status(rpc_status.to_status(status))
        finally:
            self.ended(code, perf_counter() - began_s)


class _PoolWithMethods:
    """The default pool of descriptors, which also finds methods by their full names."""

    def __init__(self) -> None:
        self._pool = descriptor_pool.Default()

    def FindFileContainingSymbol(self, symbol: str) -> Any:  # noqa: N802 (the pool's own name)
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            return self._pool.FindFileContainingSymbol(symbol.rpartition(".")[0])

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


class RpcServer:
    """Add services, `start`, and say of each whether it is serving.

    Services may also be added after the start: until then they answer NOT_READY.
    """

    def __init__(self, *, share_port: bool = False, connection_age_ms: int | None = None) -> None:
        """`share_port`: others may listen there too, if all of them say so; otherwise a taken
        port is an error. `connection_age_ms`: for how long a connection takes new calls; None:
        for ever."""
        limits = Limits(
            message_bytes_max=MESSAGE_BYTES_MAX,
            header_bytes_max=METADATA_BYTES_MAX,
            calls_max=CONCURRENT_CALLS_MAX,
            grace_s=CONNECTION_GRACE_MS / 1_000,
        )
        age_s = None if connection_age_ms is None else connection_age_ms / 1_000
        self._share_port = share_port
        self._server = Http2Server(limits, connection_age_s=age_s)
        # Where the generated code adds services, before the start or after it.
        self.services = cast(grpc.aio.Server, self._server)
        # Streams that would go on for ever end when this is set.
        self.stopping = asyncio.Event()
        self.late = LateServices(self._server.has_service)
        self._server.stand_in = self.late.stand_in
        self._health = health.aio.HealthServicer()  # type: ignore[attr-defined]
        self._serving: dict[str, bool] = {}

    async def start(self, listen: str, services: Sequence[str]) -> int:
        """Binds and serves; every service says NOT_SERVING until told otherwise."""
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self.services)
        self._reflect([*services, health.SERVICE_NAME])
        self.late.expect(services)
        for service in ("", *services):
            await self.set_serving(service, serving=False)
        try:
            return await self._server.start(listen, share_port=self._share_port)
        except OSError as error:
            raise SetupError(why_not_listening(listen, error)) from error

    async def set_serving(self, service: str, *, serving: bool) -> None:
        if self._serving.get(service) is serving:
            return
        self._serving[service] = serving
        status = health_pb2.HealthCheckResponse
        await self._health.set(service, status.SERVING if serving else status.NOT_SERVING)

    async def stop(self, grace_s: float) -> None:
        """Refuses new calls at once and gives those under way `grace_s` to finish."""
        self.stopping.set()
        await self._health.enter_graceful_shutdown()
        await self._server.stop(grace_s)

    def _reflect(self, services: Sequence[str]) -> None:
        """Reflection v1alpha, and v1 with the same messages: the two are equal on the wire."""
        v1 = "grpc.reflection.v1.ServerReflection"
        names = [*services, reflection.SERVICE_NAME, v1]
        pool = _PoolWithMethods()
        reflection.enable_server_reflection(names, self.services, pool)  # type: ignore[arg-type]
        handler = grpc.stream_stream_rpc_method_handler(
            ReflectionServicer(names, pool).ServerReflectionInfo,
            request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
            response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
        )
        self.services.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(v1, {"ServerReflectionInfo": handler}),)
        )
