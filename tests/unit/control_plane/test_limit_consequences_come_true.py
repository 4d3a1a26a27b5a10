"""What the plan says of limits comes true."""

from typing import Any

from counter.namespaces import Limits, Strategy
from counter.v1 import counter_service_pb2 as pb
from tests.unit.control_plane.live import NAME, Live, comes_true
from tests.unit.rollup_worker.waiting import until

# Far more than any test has the time for: what is refused once stays refused.
MANY = [f"counter {number}" for number in range(1_000)]


async def limit(live: Live, **limits: Any) -> None:
    await live.define(strategy=Strategy.ACCURATE, limits=Limits(**limits))


async def read_many(live: Live) -> None:
    await live.stub.BatchGetCount(pb.BatchGetCountRequest(namespace=NAME, counter_name=MANY))


@comes_true(("limits.adds_per_s", "added or lower"), ("limits.adds_per_s", "removed or higher"))
async def test_adds_beyond_the_limit_are_refused(live: Live) -> None:
    await live.define(strategy=Strategy.ACCURATE)
    for _ in range(2):
        await live.add_many(*MANY)
    await limit(live, adds_per_s=1)
    await live.add_many(*MANY)  # passes, and whoever comes next waits until it is paid for
    refusal = await live.refusal(live.add())
    assert (refusal.code.name, refusal.reason) == ("RESOURCE_EXHAUSTED", "ADDS_LIMITED")
    assert await live.count(MANY[0]) == 3, "reads are not refused"
    await limit(live, adds_per_s=1_000_000)
    for _ in range(2):
        await live.add_many(*MANY)
    await live.define(strategy=Strategy.ACCURATE)
    await live.add()


@comes_true(("limits.reads_per_s", "added or lower"), ("limits.reads_per_s", "removed or higher"))
async def test_reads_beyond_the_limit_are_refused(live: Live) -> None:
    await live.define(strategy=Strategy.ACCURATE)
    for _ in range(2):
        await read_many(live)
    await limit(live, reads_per_s=1)
    await read_many(live)
    refusal = await live.refusal(live.read())
    assert (refusal.code.name, refusal.reason) == ("RESOURCE_EXHAUSTED", "READS_LIMITED")
    await live.add()
    await limit(live, reads_per_s=1_000_000)
    for _ in range(2):
        await read_many(live)
    await live.define(strategy=Strategy.ACCURATE)
    assert await live.count() == 1


@comes_true(("limits.batch_items", "added or lower"), ("limits.batch_items", "removed or higher"))
async def test_larger_batches_than_the_limit_are_refused(live: Live) -> None:
    await live.define(strategy=Strategy.ACCURATE)
    await live.add_many(*MANY)
    await limit(live, batch_items=10)
    assert (await live.refusal(live.add_many(*MANY[:11]))).reason == "BATCH_TOO_LARGE"
    assert (await live.refusal(read_many(live))).reason == "BATCH_TOO_LARGE"
    await live.add_many(*MANY[:10])
    await limit(live, batch_items=11)
    await live.add_many(*MANY[:11])
    assert await live.count(MANY[0]) == 3


@comes_true(("limits.counters", "added or lower"), ("limits.counters", "removed or higher"))
async def test_further_counters_than_the_limit_are_refused(live: Live) -> None:
    await live.define(strategy=Strategy.ACCURATE)
    await live.add_many("a", "b", "c")
    await live.fold()
    await limit(live, counters=2)
    await until(lambda: counted(live) == 3)  # servers count in the background
    refusal = await live.refusal(live.add("d"))
    assert (refusal.code.name, refusal.reason) == ("RESOURCE_EXHAUSTED", "COUNTERS_LIMITED")
    await live.add("c")
    await limit(live, counters=4)
    await live.add("d")
    assert [await live.count(each) for each in "abcd"] == [1, 1, 2, 1]


@comes_true(("limits.names", "added or changed"), ("limits.names", "removed"))
async def test_names_that_do_not_match_are_refused(live: Live) -> None:
    await live.define(strategy=Strategy.ACCURATE)
    await live.add_many("a", "a1")
    await limit(live, names="[a-z]+")
    await live.add("a")
    assert (await live.refusal(live.add("a1"))).reason == "NAME_NOT_ALLOWED"
    clear = pb.ClearCountRequest(namespace=NAME, counter_name="a1")
    assert (await live.refusal(live.stub.ClearCount(clear))).reason == "NAME_NOT_ALLOWED"
    assert await live.count("a1") == 1, "the count stays and can be read"
    await limit(live, names="[a-z][0-9]")
    assert (await live.refusal(live.add("a"))).reason == "NAME_NOT_ALLOWED"
    await live.add("a1")
    await live.define(strategy=Strategy.ACCURATE)
    await live.add_many("a", "a1", "A")
    assert [await live.count(each) for each in ("a", "a1", "A")] == [3, 3, 1]


def counted(live: Live) -> int | None:
    [traffic] = live.server.traffic()
    return traffic.counters
