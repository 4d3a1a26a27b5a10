"""A counter's history as a chart of characters. Pure: the width, the height and now are given.

added per 1m
 40 ┤          ▃█
    │   ▁▆     ██▂
 20 ┤  ▃██▄   ▅███
    │▂▅████▇▂▄████▆
  0 └────┬─────────┬──
           ▲
       11:50     12:00
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from rich.text import Text

from clients import CountHistory, HistoryPoint
from tally.commands.chart_scale import Scale, nice_group, scale_of, time_ticks

ROWS_MIN = 4
ROWS_MAX = 24
SLOT_COLUMNS_MAX = 10  # of one step, when there are few
COLUMNS_MIN = 10

_RISING = " ▁▂▃▄▅▆▇█"
_HANGING = " ▀█"
_ZERO_LINE = "▔"
UNKNOWN = "░"
ADJUSTED = "▲"
CLEARED = "✕"
# The dots of a braille character, from the lowest to the highest, left and right.
_DOTS = ((0x40, 0x04, 0x02, 0x01), (0x80, 0x20, 0x10, 0x08))

UP, DOWN, LINE, DIM = "green", "red", "cyan", "bright_black"
ADJUSTED_STYLE, CLEARED_STYLE = "bold yellow", "bold magenta"


@dataclass(frozen=True, kw_only=True)
class Slot:
    """What one place on the time axis shows: one step, or several together."""

    start_ns: int
    delta: int
    count: int  # at its end
    known: bool
    cleared: bool
    adjusted: bool


@dataclass(frozen=True, kw_only=True)
class Chart:
    lines: list[Text]
    slot: timedelta  # how much time one slot stands for


def slots_of(history: CountHistory, columns: int) -> tuple[list[Slot], int]:
    """The points, put together where there are more than columns; and how long a slot is, in ns."""
    step_ns = history.step // timedelta(microseconds=1) * 1_000
    group = nice_group(step_ns, len(history.points), columns)
    slot_ns = group * step_ns
    groups: dict[int, list[HistoryPoint]] = {}
    for point in history.points:
        key = point.start_ns // slot_ns if group > 1 else point.start_ns
        groups.setdefault(key, []).append(point)
    slots: list[Slot] = []
    before: HistoryPoint | None = None
    for points in groups.values():
        start_ns, last = points[0].start_ns, points[-1]
        end_ns = last.start_ns + step_ns
        known = all(point.known for point in points)
        slots.append(
            Slot(
                start_ns=start_ns,
                delta=sum(point.delta for point in points),
                count=last.count,
                known=known,
                cleared=known and before is not None and last.epoch > before.epoch,
                adjusted=any(start_ns <= each.time_ns < end_ns for each in history.adjustments),
            )
        )
        before = last if last.known else None
    return slots, slot_ns


def draw(history: CountHistory, *, width: int, rows: int, running: bool) -> Chart:
    """The chart with its axes, at most `width` wide and about `rows` high."""
    rows = min(max(rows, ROWS_MIN), ROWS_MAX)
    # The labels decide how many columns are left, and these, by putting steps together, how
    # large the labels are. More columns only make values smaller: two rounds settle it.
    label_columns = 1
    for _ in range(3):
        columns = max(COLUMNS_MIN, width - label_columns - 2)
        slots, slot_ns = slots_of(history, columns)
        values = [slot.count if running else slot.delta for slot in slots if slot.known]
        scale = scale_of(values, rows if any(values) else ROWS_MIN, from_zero=not running)
        labels = [scale.label(row) for row in range(-1, scale.rows)]
        if max(map(len, labels)) <= label_columns:
            break
        label_columns = max(map(len, labels))
    slot_columns = max(1, min(SLOT_COLUMNS_MAX, columns // max(1, len(slots))))
    cells = (_line_cells if running else _bar_cells)(slots, scale, slot_columns)
    lines = []
    for row in reversed(range(scale.rows)):
        label = scale.label(row)
        line = Text(f"{label:>{label_columns}} {'┤' if label else '│'}", style=DIM)
        line.append_text(cells(row))
        line.rstrip()
        lines.append(line)
    used = slot_columns * len(slots)
    lines += _axis(slots, slot_ns, scale.label(-1).rjust(label_columns), slot_columns, used, width)
    slot = timedelta(microseconds=slot_ns // 1_000)
    return Chart(lines=lines, slot=slot)


def _bar_cells(slots: Sequence[Slot], scale: Scale, slot_columns: int) -> Callable[[int], Text]:
    # Wide bars stand apart; narrow ones touch each other.
    bar_columns = slot_columns - 1 if slot_columns >= 3 else slot_columns
    row_value = scale.tick / scale.tick_rows

    def cells(row: int) -> Text:
        line = Text()
        for slot in slots:
            if not slot.known:
                line.append(UNKNOWN * slot_columns, DIM)
                continue
            if row >= scale.zero_row:
                eighths = max(slot.delta > 0, round(slot.delta / row_value * 8))
                mark, style = _RISING[_within(eighths - (row - scale.zero_row) * 8, 8)], UP
            else:
                halves = max(slot.delta < 0, round(-slot.delta / row_value * 2))
                mark, style = _HANGING[_within(halves - (scale.zero_row - 1 - row) * 2, 2)], DOWN
            blank = " "
            if row == scale.zero_row - 1:
                blank = _ZERO_LINE
                if mark == " ":
                    mark, style = _ZERO_LINE, DIM
            line.append(mark * bar_columns, style)
            line.append(blank * (slot_columns - bar_columns), DIM)
        return line

    return cells


def _within(level: int, highest: int) -> int:
    return min(max(level, 0), highest)


def _line_cells(slots: Sequence[Slot], scale: Scale, slot_columns: int) -> Callable[[int], Text]:
    """A line of dots, which steps up or down where a slot begins."""
    dots_high = scale.rows * 4 - 1
    dots: dict[tuple[int, int], int] = {}

    def put(x: int, y: int) -> None:
        cell = (x // 2, y // 4)
        dots[cell] = dots.get(cell, 0) | _DOTS[x % 2][y % 4]

    before: int | None = None
    for number, slot in enumerate(slots):
        if not slot.known:
            before = None
            continue
        y = round((slot.count - scale.low) / (scale.high - scale.low) * dots_high)
        left = number * slot_columns * 2
        for x in range(left, left + slot_columns * 2):
            put(x, y)
        if before is not None:
            for between in range(min(before, y), max(before, y)):
                put(left, between)
        before = y

    def cells(row: int) -> Text:
        line = Text()
        for number, slot in enumerate(slots):
            for column in range(number * slot_columns, (number + 1) * slot_columns):
                mark = dots.get((column, row))
                if not slot.known:
                    line.append(UNKNOWN, DIM)
                else:
                    line.append(" " if mark is None else chr(0x2800 + mark), LINE)
        return line

    return cells


def _axis(
    slots: Sequence[Slot], slot_ns: int, label: str, slot_columns: int, used: int, width: int
) -> list[Text]:
    """The line below the chart, what happened under it, and times."""
    start_ns = slots[0].start_ns if slots else 0
    # The first slot may be cut by the range; the others begin at round times.
    if len(slots) > 1:
        start_ns = slots[1].start_ns - slot_ns
    ticks = time_ticks(start_ns, slot_ns / slot_columns, used) if slots else []
    line = ["─"] * used
    for tick in ticks:
        line[tick.column] = "┬"
    lines = [Text(f"{label} └{''.join(line)}", style=DIM)]
    indent = " " * (len(label) + 2)
    for mark, style, marked in (
        (ADJUSTED, ADJUSTED_STYLE, [slot.adjusted for slot in slots]),
        (CLEARED, CLEARED_STYLE, [slot.cleared for slot in slots]),
    ):
        if any(marked):
            middle = (slot_columns - 1) // 2
            shown = "".join(
                (" " * middle + (mark if each else " ")).ljust(slot_columns) for each in marked
            )
            lines.append(Text(indent + shown.rstrip(), style=style))
    times = ""
    for tick in ticks:
        first = max(0, len(indent) + tick.column - len(tick.label) // 2)
        if first >= len(times) + bool(times) and first + len(tick.label) <= width:
            times = times.ljust(first) + tick.label
    lines.append(Text(times, style=DIM))
    return lines
