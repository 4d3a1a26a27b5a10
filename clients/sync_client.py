"""The synchronous client: the asyncio client on an event loop of its own, in one thread.

There is one implementation of the semantics; this file only carries calls to it.
"""

import copy
from collections.abc import Iterable, Iterator
from datetime import timedelta
from random import Random
from types import TracebackType
from typing import Self

import grpc

from clients.adds import UNSETTLED_MAX_DEFAULT
from clients.batch import ITEMS_PER_CALL
from clients.client import TIMEOUT_S_DEFAULT, CounterClient
from clients.history_calls import PAGE_SIZE_DEFAULT, TOP_LIMIT_DEFAULT
from clients.history_values import CountAt, CounterEntry, CounterPage, CountHistory, TopCounters
from clients.loop_thread import LoopThread
from clients.soon import OnAddFailed
from clients.sync_namespace_calls import SyncNamespaceCalls
from clients.sync_platform_calls import SyncPlatformCalls
from clients.sync_shadow_calls import SyncShadowCalls
from clients.translate import Freshness
from clients.translate_history import Moment
from clients.values import Add, AddAndGetResult, AddOutcome, AddResult, CountValue, TokenStatus
from counter.clock import Clock
from counter.tokens import Token


class SyncCounterClient(SyncPlatformCalls, SyncNamespaceCalls, SyncShadowCalls):
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
        unsettled_max: int = UNSETTLED_MAX_DEFAULT,
        on_add_failed: OnAddFailed | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self._client = CounterClient(
            target,
            namespace=namespace,
            timeout_s=timeout_s,
            credentials=credentials,
            unsettled_max=unsettled_max,
            on_add_failed=on_add_failed,
            clock=clock,
            random=random,
        )
        self._thread = LoopThread(before_exit=self._client.flush)
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
        """Waits for the adds made with `add_soon`, then closes the connection.

        Writes under way in other threads raise OutcomeUnknown there.

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
        return self._thread.ask(
            lambda waiter: self._client._submit(waiter, counter, delta, token, timeout_s),
            abandoned=lambda: self._client._adds.abandoned(self._client._lane),
        )

    def add_soon(
        self,
        counter: str,
        delta: int = 1,
        *,
        token: Token | None = None,
        timeout_s: float | None = None,
    ) -> Token:
        """As `add`, but does not wait; see `CounterClient.add_soon`.

        What is left when the program ends is settled then, within its deadlines.

            client.add_soon("title-42")
        """
        add, adds = self._client._soon(counter, delta, token, timeout_s), self._client._adds
        self._thread.hand_over(lambda: adds.submit_soon(add), if_room=adds.check_room)
        return add.token

    def flush(self, *, timeout_s: float | None = None) -> None:
        """Waits until all adds made with `add_soon` so far are settled; see `CounterClient.flush`.

        client.flush()
        """
        self._thread.run(self._client.flush(timeout_s=timeout_s))

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

    def adjust(
        self,
        counter: str,
        delta: int,
        *,
        author: str,
        reason: str,
        token: Token | None = None,
        timeout_s: float | None = None,
    ) -> AddResult:
        """Corrects a count that an audit found wrong; see `CounterClient.adjust`.

        client.adjust("title-42", -3, author="oncall", reason="bug 123")
        """
        return self._thread.run(
            self._client.adjust(
                counter, delta, author=author, reason=reason, token=token, timeout_s=timeout_s
            )
        )

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
        return self._thread.ask(
            lambda reader: self._client._ask(reader, counter, max_staleness, at_least, timeout_s)
        )

    def batch_add(
        self,
        items: Iterable[Add],
        *,
        timeout_s: float | None = None,
    ) -> list[AddOutcome]:
        """Many adds, one outcome each; see `CounterClient.batch_add`.

        outcomes = client.batch_add([Add("title-1"), Add("title-2", 5)])
        """
        adds = list(items)  # in the caller's thread, which is where a generator expects to run
        return self._thread.run(self._client.batch_add(adds, timeout_s=timeout_s))

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

    def count_at(self, counter: str, time: Moment, *, timeout_s: float | None = None) -> CountAt:
        """The count as of a past time; see `CounterClient.count_at`.

        print(client.count_at("title-42", datetime.now(UTC) - timedelta(days=1)).value.count)
        """
        return self._thread.run(self._client.count_at(counter, time, timeout_s=timeout_s))

    def history(
        self,
        counter: str,
        *,
        start: Moment,
        end: Moment | None = None,
        step: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> CountHistory:
        """What was added in each step of a range of time; see `CounterClient.history`.

        history = client.history("title-42", start=datetime.now(UTC) - timedelta(hours=1))
        print(sum(point.delta for point in history.points))
        """
        return self._thread.run(
            self._client.history(counter, start=start, end=end, step=step, timeout_s=timeout_s)
        )

    def list_counters(
        self,
        prefix: str = "",
        *,
        page_size: int = PAGE_SIZE_DEFAULT,
        timeout_s: float | None = None,
    ) -> Iterator[CounterEntry]:
        """All counters whose names begin with `prefix`; see `CounterClient.list_counters`.

        for entry in client.list_counters("title-"):
            print(entry.counter, entry.value.count)
        """
        page_token = ""
        while True:
            page = self.list_counters_page(
                prefix, page_size=page_size, page_token=page_token, timeout_s=timeout_s
            )
            yield from page.counters
            page_token = page.next_page_token
            if not page_token:
                return

    def list_counters_page(
        self,
        prefix: str = "",
        *,
        page_size: int = PAGE_SIZE_DEFAULT,
        page_token: str = "",
        timeout_s: float | None = None,
    ) -> CounterPage:
        """One page of `list_counters`; see `CounterClient.list_counters_page`.

        page = client.list_counters_page("title-", page_size=100)
        """
        return self._thread.run(
            self._client.list_counters_page(
                prefix, page_size=page_size, page_token=page_token, timeout_s=timeout_s
            )
        )

    def top_counters(
        self,
        *,
        limit: int = TOP_LIMIT_DEFAULT,
        prefix: str = "",
        growth_over: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> TopCounters:
        """The counters with the highest count or growth; see `CounterClient.top_counters`.

        names = [each.counter for each in client.top_counters(limit=3).counters]
        """
        return self._thread.run(
            self._client.top_counters(
                limit=limit, prefix=prefix, growth_over=growth_over, timeout_s=timeout_s
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
