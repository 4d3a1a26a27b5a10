import re
import shlex
import time
from typing import Any

import pytest

from counter import errors
from counter.v1 import counter_service_pb2 as pb


def test_add_prints_a_token_that_can_be_pasted_back(tally: Any, script: Any) -> None:
    first = tally("add", "plays", "title-1", "5")
    assert first.code == 0
    assert first.err == ""
    assert first.out.startswith("added +5 to plays/title-1\ntoken: --token ")
    options = shlex.split(first.out.splitlines()[1].removeprefix("token: "))
    again = tally("add", "plays", "title-1", "5", *options)
    assert again.code == 0
    assert again.out.startswith("was counted before, once: +5 to plays/title-1\n")
    assert script.counts == {"title-1": 5}


@pytest.mark.parametrize(
    "arguments",
    [
        ("plays", "title-1", "-5"),
        ("--json", "plays", "title-1", "-5"),
        ("plays", "--json", "title-1", "-5"),
        ("plays", "title-1", "-5", "--json"),
        ("plays", "title-1", "--timeout", "5", "-5", "--json"),
        ("--json", "--", "plays", "title-1", "-5"),
    ],
)
def test_negative_deltas_just_work(tally: Any, script: Any, arguments: tuple[str, ...]) -> None:
    assert tally("add", *arguments).code == 0
    assert script.counts == {"title-1": -5}


def test_a_counter_may_look_like_a_number(tally: Any, script: Any) -> None:
    assert tally("add", "plays", "-7", "3").code == 0
    assert script.counts == {"-7": 3}


def test_an_unknown_option_of_add_is_still_reported(tally: Any, script: Any) -> None:
    ran = tally("add", "plays", "title-1", "--tokne", "x")
    assert (ran.code, ran.out) == (2, "")
    assert "--tokne" in ran.err
    assert "--token" in ran.err.replace("--tokne", "")
    assert script.counts == {}


def test_add_as_json(tally: Any, script: Any) -> None:
    document = tally("add", "plays", "title-1", "2", "--get", "--json").json
    assert document["namespace"] == "plays"
    assert document["counter"] == "title-1"
    assert document["delta"] == 2
    assert document["duplicate"] is False
    assert document["value"]["count"] == 2
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]{8}\.\d{9}Z", document["generation_time"])
    assert "value" not in tally("add", "plays", "title-1", "--json").json


def test_add_and_get_prints_the_count(tally: Any, script: Any) -> None:
    script.counts["title-1"] = 1_000_000
    ran = tally("add", "plays", "title-1", "--get")
    assert ran.out.splitlines()[0] == "added +1 to plays/title-1, count is now 1,000,001"


def test_a_token_needs_its_time(tally: Any, script: Any) -> None:
    ran = tally("add", "plays", "title-1", "--token", "x")
    assert ran.code == 2
    assert ran.err.startswith("tally: --token and --at come together")
    assert script.requests == []


def test_get_is_one_call_and_a_plain_table(tally: Any, script: Any) -> None:
    script.counts = {"a": 1234567, "b": -2}
    script.epochs = {"b": 3}
    ran = tally("get", "plays", "a", "b")
    assert ran.code == 0
    assert len(script.requests) == 1
    assert ran.table[0] == ["counter", "count", "complete through", "epoch", "source"]
    assert ran.table[1][:2] == ["a", "1,234,567"]
    assert re.fullmatch(r"6\.\d s ago", ran.table[1][2])
    assert ran.table[2][:2] + ran.table[2][3:] == ["b", "-2", "3", "rollup"]
    assert not script.requests[0].HasField("max_staleness")


def test_get_as_json(tally: Any, script: Any) -> None:
    script.counts = {"a": 7}
    document = tally("get", "plays", "a", "--json").json
    (counter,) = document["counters"]
    assert document["namespace"] == "plays"
    assert set(counter) == {
        "counter", "count", "complete_through", "epoch", "cleared_at", "strategy", "source",
        "saturated", "window_start", "rate_per_s",
    }  # fmt: skip
    assert (counter["count"], counter["cleared_at"]) == (7, None)
    assert (counter["strategy"], counter["source"]) == ("eventual", "rollup")
    assert (counter["window_start"], counter["rate_per_s"]) == (None, None)


def test_get_shows_the_rate_of_a_rolling_window(tally: Any, script: Any) -> None:
    script.counts, script.rolling_window = {"a": 450}, True
    ran = tally("get", "plays", "a")
    assert ran.table[0][-2:] == ["counted from", "rate/s"]
    assert ran.table[1][-2:] == ["5 min 0 s ago", "1.5"]
    (counter,) = tally("get", "plays", "a", "--json").json["counters"]
    assert (counter["strategy"], counter["rate_per_s"]) == ("rolling_window", 1.5)


def test_get_as_of_a_past_time(tally: Any, script: Any) -> None:
    answer = pb.GetCountAtResponse()
    answer.value.count = 1_234
    answer.value.source = pb.SOURCE_HISTORY
    answer.value.complete_through.FromNanoseconds(1_700_000_039_999_999_999)
    answer.resolution.FromSeconds(60)
    script.count_at = answer
    ran = tally("get", "plays", "a", "b", "--at", "2023-11-14T22:14:20")
    assert ran.code == 0
    assert ran.table == [
        ["counter", "count", "complete through", "resolution", "epoch", "source"],
        ["a", "1,234", "2023-11-14T22:13:59.999999999Z", "1m", "0", "history"],
        ["b", "1,234", "2023-11-14T22:13:59.999999999Z", "1m", "0", "history"],
    ]
    assert [each.time.seconds for each in script.requests] == [1_700_000_060] * 2
    document = tally("get", "plays", "a", "--at", "-1h", "--json").json
    assert document["counters"][0]["resolution_ms"] == 60_000
    asked_s = script.requests[-1].time.seconds
    assert abs(time.time() - 3_600 - asked_s) < 60
    answer.ClearField("resolution")
    assert tally("get", "plays", "a", "--at", "now").table[1][3] == "exact"


def test_get_at_misused(tally: Any, script: Any) -> None:
    for arguments in (("--at", "soon"), ("--at", "-1h", "--accurate")):
        ran = tally("get", "plays", "a", *arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert script.requests == []
    script.failure = errors.HistoryOff("plays keeps no history")
    ran = tally("get", "plays", "a", "--at", "-1h")
    assert (ran.code, ran.err) == (1, "tally: plays keeps no history\n")


def test_get_passes_how_stale_an_answer_may_be(tally: Any, script: Any) -> None:
    tally("get", "plays", "a", "--max-staleness", "1500ms")
    assert script.requests[-1].max_staleness.ToMilliseconds() == 1_500
    tally("get", "plays", "a", "--accurate")
    assert script.requests[-1].HasField("max_staleness")
    assert script.requests[-1].max_staleness.ToMilliseconds() == 0
    ran = tally("get", "plays", "a", "--max-staleness", "soon")
    assert ran.code == 2
    assert "'soon' is not a duration" in ran.err


def test_names_cannot_write_on_the_terminal(tally: Any, script: Any) -> None:
    ran = tally("get", "plays", "a\x1b[31m\tb")
    assert ran.table[1][0] == r"a\x1b[31m\tb"


def test_clear_needs_a_yes(tally: Any, script: Any) -> None:
    script.counts = {"a": 7}
    ran = tally("clear", "plays", "a", stdin="y\n")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert script.counts == {"a": 7}
    assert tally("clear", "plays", "a", "--yes").code == 0
    assert script.counts == {"a": 0}
    assert tally("clear", "plays", "a", "--yes", "--json").json["counter"] == "a"


def test_a_refusal_is_one_line(tally: Any, script: Any) -> None:
    script.refuse = lambda counter, token: errors.InvalidRequest(
        "DELTA_TOO_LARGE", "delta", "delta 5 is too large: at most 3"
    )
    ran = tally("add", "plays", "a", "5")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("tally: ")
    assert "too large" in ran.err
    assert ran.err.count("\n") == 1


def test_an_unknown_namespace_is_refused(tally: Any, script: Any) -> None:
    ran = tally("get", "nope", "a")
    assert ran.code == 1
    assert "'nope'" in ran.err


def test_nobody_listens(tally: Any, nobody: str) -> None:
    started_s = time.monotonic()
    for command in (("add", "plays", "a"), ("get", "plays", "a"), ("status",)):
        ran = tally("--timeout", "0.5", *command, "--server", nobody)
        assert (ran.code, ran.out) == (3, "")
        assert ran.err == (
            f"tally: no server answers at {nobody}. Is it running? Start one with: tally serve\n"
        )
    assert time.monotonic() - started_s < 10


def test_an_unknown_outcome_names_the_command_that_settles_it(tally: Any, script: Any) -> None:
    script.failure = errors.StoreUnavailable("the store did not answer")
    ran = tally("add", "plays", "a b", "5", "--timeout", "1")
    assert (ran.code, ran.out) == (4, "")
    command = shlex.split(ran.err.split("Find out with: ")[1])
    assert command[:3] == ["tally", "token", "status"]
    script.failure = None
    script.token_statuses = [pb.TOKEN_STATUS_NOT_APPLIED]
    settled = tally(*command[1:])
    assert settled.code == 1
    assert settled.out.startswith("not applied")
    assert script.requests[-1].counter_name == "a b"


def test_a_server_that_refuses_reads_for_now(tally: Any, script: Any) -> None:
    script.failure = errors.StoreUnavailable("the store did not answer")
    ran = tally("get", "plays", "a", "--timeout", "0.5")
    assert ran.code == 3
    assert script.address in ran.err


def test_the_option_of_the_command_wins(tally: Any, script: Any, nobody: str) -> None:
    assert tally("--server", nobody, "get", "plays", "a", "--server", script.address).code == 0
    assert tally("get", "plays", "a", "--server", "localhost").code == 2
    assert tally("get", "plays", "a", "--timeout", "0").code == 2
