"""`tally history`, `list` and `top` against a scripted server."""

import time
from typing import Any

import pytest

from counter import errors
from counter.v1 import counter_service_pb2 as pb
from tally.commands.ranking import bars

MINUTE_NS = 60_000_000_000
START_NS = 1_700_000_040_000_000_000  # 2023-11-14 22:14


def fill(answer: pb.GetCountHistoryResponse) -> None:
    """Three steps: one that is not known, one of 1,500, and one with a clear and a correction."""
    answer.step.FromSeconds(60)
    answer.resolution.FromSeconds(60)
    answer.complete_through.FromNanoseconds(START_NS + 3 * MINUTE_NS - 1)
    for number, (delta, count, epoch, known) in enumerate(
        ((0, 0, 0, False), (1_500, 9_000, 0, True), (-7, -7, 1, True))
    ):
        point = answer.points.add(delta=delta, count=count, epoch=epoch, known=known)
        point.start.FromNanoseconds(START_NS + number * MINUTE_NS)
    adjustment = answer.adjustments.add(delta=-7, author="oncall", reason="bug 1")
    adjustment.time.FromNanoseconds(START_NS + 2 * MINUTE_NS + 5)


def test_into_a_pipe_history_is_a_line_for_each_step(tally: Any, script: Any) -> None:
    fill(script.history)
    ran = tally("history", "plays", "a")
    assert (ran.code, ran.err) == (0, "")
    assert ran.table == [
        ["start", "delta", "count", "epoch", "note"],
        ["2023-11-14T22:14:00Z", "", "", "", "not known"],
        ["2023-11-14T22:15:00Z", "1500", "9000", "0", ""],
        ["2023-11-14T22:16:00Z", "-7", "-7", "1", "cleared; adjusted by -7, oncall: bug 1"],
    ]


def test_a_clear_is_noted_where_both_sides_are_known(tally: Any, script: Any) -> None:
    fill(script.history)
    script.history.points[0].known = True
    script.history.points[1].epoch = 2
    script.history.points[2].epoch = 3
    script.history.points[2].saturated = True
    notes = [row[4] for row in tally("history", "plays", "a", "--table").table]
    assert notes == ["note", "", "cleared", "cleared; clamped; adjusted by -7, oncall: bug 1"]


def test_history_as_json(tally: Any, script: Any) -> None:
    fill(script.history)
    document = tally("history", "plays", "a", "--json").json
    assert (document["step_ms"], document["resolution_ms"]) == (60_000, 60_000)
    assert document["complete_through"] == "2023-11-14T22:16:59.999999999Z"
    unknown, known, _ = document["points"]
    assert (unknown["known"], unknown["delta"], unknown["count"]) == (False, None, None)
    assert (known["delta"], known["count"], known["epoch"]) == (1_500, 9_000, 0)
    assert known["start"] == "2023-11-14T22:15:00.000000000Z"
    assert document["adjustments"] == [
        {
            "time": "2023-11-14T22:16:00.000000005Z",
            "delta": -7,
            "author": "oncall",
            "reason": "bug 1",
        }
    ]


def test_history_asks_for_the_range(tally: Any, script: Any) -> None:
    fill(script.history)
    tally("history", "plays", "a")
    request = script.requests[-1]
    assert abs(time.time() - 3_600 - request.start.seconds) < 60
    assert not request.HasField("end")
    assert not request.HasField("step")
    tally("history", "plays", "a", "--last", "7d", "--step", "1h")
    request = script.requests[-1]
    assert abs(time.time() - 7 * 86_400 - request.start.seconds) < 60
    assert request.step.seconds == 3_600
    tally("history", "plays", "a", "--from", "2023-11-14T22:14", "--to", "2023-11-14T23:00Z")
    request = script.requests[-1]
    assert request.start.seconds == 1_700_000_040
    assert request.end.seconds == 1_700_000_040 + 46 * 60


@pytest.mark.parametrize(
    "arguments",
    [
        ("--last", "1h", "--from", "-2h"),
        ("--to", "now"),
        ("--from", "-1h", "--to", "-2h"),
        ("--from", "soon"),
        ("--last", "0s"),
        ("--step", "5"),
    ],
)
def test_a_range_that_makes_no_sense(tally: Any, script: Any, arguments: tuple[str, ...]) -> None:
    ran = tally("history", "plays", "a", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert script.requests == []


def test_a_namespace_without_history(tally: Any, script: Any) -> None:
    script.failure = errors.HistoryOff("plays keeps no history: add `history:` to its file")
    ran = tally("history", "plays", "a")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "tally: plays keeps no history: add `history:` to its file\n"


def test_list(tally: Any, script: Any) -> None:
    script.counts = {f"title-{number:04}": number for number in range(1_500)} | {"other": 1}
    ran = tally("list", "plays", "title-")
    assert ran.table[:2] == [["counter", "count", "epoch"], ["title-0000", "0", ""]]
    assert len(ran.table) == 101
    ran = tally("list", "plays", "--limit", "1200")
    assert len(ran.table) == 1_201
    assert [request.page_size for request in script.requests] == [100, 1_000, 200]
    document = tally("list", "plays", "title-", "--limit", "2", "--json").json
    assert [each["counter"] for each in document["counters"]] == ["title-0000", "title-0001"]
    assert (document["prefix"], document["more"]) == ("title-", True)
    assert document["complete_through"] is not None
    document = tally("list", "plays", "other", "--json").json
    assert (len(document["counters"]), document["more"]) == (1, False)
    assert tally("list", "plays", "nothing").table == [["counter", "count", "epoch"]]
    assert tally("list", "plays", "--limit", "0").code == 2


def test_top(tally: Any, script: Any) -> None:
    script.top.counters_seen = 12_345
    for name, count in (("b", 2_000), ("a", -1)):
        script.top.counters.add(counter_name=name, value=pb.CountValue(count=count))
    ran = tally("top", "plays", "--limit", "2", "--prefix", "x")
    assert ran.table == [["rank", "counter", "count"], ["1", "b", "2,000"], ["2", "a", "-1"]]
    request = script.requests[-1]
    assert (request.limit, request.prefix, request.rank_by) == (2, "x", pb.RANK_BY_COUNT)
    document = tally("top", "plays", "--json").json
    assert (document["counters_seen"], document["growth_from"]) == (12_345, None)
    assert [each["rank"] for each in document["counters"]] == [1, 2]
    assert document["counters"][0]["growth"] is None


def test_top_by_growth(tally: Any, script: Any) -> None:
    script.top.counters.add(counter_name="b", value=pb.CountValue(count=2_000), growth=1_500)
    script.top.growth_from.FromNanoseconds(START_NS)
    script.top.resolution.FromSeconds(60)
    ran = tally("top", "plays", "--growth", "10m")
    assert ran.table == [["rank", "counter", "count", "growth"], ["1", "b", "2,000", "+1,500"]]
    assert script.requests[-1].period.seconds == 600
    document = tally("top", "plays", "--growth", "10m", "--json").json
    assert document["counters"][0]["growth"] == 1_500
    assert document["growth_from"] == "2023-11-14T22:14:00.000000000Z"
    assert document["resolution_ms"] == 60_000


def test_bars() -> None:
    assert bars([], 10) == []
    assert bars([0, -5], 10) == ["", ""]
    assert bars([100, 50, 25, 1, 0, -7], 10) == ["█" * 10, "█" * 5, "██▌", "▏", "", ""]
    assert bars([2**63 - 1, 1], 4) == ["████", "▏"]
