"""What a comparison came to, for charts and for people: bars, notes, and what each system is."""

from collections.abc import Sequence

from benchmarks.peers.system import Result
from benchmarks.peers.tally_cassandra import SINGLE as ON_CASSANDRA
from benchmarks.peers.tally_embedded import SINGLE as EMBEDDED
from benchmarks.series import Throughput

# What the others are compared with in words: an await for each add, and nothing done by hand.
_TALLY = (EMBEDDED, ON_CASSANDRA)


def throughputs(results: Sequence[Result]) -> list[Throughput]:
    return [
        Throughput(
            system=each.system,
            workload=each.workload,
            place=each.place,
            per_s=each.per_s,
            unit=each.unit,
            limit=each.is_limit,
        )
        for each in results
        if each.rounds
    ]


def systems(results: Sequence[Result]) -> list[dict[str, str]]:
    """How each was used and what it promises; once each, with the last look at its counts."""
    described: dict[tuple[str, str], dict[str, str]] = {}
    for each in results:
        if each.promises is None:
            continue
        described[each.system, each.place] = {
            "system": each.system,
            "place": each.place,
            "version": each.version,
            "used": each.idiom,
            "durability": each.promises.durability,
            "dedupe": each.promises.dedupe,
            "freshness": each.promises.freshness,
            "checked": each.checked,
        }
    return list(described.values())


def notes(results: Sequence[Result]) -> list[str]:
    """In sentences: where a peer is ahead, and what was not measured."""
    said = [
        f"{each.system} is not measured: {each.not_measured}"
        for each in results
        if each.not_measured
    ]
    ahead = [sentence for tally in results for sentence in _ahead_of(tally, results)]
    return said + (ahead or ["No peer is ahead of client.add in any workload of this run."])


def _ahead_of(tally: Result, results: Sequence[Result]) -> list[str]:
    if tally.system not in _TALLY or not tally.rounds:
        return []
    peers = [
        each
        for each in results
        if (each.place, each.workload) == (tally.place, tally.workload)
        and each.rounds
        and not each.is_limit
        and not each.system.startswith("Tally")
    ]
    where = f" ({tally.place})" if tally.place else ""
    return [
        f"Ahead in {tally.workload}{where}: {each.system} at {each.per_s / tally.per_s:.1f} times "
        f"{tally.system}, {each.per_s:,.0f} to {tally.per_s:,.0f} {tally.unit}. {_terms(each)}"
        for each in sorted(peers, key=lambda each: -each.per_s)
        if each.per_s > tally.per_s
    ]


def _terms(result: Result) -> str:
    assert result.promises is not None
    return f"Its terms: {result.promises.durability}; {result.promises.dedupe}."
