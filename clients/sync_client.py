"""The synchronous client: the asyncio client on an event loop of its own, in one thread.

There is one implementation of the semantics; this file only carries calls to it.
"""

import asyncio
import copy
import threading
from collections.abc import Coroutine, Iterable, Mapping
from datetime import timedelta
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc

from clients.batch import ITEMS_PER_CALL
from clients.client import TIMEOUT_S_DEFAULT, CounterClient
from clients.errors import ClientClosed
from clients.platform_values import Mistake, Namespace, Namespaces, RollupStatus
from clients.translate import Freshness
from clients.values import Add, AddAndGetResult, AddOutcome, AddResult, CountValue, TokenStatus
from counter.clock import Clock
from counter.tokens import Token

T = TypeVar("T")


class _LoopThread:
    """An event loop in a daemon thread, so that a forgotten `close` does not keep a program up."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="tally-client", daemon=True
        )
        self._thread.start()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._closed:
                call.close()
                raise ClientClosed
            future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C must not leave the call running
            future.cancel()
            raise

    def close(self, last_call: Coroutine[Any, Any, None]) -> None:
        """Runs the last call, lets the others end, and stops. Later calls raise ClientClosed."""
        with self._lock:
            if self._closed:
                last_call.close()
                return
            self._closed = True
            future = asyncio.run_coroutine_threadsafe(self._drain(last_call), self._loop)
        future.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @staticmethod
    async def _drain(last_call: Coroutine[Any, Any, None]) -> None:
        await last_call
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)


class SyncCounterClient:
    """`CounterClient` without `await`, for threads and scripts; any number of threads may share it.

        with SyncCounterClient("127.0.0.1:50051", namespace="video_plays") as client:
            client.add("title-42")
            print(client.get("title-42").count)

    Values, errors, retries and deadlines are those of `CounterClient`. In asyncio code use that
    one: these methods block their thread.
    """

    def __init__(
        self,
        target: str,
        *,
        namespace: str,
        timeout_s: float = TIMEOUT_S_DEFAULT,
        credentials: grpc.ChannelCredentials | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._client = CounterClient(
            target,
            namespace=namespace,
            timeout_s=timeout_s,
            credentials=credentials,
            clock=clock,
            random=random,
        )
        self._thread = _LoopThread()
        self._owns_thread = True

    def in_namespace(self, name: str) -> Self:
        """A client for another namespace, on the same connection; closing it changes nothing.

        likes = client.in_namespace("likes")
        """
        other = copy.copy(self)
        other._client = self._client.in_namespace(name)
        other._owns_thread = False
        return other

    def close(self) -> None:
        """Closes the connection. Writes under way in other threads raise OutcomeUnknown there.

        client.close()  # or use `with`
        """
        if self._owns_thread:
            self._thread.close(self._client.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def add(
        self,
        counter: str,
        delta: int = 1,
        *,
        token: Token | None = None,
        timeout_s: float | None = None,
    ) -> AddResult:
        """Adds `delta`, exactly once; see `CounterClient.add`.

        client.add("title-42", 3)
        """
        return self._thread.run(self._client.add(counter, delta, token=token, timeout_s=timeout_s))

    def add_and_get(
        self,
        counter: str,
        delta: int = 1,
        *,
        token: Token | None = None,
        timeout_s: float | None = None,
    ) -> AddAndGetResult:
        """As `add`, and answers with a count that includes this add.

        print(client.add_and_get("title-42").value.count)
        """
        return self._thread.run(
            self._client.add_and_get(counter, delta, token=token, timeout_s=timeout_s)
        )

    def clear(
        self, counter: str, *, token: Token | None = None, timeout_s: float | None = None
    ) -> AddResult:
        """Sets the counter back to 0; see `CounterClient.clear`.

        client.clear("title-42")
        """
        return self._thread.run(self._client.clear(counter, token=token, timeout_s=timeout_s))

    def get(
        self,
        counter: str,
        *,
        max_staleness: timedelta | None = None,
        at_least: Freshness | None = None,
        timeout_s: float | None = None,
    ) -> CountValue:
        """The count, and how fresh it is; see `CounterClient.get`.

        value = client.get("title-42")
        """
        return self._thread.run(
            self._client.get(
                counter, max_staleness=max_staleness, at_least=at_least, timeout_s=timeout_s
            )
        )

    def batch_add(
        self,
        items: Iterable[Add],
        *,
        items_per_call: int = ITEMS_PER_CALL,
        timeout_s: float | None = None,
    ) -> list[AddOutcome]:
        """Many adds, one outcome each; see `CounterClient.batch_add`.

        outcomes = client.batch_add([Add("title-1"), Add("title-2", 5)])
        """
        adds = list(items)  # in the caller's thread, which is where a generator expects to run
        return self._thread.run(
            self._client.batch_add(adds, items_per_call=items_per_call, timeout_s=timeout_s)
        )

    def batch_get(
        self,
        counters: Iterable[str],
        *,
        max_staleness: timedelta | None = None,
        at_least: Freshness | None = None,
        items_per_call: int = ITEMS_PER_CALL,
        timeout_s: float | None = None,
    ) -> list[CountValue]:
        """Many reads, in order; see `CounterClient.batch_get`.

        first, second = client.batch_get(["title-1", "title-2"])
        """
        names = list(counters)
        return self._thread.run(
            self._client.batch_get(
                names,
                max_staleness=max_staleness,
                at_least=at_least,
                items_per_call=items_per_call,
                timeout_s=timeout_s,
            )
        )

    def token_status(
        self, counter: str, token: Token, *, timeout_s: float | None = None
    ) -> TokenStatus:
        """What became of a token, as far as it is decided now.

        status = client.token_status("title-42", result.token)
        """
        return self._thread.run(self._client.token_status(counter, token, timeout_s=timeout_s))

    def settle(self, counter: str, token: Token, *, timeout_s: float | None = None) -> TokenStatus:
        """Waits until it is decided for ever; see `CounterClient.settle`.

        status = client.settle("title-42", error.token)
        """
        return self._thread.run(self._client.settle(counter, token, timeout_s=timeout_s))

    def new_token(self) -> Token:
        """A token for a call that may be repeated; see `CounterClient.new_token`.

        token = client.new_token()
        """
        return self._client.new_token()

    def namespaces(self, *, timeout_s: float | None = None) -> Namespaces:
        """All namespaces of the platform, of one version.

        names = [namespace.name for namespace in client.namespaces().namespaces]
        """
        return self._thread.run(self._client.namespaces(timeout_s=timeout_s))

    def get_namespace(self, name: str, *, timeout_s: float | None = None) -> Namespace:
        """One namespace; raises NamespaceUnknown if there is none of that name.

        namespace = client.get_namespace("video_plays")
        """
        return self._thread.run(self._client.get_namespace(name, timeout_s=timeout_s))

    def validate_namespaces(
        self, files: Mapping[str, str], *, timeout_s: float | None = None
    ) -> list[Mistake]:
        """All mistakes of namespace files, given as path and content; changes nothing.

        mistakes = client.validate_namespaces({"likes.yaml": "namespace: likes"})
        """
        return self._thread.run(self._client.validate_namespaces(files, timeout_s=timeout_s))

    def rollup_status(self, *, timeout_s: float | None = None) -> RollupStatus:
        """How far the folding of events into rollups has come.

        print(client.rollup_status().folded_through)
        """
        return self._thread.run(self._client.rollup_status(timeout_s=timeout_s))
