"""Scales of charts: round numbers and round times that fit, and how they are written."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count

from counter.clock import NS_PER_S

TICKS_MAX = 6
TICK_ROWS_MIN = 2  # between two labelled values
LABEL_GAP = 3  # at least so many columns between two labels of time

NICE_GROUP_MAX = 2  # times as many points as have to be put together

_MANTISSAS = (10, 20, 25, 40, 50)  # of the distances between values, in tenths
_UNITS = ((10**18, "E"), (10**15, "P"), (10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
_DAY_S = 86_400
# Round times. Labels of months are longer apart, and not all equally long.
_TIME_STEPS_S = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_200, 1_800),
    *(3_600, 7_200, 10_800, 14_400, 21_600, 43_200),
    *(_DAY_S * days for days in (1, 2, 7, 14)),
)
_SLOT_STEPS_S = sorted(
    (*_TIME_STEPS_S, 2_400, 5_400, 28_800, *(_DAY_S * days for days in (3, 4, 5, 28, 56)))
)
_MONTH_STEPS = (1, 2, 3, 6, 12, 24, 60, 120)
_MONTH_S = 28 * _DAY_S  # at least
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Which values the rows of a chart stand for. The edges of labelled rows are round values."""

    low: int
    tick: int  # from one labelled value to the next
    ticks: int
    tick_rows: int

    @property
    def high(self) -> int:
        return self.low + self.tick * self.ticks

    @property
    def rows(self) -> int:
        return self.ticks * self.tick_rows

    @property
    def zero_row(self) -> int:
        """How many rows are below 0."""
        return -self.low // self.tick * self.tick_rows

    def label(self, row: int) -> str:
        """What to write beside the row: the value at its upper edge, if that is a round one.

        Row 0 is the lowest, and -1 the axis below it.
        """
        tick, rest = divmod(row + 1, self.tick_rows)
        return "" if rest else short_number(self.low + tick * self.tick)


def scale_of(values: Sequence[int], rows: int, *, from_zero: bool) -> Scale:
    """The scale that wastes the least room; `from_zero`: 0 is in it, as bars need it."""
    low, high = min(values, default=0), max(values, default=0)
    # A line that is far from 0 shows more without it; one that is flat or near has room for it.
    if from_zero or low == high or (low > 0 and low * 5 <= high * 2):
        low, high = min(low, 0), max(high, 0)
    high = max(high, low + 1)
    ticks_max = max(1, min(TICKS_MAX, rows // TICK_ROWS_MIN))
    best: Scale | None = None
    for tick in _distances():
        first = low // tick
        ticks = -(-high // tick) - first
        # 0 is an edge between rows, so what is below it and what is above have whole ticks each.
        if ticks > max(ticks_max, 2 if low < 0 < high else 1):
            continue
        scale = Scale(low=first * tick, tick=tick, ticks=ticks, tick_rows=max(1, rows // ticks))
        if best is None or scale.high - scale.low < best.high - best.low:
            best = scale
        if tick > high - low:
            break
    assert best is not None
    return best


def _distances() -> Iterator[int]:
    power = 1
    while True:
        for mantissa in _MANTISSAS:
            if not mantissa * power % 10:
                yield mantissa * power // 10
        power *= 10


def short_number(value: int) -> str:
    """Exact, and as short as it gets: 950, 1.5k, -2M, 98,765."""
    plain = f"{value:,}"
    for unit, letter in _UNITS:
        if abs(value) >= unit:
            short = f"{Decimal(value) / unit:f}"
            if "." in short:
                short = short.rstrip("0").rstrip(".")
            return min(short + letter, plain, key=len)
    return plain


@dataclass(frozen=True, kw_only=True)
class TimeTick:
    column: int
    label: str


def time_ticks(start_ns: int, column_ns: float, columns: int) -> list[TimeTick]:
    """Round times on an axis of so many columns, in UTC, as many as have room for their labels."""
    end_ns = start_ns + int(column_ns * columns)
    marks: Iterable[tuple[int, str]] = ()
    for step_s in _TIME_STEPS_S:
        label_columns = len("12:00:00") if step_s < 60 else len("Jan 31")
        if step_s * NS_PER_S >= (label_columns + LABEL_GAP) * column_ns:
            marks = _even_marks(start_ns, end_ns, step_s)
            break
    else:
        fits = (
            months
            for months in _MONTH_STEPS
            if months * _MONTH_S * NS_PER_S >= (len("2026") + LABEL_GAP) * column_ns
        )
        marks = _month_marks(start_ns, end_ns, next(fits, _MONTH_STEPS[-1]))
    return [
        TimeTick(column=int((time_ns - start_ns) / column_ns), label=label)
        for time_ns, label in marks
    ]


def _even_marks(start_ns: int, end_ns: int, step_s: int) -> Iterator[tuple[int, str]]:
    step_ns = step_s * NS_PER_S
    for time_ns in range(-(-start_ns // step_ns) * step_ns, end_ns, step_ns):
        moment = moment_of(time_ns)
        if time_ns % (_DAY_S * NS_PER_S) == 0:
            yield time_ns, f"{moment:%b} {moment.day}"
        else:
            yield time_ns, f"{moment:%H:%M:%S}" if step_s < 60 else f"{moment:%H:%M}"


def _month_marks(start_ns: int, end_ns: int, months: int) -> Iterator[tuple[int, str]]:
    first = moment_of(start_ns)
    month = first.year * 12 + first.month - 1
    while True:
        moment = datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC)
        time_ns = int((moment - _EPOCH).total_seconds()) * NS_PER_S
        if time_ns >= end_ns:
            return
        if time_ns >= start_ns and month % months == 0:
            yield time_ns, f"{moment:%Y}" if moment.month == 1 else f"{moment:%b}"
        month += 1


def moment_of(time_ns: int) -> datetime:
    return _EPOCH + timedelta(seconds=time_ns // NS_PER_S)


def nice_group(step_ns: int, points: int, columns: int) -> int:
    """How many points one column stands for, so that it is a round time where that is possible."""
    if points <= columns:
        return 1
    # One column more than that, because the range may cut the first and the last group.
    least = next(group for group in count(2) if points // group + 2 <= max(columns, 3))
    for step_s in _SLOT_STEPS_S:
        group, rest = divmod(step_s * NS_PER_S, step_ns)
        if not rest and least <= group <= least * NICE_GROUP_MAX:
            return group
    return least
