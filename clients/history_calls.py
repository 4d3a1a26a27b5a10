"""Calls on the past of counters, and on many counters at once."""

from collections.abc import AsyncIterator
from datetime import timedelta

from clients import translate_history as translate
from clients.history_values import CountAt, CounterEntry, CounterPage, CountHistory, TopCounters
from clients.platform_calls import PlatformCalls
from clients.translate import check_name
from clients.translate_history import Moment, check_size
from counter.v1 import counter_service_pb2 as pb

PAGE_SIZE_DEFAULT = 500
TOP_LIMIT_DEFAULT = 10


class HistoryCalls(PlatformCalls):
    """The part of `CounterClient` that reads the history, lists and ranks."""

    _namespace: str

    async def count_at(
        self, counter: str, time: Moment, *, timeout_s: float | None = None
    ) -> CountAt:
        """The count as of a past time, as near before it as the namespace's history allows.

        `time` is a datetime with its zone, or nanoseconds since 1970. The answer's
        `value.complete_through` is the time that it is exact for. Raises HistoryOff if the
        namespace keeps no history, HistoryTooOld if it no longer knows.

            yesterday = datetime.now(UTC) - timedelta(days=1)
            print((await client.count_at("title-42", yesterday)).value.count)
        """
        response = await self._connection.read(
            self._connection.counters.GetCountAt,
            pb.GetCountAtRequest(
                namespace=self._namespace,
                counter_name=check_name(counter),
                time=translate.moment_message(time, "time"),
            ),
            what=f"the read of {counter!r} in namespace {self._namespace!r} as of a past time",
            deadline=self._deadline(timeout_s),
        )
        return translate.count_at(response)

    async def history(
        self,
        counter: str,
        *,
        start: Moment,
        end: Moment | None = None,
        step: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> CountHistory:
        """What was added in each step of a range of time, and the running count.

        Without an `end` the range ends now; without a `step` it is the finest that covers the
        range. A point that is not `known` lies before what the history keeps. Raises HistoryOff
        if the namespace keeps no history, InvalidRequest if the step is not a multiple of one
        that is kept or if the range has more than 10,000 steps.

            history = await client.history("title-42", start=datetime.now(UTC) - timedelta(hours=1))
            for point in history.points:
                print(point.start, point.delta, point.count)
        """
        response = await self._connection.read(
            self._connection.counters.GetCountHistory,
            pb.GetCountHistoryRequest(
                namespace=self._namespace,
                counter_name=check_name(counter),
                start=translate.moment_message(start, "start"),
                end=translate.optional_moment(end, "end"),
                step=translate.optional_duration(step),
            ),
            what=f"the history of {counter!r} in namespace {self._namespace!r}",
            deadline=self._deadline(timeout_s),
        )
        return translate.count_history(response)

    async def list_counters(
        self,
        prefix: str = "",
        *,
        page_size: int = PAGE_SIZE_DEFAULT,
        timeout_s: float | None = None,
    ) -> AsyncIterator[CounterEntry]:
        """All counters whose names begin with `prefix`, by name; reads page after page.

        A counter is listed from its first fold on. The deadline is for each page. For one page,
        or for the `complete_through` of each, see `list_counters_page`.

            async for entry in client.list_counters("title-"):
                print(entry.counter, entry.value.count)
        """
        page_token = ""
        while True:
            page = await self.list_counters_page(
                prefix, page_size=page_size, page_token=page_token, timeout_s=timeout_s
            )
            for entry in page.counters:
                yield entry
            page_token = page.next_page_token
            if not page_token:
                return

    async def list_counters_page(
        self,
        prefix: str = "",
        *,
        page_size: int = PAGE_SIZE_DEFAULT,
        page_token: str = "",
        timeout_s: float | None = None,
    ) -> CounterPage:
        """One page of `list_counters`: up to `page_size` (1 to 1,000) counters, by name.

        page = await client.list_counters_page("title-")
        next_page = await client.list_counters_page("title-", page_token=page.next_page_token)
        """
        response = await self._connection.read(
            self._connection.counters.ListCounters,
            pb.ListCountersRequest(
                namespace=self._namespace,
                prefix=check_name(prefix, "prefix"),
                page_size=check_size(page_size, "page_size"),
                page_token=check_name(page_token, "page_token"),
            ),
            what=f"the list of the counters in namespace {self._namespace!r}",
            deadline=self._deadline(timeout_s),
        )
        return translate.counter_page(response)

    async def top_counters(
        self,
        *,
        limit: int = TOP_LIMIT_DEFAULT,
        prefix: str = "",
        growth_over: timedelta | None = None,
        timeout_s: float | None = None,
    ) -> TopCounters:
        """The counters with the highest count, or with the largest growth over the last time.

        `growth_over` needs the namespace's history, and raises HistoryOff without one. `limit` is
        1 to 1,000.

            top = await client.top_counters(limit=3, growth_over=timedelta(minutes=10))
            for each in top.counters:
                print(each.counter, each.growth, each.value.count)
        """
        response = await self._connection.read(
            self._connection.counters.TopCounters,
            pb.TopCountersRequest(
                namespace=self._namespace,
                limit=check_size(limit, "limit"),
                prefix=check_name(prefix, "prefix"),
                rank_by=pb.RANK_BY_COUNT if growth_over is None else pb.RANK_BY_GROWTH,
                period=translate.optional_duration(growth_over),
            ),
            what=f"the ranking of the counters in namespace {self._namespace!r}",
            deadline=self._deadline(timeout_s),
        )
        return translate.top_counters(response, by_growth=growth_over is not None)
