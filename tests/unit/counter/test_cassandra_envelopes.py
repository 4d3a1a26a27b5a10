"""Small writes share a request, large ones go alone."""

from collections.abc import Sequence

import pytest

from counter.storage.cassandra.envelopes import envelopes


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([], []),
        ([9], [[9]]),
        ([9] * 8, [[9] * 8]),
        ([9] * 17, [[9] * 8, [9] * 8, [9]]),
        ([2_000, 2_000, 97], [[2_000, 2_000], [97]]),  # 4 KiB are full
        ([9, 50_000, 9], [[50_000], [9, 9]]),  # alone, however large
        ([50_000], [[50_000]]),
    ],
)
def test_envelopes_stay_small(sizes: Sequence[int], wanted: list[list[int]]) -> None:
    assert list(envelopes(sizes, int)) == wanted
