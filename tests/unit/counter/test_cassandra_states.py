"""The text of a rollup on Cassandra: read back as it was, also from an older Tally."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counter.errors import StoreDamaged
from counter.rollups import FoldRecord, Recent, Rollup, SetAside
from counter.segments import SegmentRef
from counter.storage.cassandra.states import from_text, to_text

numbers = st.integers(min_value=-(2**200), max_value=2**200)
windows = st.integers(min_value=-1, max_value=2**62)
recents = st.builds(Recent, windows, st.lists(st.tuples(windows, numbers), max_size=20).map(tuple))
rollups = st.builds(
    Rollup,
    count=numbers,
    epoch=windows,
    cleared_at_ns=windows,
    through_window=windows,
    total=numbers,
    changed_window=windows,
    first_window=windows,
    recent=st.none() | recents,
)


@given(rollups)
def test_a_rollup_is_read_as_it_was_written(rollup: Rollup) -> None:
    assert from_text(to_text(rollup)) == rollup


def test_people_can_read_it() -> None:
    rollup = Rollup(5, 1, 9, 90, 12, 88, 7, Recent(80, ((80, 3), (85, -9))))
    assert to_text(rollup) == "5 1 9 90 12 88 7 80/0:3,5:-9"


def test_a_state_of_schema_version_1_has_defaults() -> None:
    assert from_text("7 2 5000 1004") == Rollup(
        7, 2, 5_000, 1_004, total=7, changed_window=1_004, first_window=-1, recent=None
    )
    assert from_text(f"{2**80} 0 0 3").total == 2**80


@pytest.mark.parametrize(
    "text",
    [
        *("", "7", "7 2 5000", "7 2 5000 x", "7 2 5000 1004 7", "7 2 5000 1004 7 8"),
        *("1 2 3 4 5 6 7 8", "1 2 3 4 5 6 7 8/x", "1 2 3 4 5 6 7 8/1:2:3", "1 2 3 4 5 6 7 8/1"),
        *("1 2 3 4 5 6 7 8/ 9", "1 2 3 4 5 6 7 8/9/10"),
    ],
)
def test_anything_else_is_damage(text: str) -> None:
    with pytest.raises(StoreDamaged, match="a rollup cannot be read"):
        from_text(text)


def test_a_record_without_digest_and_set_asides_is_read() -> None:
    """As Tally encoded it before there were any."""
    ref = SegmentRef(1_001, 1, b"s" * 16, 2, 0, 0)
    old = {
        "shard": 3,
        "from_window": 1_000,
        "to_window": 1_004,
        "segments": [tuple(ref)],
        "event_count": 2,
        "namespaces_version": 1,
    }
    decoder = msgspec.msgpack.Decoder(FoldRecord)
    record = decoder.decode(msgspec.msgpack.encode(old))
    assert (record.digest, record.set_aside) == (b"", ())
    assert record.segments == (ref,)
    newer = msgspec.structs.replace(
        record, digest=b"d" * 16, set_aside=(SetAside(ref, "oncall", "unreadable", 5),)
    )
    assert decoder.decode(msgspec.msgpack.encode(newer)) == newer
