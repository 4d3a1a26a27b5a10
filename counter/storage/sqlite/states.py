"""A rollup as columns: those of the tables rollups and history."""

import msgspec

from counter.errors import StoreDamaged
from counter.rollups import Recent, Rollup

COLUMNS = "count, epoch, cleared_at_ns, through_window, total, changed_window, first_window, recent"
COLUMN_COUNT = 8
# As they are read: rows of schema version 1 have no total and no changed_window.
READ_COLUMNS = (
    "count, epoch, cleared_at_ns, through_window, coalesce(total, count), "
    "coalesce(changed_window, through_window), first_window, recent"
)

# Neither SQLite nor msgpack has integers of more than 64 bits: beyond, their decimal text.
_Wide = int | str
_Packed = tuple[int, tuple[tuple[int, _Wide], ...]]
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Packed)


def to_columns(rollup: Rollup) -> tuple[_Wide | bytes | None, ...]:
    return (
        _wide(rollup.count),
        rollup.epoch,
        rollup.cleared_at_ns,
        rollup.through_window,
        _wide(rollup.total),
        rollup.changed_window,
        rollup.first_window,
        None if rollup.recent is None else _packed(rollup.recent),
    )


def from_columns(
    count: _Wide,
    epoch: int,
    cleared_at_ns: int,
    through_window: int,
    total: _Wide,
    changed_window: int,
    first_window: int,
    recent: bytes | None,
) -> Rollup:
    return Rollup(
        int(count),
        epoch,
        cleared_at_ns,
        through_window,
        int(total),
        changed_window,
        first_window,
        None if recent is None else _unpacked(recent),
    )


def _wide(number: int) -> _Wide:
    return number if _INT64_MIN <= number <= _INT64_MAX else str(number)


def _packed(recent: Recent) -> bytes:
    deltas = [(window, _wide(delta)) for window, delta in recent.deltas]
    return _encoder.encode((recent.from_window, deltas))


def _unpacked(packed: bytes) -> Recent:
    try:
        from_window, deltas = _decoder.decode(packed)
        return Recent(from_window, tuple((window, int(delta)) for window, delta in deltas))
    except (msgspec.MsgspecError, ValueError) as error:
        raise StoreDamaged(f"the recent windows of a rollup cannot be read: {error}") from error
