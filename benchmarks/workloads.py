"""The same work for every system: which counter is added to or read next, by seed.

A workload is a pattern of operations that repeats. The pattern is made once, before anything is
measured, so that a loop under measurement only cuts slices off it; what is done in which order is
the same for every system and in every run. A stream is one system's place in a workload: from how
far it came, `expected` tells what its counters must read, however fast it was.
"""

import random
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")

ZIPF_COUNTERS = 100_000
ZIPF_EXPONENT = 1.1
COUNTERS = 10_000
READ_SHARE = 0.8  # of `mixed`: 80 reads for 20 adds
REPEAT_SHARE = 0.1  # of `duplicates`
# How many operations ago a repeated token was used first, at the most: a retry comes soon.
REPEAT_BACK_MAX = 500
UNIQUE_COUNTERS = 2**30

PATTERN_OPERATIONS = 256_000
# Odd, so that multiplying is a permutation of the range: unique counters, in no order that a
# store's index could profit from.
_SCATTER = 0x9E3779B1


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Consecutive operations of a stream, column by column."""

    counters: Sequence[str]
    # Adds with the same number have the same token, and count once.
    tokens: Sequence[int]
    reads: Sequence[bool]  # True: reads the counter, and the token means nothing

    def __len__(self) -> int:
        return len(self.counters)

    def each(self) -> Iterator[tuple[str, int, bool]]:
        return zip(self.counters, self.tokens, self.reads, strict=True)


@dataclass(frozen=True, kw_only=True)
class Workload:
    name: str
    says: str  # one line for people
    reads: bool = False  # whether some operations are reads
    repeats: bool = False  # whether some adds repeat a token


UNIQUE = Workload(name="unique", says="each add to a counter of its own")
ZIPF = Workload(
    name="zipf", says=f"adds to {ZIPF_COUNTERS:,} counters by Zipf's law, s = {ZIPF_EXPONENT}"
)
HOT = Workload(name="hot", says="adds to one counter")
TEN_THOUSAND = Workload(name="ten_thousand", says=f"adds to {COUNTERS:,} counters, evenly")
MIXED = Workload(
    name="mixed",
    says=f"{READ_SHARE:.0%} reads and the rest adds, over {COUNTERS:,} counters, evenly",
    reads=True,
)
DUPLICATES = Workload(
    name="duplicates",
    says=f"adds to {COUNTERS:,} counters; {REPEAT_SHARE:.0%} repeat a recent one's token",
    repeats=True,
)
WORKLOADS = {each.name: each for each in (UNIQUE, ZIPF, HOT, TEN_THOUSAND, MIXED, DUPLICATES)}


class Stream:
    """One system's way through a workload."""

    def __init__(self, workload: Workload, *, seed: int = 1) -> None:
        self.workload = workload
        # Goes before the numbers of its tokens: no two streams have a token in common.
        self.prefix = f"{secrets.token_hex(6)}-"
        self.position = 0  # operations taken so far
        self._unique = workload is UNIQUE
        self._first = seed % UNIQUE_COUNTERS
        if not self._unique:
            self._names, self._backs, self._reads = _pattern(workload, seed)

    def take(self, count: int) -> Operations:
        """The next operations, in order."""
        first = self.position
        self.position = last = first + count
        numbers = range(first, last)
        if self._unique:
            return Operations(
                counters=[unique_name(self._first + number) for number in numbers],
                tokens=numbers,
                reads=(False,) * count,
            )
        tokens: Sequence[int] = numbers
        if self.workload.repeats:
            backs = _cut(self._backs, first, count)
            tokens = [number - back for number, back in zip(numbers, backs, strict=True)]
        return Operations(
            counters=_cut(self._names, first, count),
            tokens=tokens,
            reads=_cut(self._reads, first, count) if self.workload.reads else (False,) * count,
        )

    def give_back(self, count: int) -> None:
        """The last operations were not performed: the next `take` begins with them."""
        assert 0 <= count <= self.position, (count, self.position)
        self.position -= count


def expected(stream: Stream, *, dedupes: bool, seed: int = 1) -> Counter[str]:
    """What each counter reads once a stream has come to its position."""
    counts: Counter[str] = Counter()
    again = Stream(stream.workload, seed=seed)
    while again.position < stream.position:
        first = again.position
        operations = again.take(min(PATTERN_OPERATIONS, stream.position - first))
        counts.update(
            counter
            for number, (counter, token, read) in enumerate(operations.each(), first)
            if not read and (token == number or not dedupes)
        )
    return counts


def counter_name(number: int) -> str:
    return f"title-{number:010d}"


def unique_name(number: int) -> str:
    return f"title-{number * _SCATTER % UNIQUE_COUNTERS:010d}"


@lru_cache(maxsize=len(WORKLOADS))
def _pattern(workload: Workload, seed: int) -> tuple[list[str], list[int], list[bool]]:
    """The names; how far back the operation is whose token is used; and which are reads."""
    chooser = random.Random(f"{workload.name} {seed}")
    operations = PATTERN_OPERATIONS
    names = _names(workload, chooser)
    backs = [0] * operations if workload.repeats else []
    if workload.repeats:
        for position in range(1, operations):
            if chooser.random() < REPEAT_SHARE:
                back = chooser.randint(1, min(position, REPEAT_BACK_MAX))
                # Of a token that was used twice before, the first use.
                back += backs[position - back]
                if back <= REPEAT_BACK_MAX:
                    backs[position] = back
                    names[position] = names[position - back]
    reads = [chooser.random() < READ_SHARE for _ in range(operations)] if workload.reads else []
    return names, backs, reads


def _names(workload: Workload, chooser: random.Random) -> list[str]:
    if workload is HOT:
        return [counter_name(0)] * PATTERN_OPERATIONS
    if workload is ZIPF:
        names = [counter_name(number) for number in range(ZIPF_COUNTERS)]
        # By a name that says nothing of the rank: neighbours in an index are not all hot.
        chooser.shuffle(names)
        weights = accumulate(rank**-ZIPF_EXPONENT for rank in range(1, ZIPF_COUNTERS + 1))
        return chooser.choices(names, cum_weights=list(weights), k=PATTERN_OPERATIONS)
    names = [counter_name(number) for number in range(COUNTERS)]
    return chooser.choices(names, k=PATTERN_OPERATIONS)


def _cut(pattern: list[T], first: int, count: int) -> list[T]:
    """`count` from `first` on; after the end it begins again."""
    start = first % len(pattern)
    piece = pattern[start : start + count]
    while len(piece) < count:
        piece += pattern[: count - len(piece)]
    return piece
