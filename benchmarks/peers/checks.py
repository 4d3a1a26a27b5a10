"""After each run the counts are read back: a rate of something that counted wrong means nothing."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from benchmarks.peers.system import Peer
from benchmarks.workloads import Stream, expected

# More would take longer to read back than to count.
_CHECKED_COUNTERS_MAX = 10_000
_HOTTEST = 100


async def check_counts(peer: Peer, streams: Sequence[Stream]) -> str:
    """Compares counts with all that was ever performed; any difference is an error."""
    promises = peer.promises
    if not promises.keeps:
        return "keeps no counts"
    totals: Counter[str] = Counter()
    for stream in streams:
        totals.update(expected(stream, dedupes=promises.dedupes))
    names = looked_at(totals)
    counts = await peer.counts(names)
    wrong = [
        f"{name} reads {count} instead of {totals[name]}"
        for name, count in zip(names, counts, strict=True)
        if count != totals[name]
    ]
    if wrong:
        raise RuntimeError(
            f"{peer.name}: {len(wrong)} of {len(names)} counts are wrong, {wrong[0]}: "
            "its figures would mean nothing"
        )
    repeated = "tokens that came twice counted once" if promises.dedupes else "no dedupe"
    return f"{len(names):,} of {len(totals):,} counters read back, all exact; {repeated}"


def looked_at(totals: Counter[str]) -> list[str]:
    """All of them, or the hottest and some of the others."""
    if len(totals) <= _CHECKED_COUNTERS_MAX:
        return list(totals)
    hottest = [name for name, _ in totals.most_common(_HOTTEST)]
    others = sorted(totals.keys() - set(hottest))
    return hottest + Random(0).sample(others, _CHECKED_COUNTERS_MAX - _HOTTEST)
