"""One channel to the platform: attempts on it, and reads that are repeated until the deadline."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import grpc
from google.protobuf.message import Message

from clients.errors import ClientClosed, CounterError, Overloaded, Unavailable
from clients.failures import Failure, error_of, failure_of_call
from clients.retry import after_read, attempt_timeout_s
from clients.tokens import ClientTokens
from counter.clock import Clock
from counter.v1.counter_service_pb2_grpc import CounterServiceStub
from counter.v1.namespace_service_pb2_grpc import NamespaceServiceStub
from counter.v1.rollup_service_pb2_grpc import RollupServiceStub

MESSAGE_BYTES_MAX = 16 * 1024 * 1024

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    # A peer that is gone without a word is noticed while calls wait for it. Pings are rare enough
    # for servers that count them.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # gRPC's own default waits up to two minutes before it connects again: longer than a deadline.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Clients do not share connections, so that several of them reach several server processes.
    ("grpc.use_local_subchannel_pool", 1),
    # One policy rules: `clients.retry`. So no retries by gRPC, and no service config from DNS.
    ("grpc.enable_retries", 0),
    ("grpc.service_config_disable_resolution", 1),
    ("grpc.service_config", json.dumps({"loadBalancingConfig": [{"round_robin": {}}]})),
)

# A method of a generated stub. Generated code has no types; callers annotate the answer.
Method = Callable[..., Any]


def check_timeout(timeout_s: float) -> float:
    if not timeout_s > 0:
        raise ValueError(f"timeout_s must be above 0, not {timeout_s!r}")
    return timeout_s


class Deadline:
    """When a logical call ends, with all its attempts and waits. Needs a running event loop."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = check_timeout(timeout_s)
        self._now_s = asyncio.get_running_loop().time
        self._end_s = self._now_s() + timeout_s

    def remaining_s(self) -> float:
        return self._end_s - self._now_s()


class Connection:
    """Opens at the first call, on the event loop that is running then."""

    def __init__(
        self,
        target: str,
        *,
        credentials: grpc.ChannelCredentials | None,
        clock: Clock,
        random: Random,
    ) -> None:
        self.target = target
        self.tokens = ClientTokens(clock)
        self.random = random
        self._credentials = credentials
        self._channel: grpc.aio.Channel | None = None
        self._closing = asyncio.Event()
        self._stubs: dict[type, Any] = {}

    @property
    def closed(self) -> bool:
        return self._closing.is_set()

    def check_open(self) -> None:
        if self.closed:
            raise ClientClosed

    @property
    def counters(self) -> Any:
        return self._stub(CounterServiceStub)

    @property
    def namespaces(self) -> Any:
        return self._stub(NamespaceServiceStub)

    @property
    def rollups(self) -> Any:
        return self._stub(RollupServiceStub)

    async def close(self) -> None:
        """Ends calls under way: reads with ClientClosed, writes with what is known of them."""
        self._closing.set()
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close(None)

    async def attempt(self, method: Method, request: Message, *, timeout_s: float) -> Any:
        """Sends once. Answers with the response, or with a Failure."""
        try:
            return await method(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return failure_of_call(error)
        except asyncio.CancelledError:
            # grpc.aio raises this both when our task is cancelled and when its channel is closed.
            task = asyncio.current_task()
            if not self.closed or task is None or task.cancelling():
                raise
            return Failure(
                code=grpc.StatusCode.CANCELLED, message="the client was closed during the call"
            )

    async def pause(self, delay_s: float) -> None:
        """Waits, but not longer than until the client is closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._closing.wait()

    async def read(self, method: Method, request: Message, *, what: str, deadline: Deadline) -> Any:
        """Sends until there is an answer. Only for calls that change nothing."""
        attempts = 0
        while True:
            timeout_s = attempt_timeout_s(deadline.remaining_s())
            response = await self.attempt(method, request, timeout_s=timeout_s)
            if not isinstance(response, Failure):
                return response
            self.check_open()
            attempts += 1
            delay_s = after_read(
                attempts, response, remaining_s=deadline.remaining_s(), random=self.random
            )
            if delay_s is None:
                raise self._read_error(response, what, attempts, deadline)
            await self.pause(delay_s)
            self.check_open()

    def _read_error(
        self, failure: Failure, what: str, attempts: int, deadline: Deadline
    ) -> CounterError:
        error = error_of(failure)
        if not isinstance(error, Overloaded | Unavailable):
            return error
        return type(error)(
            f"{what}: no usable answer from {self.target} within {deadline.timeout_s:g} s "
            f"({attempts} attempts; the last one: {failure.code.name}: {error.message}). "
            "Try again, or give it more time with timeout_s.",
            reason=error.reason,
            code=error.code,
        )

    def _stub(self, kind: type) -> Any:
        self.check_open()
        if self._channel is None:
            self._channel = (
                grpc.aio.insecure_channel(self.target, options=CHANNEL_OPTIONS)
                if self._credentials is None
                else grpc.aio.secure_channel(
                    self.target, self._credentials, options=CHANNEL_OPTIONS
                )
            )
        if kind not in self._stubs:
            self._stubs[kind] = kind(self._channel)
        return self._stubs[kind]
