"""Freshness, and the cutting of rows into statements."""

from hypothesis import given
from hypothesis import strategies as st

from counter.storage.sqlite.database import ROWS_PER_STATEMENT_MAX, chunks
from counter_server.strategies.strategy import ANY_FRESHNESS, Freshness

TIMES = st.integers(0, 100)
ASKED = st.none() | TIMES


@given(ASKED, ASKED, TIMES, TIMES)
def test_an_answer_is_accepted_only_if_it_meets_all_that_was_asked(
    max_staleness_ns: int | None, at_least_ns: int | None, complete_through_ns: int, now_ns: int
) -> None:
    freshness = Freshness(max_staleness_ns=max_staleness_ns, at_least_ns=at_least_ns)
    fresh = max_staleness_ns is None or complete_through_ns + max_staleness_ns >= now_ns
    not_before = at_least_ns is None or complete_through_ns >= at_least_ns
    accepted = complete_through_ns >= freshness.oldest_ns(now_ns)
    assert accepted == (fresh and not_before)


@given(st.integers(-(2**63), 2**63), st.integers())
def test_who_asks_for_nothing_takes_anything(complete_through_ns: int, now_ns: int) -> None:
    assert complete_through_ns >= ANY_FRESHNESS.oldest_ns(now_ns)


@given(ASKED, ASKED, TIMES, TIMES, TIMES)
def test_what_is_accepted_stays_accepted_when_it_is_fresher(
    max_staleness_ns: int | None, at_least_ns: int | None, older_ns: int, by_ns: int, now_ns: int
) -> None:
    freshness = Freshness(max_staleness_ns=max_staleness_ns, at_least_ns=at_least_ns)
    if older_ns >= freshness.oldest_ns(now_ns):
        assert older_ns + by_ns >= freshness.oldest_ns(now_ns)


@given(st.integers(0, 5_000))
def test_chunks_cover_exactly(size: int) -> None:
    rows = range(size)
    cut = list(chunks(rows))
    assert [each for chunk in cut for each in chunk] == list(rows)
    assert all(0 < len(chunk) <= ROWS_PER_STATEMENT_MAX for chunk in cut)
    # Few different statements: every size is a power of two.
    assert all(len(chunk).bit_count() == 1 for chunk in cut)
