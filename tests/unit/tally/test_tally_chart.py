# ruff: noqa: E501 (terminals are wider than code)
"""Charts as a terminal shows them, for fixed widths."""

import math
from collections.abc import Collection, Sequence
from datetime import timedelta
from itertools import accumulate, pairwise

import pytest

from clients import Adjustment, CountHistory, HistoryPoint
from tally.commands.chart import ROWS_MAX, draw, slots_of
from tally.commands.chart_scale import nice_group, scale_of, short_number, time_ticks
from tally.commands.history import render

MINUTE_NS = 60_000_000_000
START_NS = 1_700_000_040_000_000_000  # 2023-11-14 22:14


def history(
    deltas: Sequence[int],
    *,
    step_minutes: int = 1,
    base: int = 0,
    unknown: Collection[int] = (),
    cleared: Collection[int] = (),
    adjusted: Collection[int] = (),
) -> CountHistory:
    step_ns = step_minutes * MINUTE_NS
    start_ns = START_NS // step_ns * step_ns
    points = []
    count, epoch = base, 0
    for number, delta in enumerate(deltas):
        if number in cleared:
            count, epoch = 0, epoch + 1
        count += delta
        points.append(
            HistoryPoint(
                start_ns=start_ns + number * step_ns,
                delta=delta,
                count=count,
                epoch=epoch,
                saturated=False,
                known=number not in unknown,
            )
        )
    return CountHistory(
        points=tuple(points),
        step=timedelta(minutes=step_minutes),
        resolution=timedelta(minutes=1),
        complete_through_ns=start_ns + len(deltas) * step_ns - 1,
        adjustments=tuple(
            Adjustment(
                time_ns=start_ns + number * step_ns, delta=-3, author="oncall", reason="bug 1"
            )
            for number in adjusted
        ),
    )


def wave(points: int, middle: int, swing: int, length: float) -> list[int]:
    return [round(middle + swing * math.sin(number / length)) for number in range(points)]


def shown(answer: CountHistory, width: int = 80, *, height: int = 19, running: bool = False) -> str:
    assert answer.complete_through_ns is not None
    lines = render(
        "plays/title-42",
        answer,
        now_ns=answer.complete_through_ns + 6_200_000_001,
        width=width,
        height=height,
        running=running,
    )
    assert all(line.cell_len <= width for line in lines)
    return "\n".join(line.plain for line in lines)


AN_HOUR = """\
plays/title-42  count 21,344  added +61,847 in 1 h
2023-11-14 22:14 to 23:14 UTC · steps of 1m · resolution 1m
complete through 2023-11-14T23:13:59Z (6.2 s ago)

added per 1m
1.6k ┤      ▁▄▅▇███▇▅▄▁                                 ▁▄▆▇███▇▅▄
     │    ▃▆███████████▆▃                             ▃▆██████████
1.2k ┤  ▄█████████████████▄                         ▄█████████████
     │▄█████████████████████▄                     ▄███████████████
 800 ┤████████████████████████▄                 ▄█████████████████
     │██████████████████████████▅▂           ▂▅███████████████████
 400 ┤████████████████████████████▇▄▃▁   ▁▃▄▇█████████████████████
     │████████████████████████████████████████████████████████████
   0 └──────┬─────────┬─────────┬─────────┬─────────┬─────────┬───
                                       ▲
                                                   ✕
          22:20     22:30     22:40     22:50     23:00     23:10
✕ cleared in the step of 2023-11-14T22:59
▲ 2023-11-14T22:47:00Z adjusted by -3, oncall: bug 1"""


def test_an_hour() -> None:
    assert (
        shown(history(wave(60, 900, 700, 7), base=98_000, adjusted=[33], cleared=[45])) == AN_HOUR
    )


AN_HOUR_IN_A_WIDE_TERMINAL = """\
plays/title-42  count 61,847  added +61,847 in 1 h
2023-11-14 22:14 to 23:14 UTC · steps of 1m · resolution 1m · complete through 2023-11-14T23:13:59Z (6.2 s ago)

added per 1m
1.6k ┤            ▁▁▄▄▅▅▇▇██████▇▇▅▅▄▄▁▁                                                                  ▁▁▄▄▆▆▇▇██████▇▇▅▅▄▄
     │        ▃▃▆▆██████████████████████▆▆▃▃                                                          ▃▃▆▆████████████████████
1.2k ┤    ▄▄██████████████████████████████████▄▄                                                  ▄▄██████████████████████████
     │▄▄██████████████████████████████████████████▄▄                                          ▄▄██████████████████████████████
 800 ┤████████████████████████████████████████████████▄▄                                  ▄▄██████████████████████████████████
     │████████████████████████████████████████████████████▅▅▂▂                      ▂▂▅▅██████████████████████████████████████
 400 ┤████████████████████████████████████████████████████████▇▇▄▄▃▃▁▁      ▁▁▃▃▄▄▇▇██████████████████████████████████████████
     │████████████████████████████████████████████████████████████████████████████████████████████████████████████████████████
   0 └──┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────┬───────
      22:15     22:20     22:25     22:30     22:35     22:40     22:45     22:50     22:55     23:00     23:05     23:10"""


def test_an_hour_in_a_wide_terminal() -> None:
    assert shown(history(wave(60, 900, 700, 7)), 140) == AN_HOUR_IN_A_WIDE_TERMINAL


THE_RUNNING_COUNT = """\
plays/title-42  count 21,344  added +61,847 in 1 h
2023-11-14 22:14 to 23:14 UTC · steps of 1m · resolution 1m
complete through 2023-11-14T23:13:59Z (6.2 s ago)

count
150k ┤                                        ⣀⣀⣀⣀⣀
     │              ⣀⣀⣀⡤⠤⠤⠖⠒⠒⠒⠒⠒⠋⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠉⠁    ⡇
     │  ⣀⣀⣀⣀⡤⠤⠤⠖⠒⠋⠉⠉⠁                              ⡇
100k ┤⠉⠉⠁                                          ⡇
     │                                             ⡇
     │                                             ⡇
 50k ┤                                             ⡇
     │                                             ⡇         ⣀⣀⣀⡤⠤
     │                                             ⣇⣀⡤⠤⠤⠖⠒⠒⠋⠉⠁
   0 └──────┬─────────┬─────────┬─────────┬─────────┬─────────┬───
                                                   ✕
          22:20     22:30     22:40     22:50     23:00     23:10
✕ cleared in the step of 2023-11-14T22:59"""


def test_the_running_count() -> None:
    assert (
        shown(history(wave(60, 900, 700, 7), base=98_000, cleared=[45]), running=True)
        == THE_RUNNING_COUNT
    )


FEW_STEPS = """\
plays/title-42  count 14  added +14 in 5 min
2023-11-14 22:14 to 22:19 UTC · steps of 1m · resolution 1m
complete through 2023-11-14T22:18:59Z (6.2 s ago)

added per 1m
5 ┤                                        █████████
  │                                        █████████
4 ┤                    █████████           █████████
  │                    █████████           █████████
3 ┤█████████           █████████           █████████
  │█████████           █████████           █████████
2 ┤█████████           █████████           █████████
  │█████████           █████████           █████████
1 ┤█████████ █████████ █████████ █████████ █████████
  │█████████ █████████ █████████ █████████ █████████
0 └┬─────────┬─────────┬─────────┬─────────┬─────────
 22:14     22:15     22:16     22:17     22:18"""


def test_few_steps() -> None:
    assert shown(history([3, 1, 4, 1, 5]), height=20) == FEW_STEPS


MORE_STEPS_THAN_COLUMNS = """\
plays/title-42  count 7,511,716  added +7,511,716 in 1 d
2023-11-14 22:14 to 2023-11-15 22:14 UTC · steps of 1m, 20m in each column
resolution 1m · complete through 2023-11-15T22:13:59Z (6.2 s ago)

added per 20m
200k ┤              ▁▁▂▁▁
     │        ▂▄▅▇█████████▆▅▃▂                                              ▂
150k ┤    ▁▄▆███████████████████▆▃▁                                      ▂▄▆██
     │ ▂▅▇█████████████████████████▇▄▂                                ▂▅▇█████▄
100k ┤ ███████████████████████████████▇▅▂                          ▃▅██████████
     │ ███████████████████████████████████▅▃▁                  ▁▄▆█████████████
 50k ┤▂██████████████████████████████████████▇▅▃▂▁        ▁▂▄▆▇████████████████
     │█████████████████████████████████████████████▇▇▆▆▇▇██████████████████████
   0 └──────┬────────┬────────┬────────┬────────┬────────┬────────┬────────┬───
                                         ▲
         Nov 15    03:00    06:00    09:00    12:00    15:00    18:00    21:00
▲ 2023-11-15T09:54:00Z adjusted by -3, oncall: bug 1"""


def test_more_steps_than_columns() -> None:
    assert shown(history(wave(1_440, 5_000, 4_000, 200), adjusted=[700])) == MORE_STEPS_THAN_COLUMNS


A_YEAR_OF_DAYS = """\
plays/title-42  count 18,299  added +18,299 in 365 d
2023-11-14 00:00 to 2024-11-13 00:00 UTC · steps of 1d, 5d in each column
resolution 1m · complete through 2024-11-12T23:59:59Z (6.2 s ago)

added per 5d
400 ┤
    │   ▁▃▄▆▇███▇▆▅▃▁                         ▁▃▅▆▇███▇▆▄▂
300 ┤▁▄▆█████████████▆▄▁                   ▂▄▇█████████████▆▃
    │███████████████████▇▄▁             ▂▄▇███████████████████▆▃▁
200 ┤██████████████████████▇▅▃▂▁   ▁▂▄▅██████████████████████████▆▄▃▁▁   ▁▃▄▆█
    │█████████████████████████████████████████████████████████████████████████
100 ┤█████████████████████████████████████████████████████████████████████████
    │█████████████████████████████████████████████████████████████████████████
  0 └─────────┬───────────┬───────────┬────────────┬───────────┬───────────┬──
            2024         Mar         May          Jul         Sep         Nov"""


def test_a_year_of_days() -> None:
    assert shown(history(wave(365, 50, 20, 30), step_minutes=1_440)) == A_YEAR_OF_DAYS


NEGATIVE_DELTAS = """\
plays/title-42  count 705  added +705 in 1 h
2023-11-14 22:14 to 23:14 UTC · steps of 1m · resolution 1m
complete through 2023-11-14T23:13:59Z (6.2 s ago)

added per 1m
 150 ┤
     │      ▁▃▃▂                            ▂▃▃▁
 100 ┤    ▂▆█████▅▁                       ▄█████▆▃
     │   ▅█████████▄                    ▃█████████▆
  50 ┤ ▂████████████▆                  ▅████████████▂
     │▃███████████████▁              ▁▇██████████████▄
   0 ┤▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▀████████████▀▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▔▀███████████
     │                  ▀██████████▀                    ██████████
 -50 ┤                    ▀██████▀                       ▀███████▀
     │                      ▀▀▀▀                           ▀▀▀▀▀
-100 └──────┬─────────┬─────────┬─────────┬─────────┬─────────┬───
          22:20     22:30     22:40     22:50     23:00     23:10"""


def test_negative_deltas() -> None:
    assert shown(history(wave(60, 10, 100, 5))) == NEGATIVE_DELTAS


ONLY_NEGATIVE_DELTAS = """\
plays/title-42  count -24  added -24 in 6 min
2023-11-14 22:14 to 22:20 UTC · steps of 1m · resolution 1m
complete through 2023-11-14T22:19:59Z (6.2 s ago)

added per 1m
  0 ┤█████████▔█████████▔█████████▔█████████▔▔▔▔▔▔▔▔▔▔▔█████████▔
    │█████████ █████████ █████████ █████████
 -2 ┤█████████ █████████           █████████
    │█████████ █████████           █████████
 -4 ┤█████████ █████████           █████████
    │          █████████           █████████
 -6 ┤          █████████           █████████
    │          █████████
 -8 ┤          █████████
    │
-10 └┬─────────┬─────────┬─────────┬─────────┬─────────┬─────────
   22:14     22:15     22:16     22:17     22:18     22:19"""


def test_only_negative_deltas() -> None:
    assert shown(history([-5, -9, -2, -7, 0, -1])) == ONLY_NEGATIVE_DELTAS


NOTHING_WAS_ADDED = """\
plays/title-42  count 7  nothing added in 1 h
2023-11-14 22:14 to 23:14 UTC · steps of 1m · resolution 1m
complete through 2023-11-14T23:13:59Z (6.2 s ago)

added per 1m
1 ┤
  │
  │
  │
0 └──────┬─────────┬─────────┬─────────┬─────────┬─────────┬───
       22:20     22:30     22:40     22:50     23:00     23:10"""


def test_nothing_was_added() -> None:
    assert shown(history([0] * 60, base=7)) == NOTHING_WAS_ADDED


WHAT_IS_NOT_KNOWN = """\
plays/title-42  count 61,847  added +34,356 in 40 min
2023-11-14 22:14 to 23:14 UTC · steps of 1m · resolution 1m
complete through 2023-11-14T23:13:59Z (6.2 s ago)

added per 1m
1.6k ┤░░░░░░░░░░░░░░░░░░░░                              ▁▄▆▇███▇▅▄
     │░░░░░░░░░░░░░░░░░░░░                            ▃▆██████████
1.2k ┤░░░░░░░░░░░░░░░░░░░░▄                         ▄█████████████
     │░░░░░░░░░░░░░░░░░░░░██▄                     ▄███████████████
 800 ┤░░░░░░░░░░░░░░░░░░░░████▄                 ▄█████████████████
     │░░░░░░░░░░░░░░░░░░░░██████▅▂           ▂▅███████████████████
 400 ┤░░░░░░░░░░░░░░░░░░░░████████▇▄▃▁   ▁▃▄▇█████████████████████
     │░░░░░░░░░░░░░░░░░░░░████████████████████████████████████████
   0 └──────┬─────────┬─────────┬─────────┬─────────┬─────────┬───
          22:20     22:30     22:40     22:50     23:00     23:10
░ not known: the history does not reach that far"""


def test_what_is_not_known() -> None:
    assert shown(history(wave(60, 900, 700, 7), unknown=range(20))) == WHAT_IS_NOT_KNOWN


THE_RUNNING_COUNT_WHERE_IT_IS_NOT_KNOWN = """\
plays/title-42  count 61,847  added +34,356 in 40 min
2023-11-14 22:14 to 23:14 UTC · steps of 1m · resolution 1m
complete through 2023-11-14T23:13:59Z (6.2 s ago)

count
75k ┤░░░░░░░░░░░░░░░░░░░░
    │░░░░░░░░░░░░░░░░░░░░
    │░░░░░░░░░░░░░░░░░░░░                                    ⣀⡤⠖⠋
    │░░░░░░░░░░░░░░░░░░░░                                ⣀⡤⠖⠋⠁
50k ┤░░░░░░░░░░░░░░░░░░░░                           ⣀⣀⡤⠖⠋⠁
    │░░░░░░░░░░░░░░░░░░░░                    ⣀⣀⡤⠤⠖⠒⠋⠁
    │░░░░░░░░░░░░░░░░░░░░   ⣀⣀⡤⠤⠤⠖⠒⠒⠒⠒⠒⠒⠋⠉⠉⠉⠉⠁
    │░░░░░░░░░░░░░░░░░░░░⠒⠋⠉⠁
25k └──────┬─────────┬─────────┬─────────┬─────────┬─────────┬───
         22:20     22:30     22:40     22:50     23:00     23:10
░ not known: the history does not reach that far"""


def test_the_running_count_where_it_is_not_known() -> None:
    assert (
        shown(history(wave(60, 900, 700, 7), unknown=range(20)), running=True)
        == THE_RUNNING_COUNT_WHERE_IT_IS_NOT_KNOWN
    )


NOTHING_IS_KNOWN = """\
plays/title-42  nothing is known of this time
2023-11-14 22:14 to 22:44 UTC · steps of 1m · resolution 1m
complete through 2023-11-14T22:43:59Z (6.2 s ago)

added per 1m
1 ┤░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
  │░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
  │░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
  │░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
0 └──┬─────────┬─────────┬─────────┬─────────┬─────────┬───────
   22:15     22:20     22:25     22:30     22:35     22:40
░ not known: the history does not reach that far"""


def test_nothing_is_known() -> None:
    assert shown(history([0] * 30, unknown=range(30))) == NOTHING_IS_KNOWN


def test_slots_sum_deltas_and_keep_the_last_count() -> None:
    answer = history(list(range(1, 121)), cleared=[70], adjusted=[3])
    slots, slot_ns = slots_of(answer, 50)
    assert slot_ns == 5 * MINUTE_NS
    assert sum(slot.delta for slot in slots) == sum(range(1, 121))
    # The range begins at 22:14, so the first slot has one step, and the others begin at fives.
    assert [slot.start_ns % slot_ns for slot in slots[1:]] == [0] * (len(slots) - 1)
    assert slots[0].delta == 1
    assert slots[1].delta == 2 + 3 + 4 + 5 + 6
    assert slots[1].count == list(accumulate(range(1, 7)))[-1]
    assert [number for number, slot in enumerate(slots) if slot.adjusted] == [1]
    assert [number for number, slot in enumerate(slots) if slot.cleared] == [14]


def test_a_slot_is_known_if_all_its_steps_are() -> None:
    slots, _ = slots_of(history([1] * 120, unknown=range(3)), 50)
    assert [slot.known for slot in slots[:3]] == [False, False, True]


@pytest.mark.parametrize("width", [20, 41, 80, 140, 300])
@pytest.mark.parametrize("points", [1, 2, 7, 59, 61, 500, 10_000])
@pytest.mark.parametrize("step_minutes", [1, 7])
@pytest.mark.parametrize("running", [False, True])
def test_every_chart_fits(width: int, points: int, step_minutes: int, running: bool) -> None:
    deltas = [(number * 7919) % 2_003 - 700 for number in range(points)]
    answer = history(deltas, step_minutes=step_minutes)
    chart = draw(answer, width=width, rows=12, running=running)
    assert max(line.cell_len for line in chart.lines) <= width
    assert len(chart.lines) <= 12 + 2
    drawn = "".join(line.plain for line in chart.lines)
    assert set(drawn) & set("▁▂▃▄▅▆▇█▀") or running


def test_the_height_has_limits() -> None:
    answer = history([1, 2, 3])
    assert len(draw(answer, width=80, rows=1_000, running=False).lines) <= ROWS_MAX + 2
    assert len(draw(answer, width=80, rows=-5, running=False).lines) >= 4


def test_no_points_at_all() -> None:
    answer = history([])
    assert "nothing is known" in shown(answer)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"), (950, "950"), (1_000, "1k"), (1_500, "1.5k"), (-2_000_000, "-2M"),
        (98_765, "98,765"), (1_002_000_000, "1.002G"), (10**12, "1T"), 
        (5 * 10**18, "5E"), (100_000, "100k"), (10, "10"),
    ],
)  # fmt: skip
def test_numbers_are_short_and_exact(value: int, text: str) -> None:
    assert short_number(value) == text


@pytest.mark.parametrize("rows", [4, 5, 12, 24])
@pytest.mark.parametrize(
    "values",
    [[], [0], [1], [-1], [3, 7], [98_765, 98_770], [-5, 7], [-1, 10**6], [2**63 - 1, -(2**63)]],
)
@pytest.mark.parametrize("from_zero", [False, True])
def test_a_scale_holds_all_values(values: list[int], rows: int, from_zero: bool) -> None:
    scale = scale_of(values, rows, from_zero=from_zero)
    assert scale.low <= min(values, default=0)
    assert scale.high >= max(values, default=0)
    assert scale.rows <= rows
    if from_zero:
        assert scale.low <= 0 <= scale.high
        assert scale.low % scale.tick == 0


def test_a_scale_wastes_little() -> None:
    assert scale_of([7], 12, from_zero=True).high == 8
    assert scale_of([98_760, 98_768], 12, from_zero=False).low == 98_760
    assert scale_of([1], 12, from_zero=True).rows == 12


def test_labels_of_time_are_round_and_apart() -> None:
    for minutes in (0.01, 0.1, 1, 5, 60, 1_440, 43_200):
        column_ns = minutes * MINUTE_NS
        ticks = time_ticks(START_NS, column_ns, 75)
        assert 1 <= len(ticks) <= 10, minutes
        for first, second in pairwise(ticks):
            assert second.column - first.column >= len(first.label) + 2
    assert [tick.label for tick in time_ticks(START_NS, MINUTE_NS, 30)] == [
        "22:20", "22:30", "22:40",
    ]  # fmt: skip


def test_groups_are_round_times_where_that_is_possible() -> None:
    assert nice_group(MINUTE_NS, 60, 75) == 1
    assert nice_group(MINUTE_NS, 1_440, 75) == 20
    assert nice_group(7 * MINUTE_NS, 1_000, 75) == 14
