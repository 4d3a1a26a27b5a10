"""A rollup as columns: those of the tables rollups and history, in the order of its fields."""

from typing import Any

import msgspec
from msgspec.structs import astuple

from counter.decoding import UNREADABLE
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
    columns = astuple(rollup)
    if (
        rollup.recent is None
        and _INT64_MIN <= rollup.count <= _INT64_MAX
        and _INT64_MIN <= rollup.total <= _INT64_MAX
    ):
        return columns  # nearly always: the fields are the columns
    count, epoch, cleared_at_ns, through_window, total, changed_window, first_window, recent = (
        columns
    )
    return (
        _wide(count),
        epoch,
        cleared_at_ns,
        through_window,
        _wide(total),
        changed_window,
        first_window,
        None if recent is None else _packed(recent),
    )


def from_columns(columns: tuple[Any, ...]) -> Rollup:
    count, _, _, _, total, _, _, recent = columns
    if recent is None and type(count) is int and type(total) is int:
        return Rollup(*columns)
    _, epoch, cleared_at_ns, through_window, _, changed_window, first_window, _ = columns
    return Rollup(
        _number(count),
        epoch,
        cleared_at_ns,
        through_window,
        _number(total),
        changed_window,
        first_window,
        None if recent is None else _unpacked(recent),
    )


def _wide(number: int) -> _Wide:
    return number if _INT64_MIN <= number <= _INT64_MAX else str(number)


def _number(wide: Any) -> int:
    try:
        return int(wide)
    except (TypeError, ValueError) as error:
        raise StoreDamaged(f"a rollup has {wide!r} in the place of a number") from error


def _packed(recent: Recent) -> bytes:
    deltas = [(window, _wide(delta)) for window, delta in recent.deltas]
    return _encoder.encode((recent.from_window, deltas))


def _unpacked(packed: bytes) -> Recent:
    try:
        from_window, deltas = _decoder.decode(packed)
        return Recent(from_window, tuple((window, int(delta)) for window, delta in deltas))
    except (*UNREADABLE, ValueError) as error:
        raise StoreDamaged(f"the recent windows of a rollup cannot be read: {error}") from error
