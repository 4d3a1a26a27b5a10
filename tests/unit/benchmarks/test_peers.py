"""The comparison's own arithmetic, over a peer that is a dictionary."""

from collections import Counter
from collections.abc import Sequence

import pytest

from benchmarks.figures import Figure
from benchmarks.peers.checks import looked_at
from benchmarks.peers.loops import OneByOne, Perform, piece_by_piece
from benchmarks.peers.ratios import CASSANDRA_RATIOS, EMBEDDED_RATIOS, hot_cost, rates, ratios
from benchmarks.peers.reporting import notes, systems, throughputs
from benchmarks.peers.system import Driver, Extent, Load, Peer, Promises, Result, Round
from benchmarks.peers.turns import Pace, Turns
from benchmarks.progress import Progress
from benchmarks.workloads import DUPLICATES, HOT, MIXED, Operations, Stream

_PACE = Pace(round_s=0.01, warm_up_s=0.01, cycles=1)


class _Counters(Peer):
    name = "a dictionary"
    version = "1"

    def __init__(self, *, dedupes: bool = True, forgets: bool = False) -> None:
        self.promises = Promises(
            durability="none", dedupe="by a set", freshness="now", dedupes=dedupes
        )
        self.settled = 0
        self._kept: Counter[str] = Counter()
        self._seen: set[str] = set()
        self._forgets = forgets

    def cpu_s(self) -> dict[str, float]:
        return {"server": 0.0}

    def add(self, counter: str, token: str) -> None:
        if self.promises.dedupes and token in self._seen:
            return
        self._seen.add(token)
        if not (self._forgets and len(self._seen) == 10):
            self._kept[counter] += 1

    async def counts(self, counters: Sequence[str]) -> list[int]:
        return [self._kept[each] for each in counters]

    async def settle(self) -> None:
        self.settled += 1


class _Single(OneByOne):
    def __init__(self, peer: _Counters) -> None:
        super().__init__(peer, "single", "one by one", tasks=3)
        self._counters = peer

    async def performer(self, stream: Stream) -> Perform:
        async def perform(counter: str, token: int, read: bool) -> None:
            if not read:
                self._counters.add(counter, f"{stream.prefix}{token}")

        return perform


class _Batched(Driver):
    extent = Extent.DETAILS

    def __init__(self, peer: _Counters) -> None:
        super().__init__(peer, "batched", "piece by piece")
        self._counters = peer

    async def run(self, stream: Stream, seconds: float) -> Load:
        async def perform(operations: Operations, _: int) -> None:
            for counter, token, read in operations.each():
                if not read:
                    self._counters.add(counter, f"{stream.prefix}{token}")

        return await piece_by_piece(stream, seconds, 2, 100, perform)


def _turns(peer: _Counters) -> Turns:
    return Turns([_Single(peer), _Batched(peer)], Progress(), place="here")


def _round(per_s: float, server_cpu_us: float = 1.0) -> Round:
    return Round(
        operations=int(per_s),
        elapsed_s=1.0,
        client_cpu_s=0.5,
        server_cpu_s={"server": server_cpu_us * per_s / 1_000_000},
        latencies_s=[0.001],
    )


def _result(system: str, *rounds: Round, workload: str = "zipf", keeps: bool = True) -> Result:
    promises = Promises(durability="on disk", dedupe="for an hour", freshness="now", keeps=keeps)
    return Result(system=system, workload=workload, promises=promises, rounds=rounds)


@pytest.mark.parametrize("dedupes", [True, False])
async def test_counts_are_the_sum_of_all_that_was_performed(dedupes: bool) -> None:
    turns = _turns(_Counters(dedupes=dedupes))
    await turns.warm_up(_PACE, extent=Extent.DETAILS)
    for workload in (MIXED, DUPLICATES):
        results = await turns.take(workload, _PACE, extent=Extent.DETAILS)
        assert [len(each.rounds) for each in results] == [1, 1]
        assert all("all exact" in each.checked for each in results)


async def test_a_count_that_is_wrong_ends_the_run() -> None:
    turns = _turns(_Counters(forgets=True))
    with pytest.raises(RuntimeError, match=r"1 of \d+ counts are wrong"):
        await turns.warm_up(_PACE, extent=Extent.DETAILS)


async def test_details_are_left_out_unless_asked_for() -> None:
    turns = _turns(_Counters())
    results = await turns.take(HOT, _PACE, extent=Extent.RATIOS)
    assert [each.system for each in results] == ["single"]


async def test_the_next_system_waits_until_one_is_settled() -> None:
    peer = _Counters()
    await _turns(peer).take(HOT, _PACE, extent=Extent.DETAILS)
    assert peer.settled == 2  # two drivers, one cycle


def test_of_many_counters_the_hottest_are_looked_at() -> None:
    totals = Counter({f"counter {number}": 1 for number in range(20_000)})
    totals["hot"] = 500
    names = looked_at(totals)
    assert len(names) == len(set(names)) == 10_000
    assert "hot" in names


def test_ratios_are_of_rounds_of_the_same_cycle() -> None:
    # The machine was twice as fast in the second cycle: that must not show.
    results = [
        _result("Tally embedded, client.add", _round(300), _round(600)),
        _result("Redis everysec, pipelined", _round(100), _round(200)),
    ]
    [figure] = ratios(results, EMBEDDED_RATIOS)
    assert (figure.value, figure.spread) == (3.0, (3.0, 3.0))
    assert figure.met
    assert figure.explains["beside_adds_per_s"] == 150


def test_what_must_be_shown_has_targets() -> None:
    targets = {
        ratio.name: ratio.target.value
        for ratio in (*EMBEDDED_RATIOS, *CASSANDRA_RATIOS)
        if ratio.target is not None
    }
    assert targets == {
        "Tally embedded / Redis everysec": 2,
        "Tally embedded / PostgreSQL": 10,
        "batched adds / handler that only parses": 0.5,
        "Tally on Cassandra / native counters": 15,
        "Tally on Cassandra / Redis everysec": 1,
    }


def test_a_hot_counter_must_not_cost_more() -> None:
    [figure] = hot_cost(
        [
            _result("Tally embedded, client.add", _round(100, 4.0), workload="hot"),
            _result("Tally embedded, client.add", _round(100, 5.0), workload="ten_thousand"),
        ]
    )
    assert figure.value == pytest.approx(0.8)
    assert figure.met


def test_rates_say_what_they_cost() -> None:
    [figure] = rates([_result("Redis", _round(100, 7.0))])
    assert isinstance(figure, Figure)
    assert figure.explains["server_cpu_us"] == pytest.approx(7.0)


def test_a_peer_that_is_ahead_is_named_with_its_terms() -> None:
    results = [
        _result("Tally embedded, client.add", _round(100)),
        _result("Redis always", _round(150)),
        _result("PostgreSQL", _round(10)),
        _result("Handler that only parses", _round(1_000), keeps=False),
        _result("Tally embedded, client.batch_add", _round(900)),
    ]
    [note] = notes(results)
    assert note.startswith("Ahead in zipf: Redis always at 1.5 times Tally embedded, client.add")
    assert "on disk; for an hour" in note


def test_peers_of_another_place_are_not_compared() -> None:
    ahead = Result(
        system="Redis",
        workload="zipf",
        place="commitlog_sync: batch",
        promises=Promises(durability="", dedupe="", freshness=""),
        rounds=[_round(900)],
    )
    [note] = notes([_result("Tally embedded, client.add", _round(100)), ahead])
    assert note.startswith("No peer is ahead")


def test_what_was_not_measured_is_said_and_not_drawn() -> None:
    missing = Result(system="Redis", workload="zipf", not_measured="redis-server is not installed")
    results = [_result("Tally embedded, client.add", _round(100)), missing]
    assert notes(results)[0] == "Redis is not measured: redis-server is not installed"
    assert [each.system for each in throughputs(results)] == ["Tally embedded, client.add"]
    assert [each["system"] for each in systems(results)] == ["Tally embedded, client.add"]
