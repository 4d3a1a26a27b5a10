from collections import Counter

import pytest

from benchmarks.workloads import (
    COUNTERS,
    DUPLICATES,
    HOT,
    MIXED,
    READ_SHARE,
    REPEAT_BACK_MAX,
    REPEAT_SHARE,
    TEN_THOUSAND,
    UNIQUE,
    WORKLOADS,
    ZIPF,
    ZIPF_COUNTERS,
    ZIPF_EXPONENT,
    Stream,
    Workload,
    expected,
)

_SOME = 50_000
_LONGER_THAN_THE_PATTERN = 300_000

every_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=list(WORKLOADS))


def _triples(stream: Stream, count: int) -> list[tuple[str, int, bool]]:
    return list(stream.take(count).each())


@every_workload
def test_the_same_seed_gives_the_same_operations(workload: Workload) -> None:
    assert _triples(Stream(workload, seed=7), _SOME) == _triples(Stream(workload, seed=7), _SOME)


@every_workload
def test_the_size_of_the_pieces_does_not_matter(workload: Workload) -> None:
    whole = Stream(workload).take(3_000)
    stream = Stream(workload)
    pieces = [each for count in (1, 999, 2_000) for each in _triples(stream, count)]
    assert pieces == list(whole.each())


@pytest.mark.parametrize("workload", [UNIQUE, ZIPF, TEN_THOUSAND, MIXED, DUPLICATES])
def test_another_seed_gives_other_operations(workload: Workload) -> None:
    assert Stream(workload, seed=1).take(_SOME) != Stream(workload, seed=2).take(_SOME)


@every_workload
def test_what_was_not_performed_comes_again(workload: Workload) -> None:
    stream = Stream(workload)
    taken = stream.take(1_000)
    stream.give_back(400)
    assert _triples(stream, 400) == list(taken.each())[600:]


@pytest.mark.parametrize("workload", [UNIQUE, ZIPF, HOT, TEN_THOUSAND, MIXED])
def test_without_repeats_every_token_is_new(workload: Workload) -> None:
    operations = Stream(workload).take(_LONGER_THAN_THE_PATTERN)
    assert len(set(operations.tokens)) == _LONGER_THAN_THE_PATTERN


@pytest.mark.parametrize("workload", [UNIQUE, ZIPF, HOT, TEN_THOUSAND, DUPLICATES])
def test_without_reads_everything_is_an_add(workload: Workload) -> None:
    assert not any(Stream(workload).take(_SOME).reads)


def test_unique_never_adds_to_a_counter_twice() -> None:
    operations = Stream(UNIQUE).take(_LONGER_THAN_THE_PATTERN)
    assert len(set(operations.counters)) == _LONGER_THAN_THE_PATTERN


def test_hot_has_one_counter() -> None:
    assert len(set(Stream(HOT).take(_SOME).counters)) == 1


def test_ten_thousand_are_met_evenly() -> None:
    counts = Counter(Stream(TEN_THOUSAND).take(25 * COUNTERS).counters)
    assert len(counts) == COUNTERS
    assert max(counts.values()) < 4 * 25


def test_zipf_follows_its_law() -> None:
    counts = Counter(Stream(ZIPF).take(200_000).counters)
    ranked = [count for _, count in counts.most_common()]
    whole = sum(rank**-ZIPF_EXPONENT for rank in range(1, ZIPF_COUNTERS + 1))
    assert len(counts) <= ZIPF_COUNTERS
    for rank in (1, 2, 10):
        share = rank**-ZIPF_EXPONENT / whole
        assert ranked[rank - 1] / 200_000 == pytest.approx(share, rel=0.1)


def test_mixed_reads_four_times_as_often_as_it_adds() -> None:
    operations = Stream(MIXED).take(_SOME)
    assert sum(operations.reads) / _SOME == pytest.approx(READ_SHARE, abs=0.01)


def test_duplicates_repeat_a_recent_add() -> None:
    stream = Stream(DUPLICATES)
    operations = stream.take(_LONGER_THAN_THE_PATTERN)  # also where the pattern begins again
    repeats = [(number, token) for number, token in enumerate(operations.tokens) if token != number]
    assert len(repeats) / len(operations) == pytest.approx(REPEAT_SHARE, abs=0.01)
    for number, token in repeats:
        assert 0 < number - token <= REPEAT_BACK_MAX
        assert operations.counters[number] == operations.counters[token]
        assert operations.tokens[token] == token, "not the first use of the token"


def test_expected_counts_a_token_once_where_tokens_are_deduped() -> None:
    stream = Stream(DUPLICATES)
    operations = stream.take(_SOME)
    once, always = expected(stream, dedupes=True), expected(stream, dedupes=False)
    assert once.total() == len(set(operations.tokens)) < _SOME
    assert always == Counter(operations.counters)


def test_expected_leaves_reads_out() -> None:
    stream = Stream(MIXED)
    operations = stream.take(_LONGER_THAN_THE_PATTERN)
    adds = [counter for counter, _, read in operations.each() if not read]
    assert expected(stream, dedupes=True) == Counter(adds)


def test_expected_knows_only_what_was_performed() -> None:
    stream = Stream(HOT)
    stream.take(1_000)
    stream.give_back(10)
    assert expected(stream, dedupes=True).total() == 990
