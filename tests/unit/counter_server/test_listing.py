"""ListCounters: every counter once, by name, whatever the buckets and pages."""

import asyncio
import base64
import random

import pytest

from counter.clock import ManualClock
from counter.errors import InvalidRequest, StoreUnavailable, Unsupported
from counter.keys import ROLLUP_BUCKETS, counter_hash, namespace_prefix
from counter.namespaces import Cardinality, Namespace, Strategy
from counter.rollups import Recent, Rollup, RollupKey
from counter_server.listing import BUCKETS_AT_ONCE_MAX, Listing, Page
from counter_server.strategies import Source, Value
from tests.unit.counter_server.parts import Parts


class Listed:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.listing = Listing(parts.ledger, parts.rollup_store, parts.layout, parts.clock)

    async def fill(self, *names: str, rollup: Rollup | None = None) -> None:
        namespace = self.parts.namespace
        prefix, buckets = namespace_prefix(namespace.id), ROLLUP_BUCKETS[namespace.cardinality]
        through = self.parts.layout.from_window
        for name in names:
            key = RollupKey(namespace.id, counter_hash(prefix, name) % buckets, name)
            row = rollup or Rollup(len(name), 0, 0, through, len(name), through, through)
            await self.parts.stores.rollup_store.write([(key, row)])

    async def page(self, prefix: str = "", size: int = 0, token: str = "") -> Page:
        return await self.listing.page(self.parts.namespace, prefix, size, token)

    async def names(self, prefix: str = "", size: int = 0) -> list[list[str]]:
        """Page by page, to the end."""
        pages, token = [], ""
        while True:
            page = await self.page(prefix, size, token)
            pages.append([each.counter for each in page.entries])
            token = page.next_token
            if not token:
                return pages


@pytest.fixture
def listed(parts: Parts) -> Listed:
    return Listed(parts)


async def test_nothing_is_one_empty_page(listed: Listed) -> None:
    page = await listed.page()
    assert (page.entries, page.next_token) == ([], "")


@pytest.mark.parametrize("cardinality", list(Cardinality))
@pytest.mark.parametrize("size", [1, 7, 100, 1_000])
async def test_pages_cover_all_counters_once_and_in_order(
    clock: ManualClock, cardinality: Cardinality, size: int
) -> None:
    parts = await Parts.create(clock)
    parts.namespace = Namespace(
        id=3, name="plays", strategy=Strategy.EVENTUAL, cardinality=cardinality
    )
    listed = Listed(parts)
    letters = random.Random(size)
    names = {"".join(letters.choices("abé🎬\x00 ~", k=letters.randint(1, 6))) for _ in range(250)}
    await listed.fill(*names)
    pages = await listed.names(size=size)
    assert [name for page in pages for name in page] == sorted(names, key=str.encode)
    assert all(len(page) == size for page in pages[:-1])
    assert 0 < len(pages[-1]) <= size


async def test_buckets_that_hold_more_than_others_are_read_on(listed: Listed) -> None:
    namespace = listed.parts.namespace
    prefix, buckets = namespace_prefix(namespace.id), ROLLUP_BUCKETS[namespace.cardinality]
    names = [f"n{at:05}" for at in range(3_000)]
    in_one = [name for name in names if counter_hash(prefix, name) % buckets == 5]
    await listed.fill(*in_one)
    assert await listed.names(size=100) == [
        in_one[at : at + 100] for at in range(0, len(in_one), 100)
    ]


async def test_a_prefix_narrows_it(listed: Listed) -> None:
    await listed.fill("a", "ab", "abc", "b", "ab\U0010ffff", "ac")
    assert await listed.names("ab", 2) == [["ab", "abc"], ["ab\U0010ffff"]]
    assert await listed.names("x") == [[]]


async def test_values_are_what_the_rollups_say(listed: Listed) -> None:
    parts = listed.parts
    await parts.write(parts.event("views", 5, "a", age_ms=3_000))
    await parts.write(parts.event("plays", 7, "b", age_ms=2_000))
    await parts.fold_through(parts.window - 1)
    await parts.write(parts.event("views", 100, "c"))
    stamp_ns = parts.layout.complete_through_ns(parts.window - 1)
    page = await listed.page()
    assert page.complete_through_ns == stamp_ns
    assert page.entries == [
        ("plays", Value(7, stamp_ns, 0, 0, Source.ROLLUP)),
        ("views", Value(5, stamp_ns, 0, 0, Source.ROLLUP)),
    ]


async def test_the_stamp_of_a_page_is_that_of_the_oldest_shard(listed: Listed) -> None:
    parts = listed.parts
    await parts.stores.ledger.advance(0, parts.window)
    page = await listed.page()
    behind = (await parts.stores.ledger.watermarks())[1]
    assert page.complete_through_ns == parts.layout.complete_through_ns(behind)


async def test_rolling_windows_are_listed_with_their_hits(listed: Listed) -> None:
    parts = listed.parts
    await parts.define(strategy=Strategy.ROLLING_WINDOW, rolling_window_ms=10_000)
    now = parts.window
    recent = Recent(now - 20, ((now - 15, 100), (now - 9, 5), (now - 5, 7)))
    await listed.fill("views", rollup=Rollup(112, 0, 0, now - 5, 112, now - 5, now - 15, recent))
    [(_, value)] = (await listed.page()).entries
    assert (value.count, value.source) == (12, Source.ROLLUP)
    assert value.window_start_ns == parts.layout.start_ns(now - 9)


@pytest.mark.parametrize("size", [-1, 1_001])
async def test_sizes_out_of_range_are_refused(listed: Listed, size: int) -> None:
    with pytest.raises(InvalidRequest) as refused:
        await listed.page(size=size)
    assert (refused.value.reason, refused.value.field) == ("PAGE_MALFORMED", "page_size")


@pytest.mark.parametrize(
    "token",
    [
        "no base64!",
        "ÿ",
        base64.urlsafe_b64encode(b"").decode(),
        base64.urlsafe_b64encode(b"\x01short").decode(),
        base64.urlsafe_b64encode(b"\x02" + bytes(8) + b"name").decode(),
        base64.urlsafe_b64encode(b"\x01" + bytes(8) + b"\xff\xff").decode(),
    ],
)
async def test_tokens_that_cannot_be_read_are_refused(listed: Listed, token: str) -> None:
    with pytest.raises(InvalidRequest, match="page_token") as refused:
        await listed.page(token=token or "=")
    assert (refused.value.reason, refused.value.field) == ("PAGE_MALFORMED", "page_token")


async def test_a_token_belongs_to_its_namespace_and_prefix(listed: Listed) -> None:
    await listed.fill("aa", "ab", "ac")
    token = (await listed.page("a", 1)).next_token
    assert [each.counter for each in (await listed.page("a", 1, token)).entries] == ["ab"]
    other = Namespace(id=99, name="plays", strategy=Strategy.EVENTUAL)
    for namespace, prefix in ((listed.parts.namespace, ""), (other, "a")):
        with pytest.raises(InvalidRequest, match="another namespace or prefix"):
            await listed.listing.page(namespace, prefix, 1, token)


async def test_buckets_are_read_a_few_at_once(listed: Listed) -> None:
    parts = listed.parts
    parts.namespace = Namespace(
        id=3, name="plays", strategy=Strategy.EVENTUAL, cardinality=Cardinality.HIGH
    )
    release = parts.script.hold("rollup_store.page")
    reading = asyncio.create_task(listed.page())
    for _ in range(300):
        await asyncio.sleep(0)
    assert parts.script.in_flight["rollup_store.page"] == BUCKETS_AT_ONCE_MAX
    release.set()
    await reading


async def test_a_store_that_is_away_is_an_error(listed: Listed) -> None:
    async def page(*_: object, **__: object) -> None:
        raise StoreUnavailable("away")

    listed.parts.script.answers["rollup_store.page"] = page
    with pytest.raises(StoreUnavailable):
        await listed.page()


async def test_best_effort_keeps_no_list(listed: Listed) -> None:
    hits = Namespace(id=9, name="hits", strategy=Strategy.BEST_EFFORT)
    with pytest.raises(Unsupported):
        await listed.listing.page(hits, "", 1, "")
