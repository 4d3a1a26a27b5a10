import json
from pathlib import Path
from typing import Any

import pytest

from counter import errors
from tally.commands.batch_file import BadLine, BatchFile, Row


def write(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


def read(path: Path) -> list[Row | BadLine]:
    with path.open("rb") as stream:
        return list(BatchFile(stream, name=str(path)))


def test_csv_with_and_without_a_header(tmp_path: Path) -> None:
    path = tmp_path / "adds.csv"
    write(path, 'a,1\n\n"b,c",-2\r\n')
    assert read(path) == [
        Row(line=1, counter="a", delta=1, token=None),
        Row(line=3, counter="b,c", delta=-2, token=None),
    ]
    write(path, "\ufeffDelta,Counter\n1,a\n")
    assert read(path) == [Row(line=2, counter="a", delta=1, token=None)]
    write(path, "counter,5\n")
    assert read(path) == [Row(line=1, counter="counter", delta=5, token=None)]


def test_tokens_in_csv_and_json_lines(tmp_path: Path) -> None:
    csv = tmp_path / "adds.csv"
    write(csv, "a,1,t1,2023-11-14T22:13:20.000000001Z\n")
    lines = tmp_path / "adds.jsonl"
    fields = {
        "counter": "a",
        "delta": 1,
        "token": "t1",
        "generation_time": 1_700_000_000 * 10**9 + 1,
    }
    write(lines, json.dumps(fields) + "\n")
    assert read(csv) == read(lines)
    (row,) = read(csv)
    assert isinstance(row, Row)
    assert row.token is not None
    assert row.token.generation_time_ns == 1_700_000_000_000_000_001


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a\n", "has no delta"),
        (",1\n", "has no counter"),
        ("a,many\n", "'many' is not a whole number"),
        ("a,1,t\n", "a token without a generation_time"),
        ("a,1,t,today\n", "'today' is not a time"),
        ("a,1,t,1,x\n", "has 5 columns"),
        ('"a,1\n', "is not CSV"),
        (f"a,{2**63}\n", "does not fit in 64 bits"),
    ],
)
def test_bad_lines_are_reported_and_do_not_stop_the_others(
    tally: Any, script: Any, tmp_path: Path, text: str, problem: str
) -> None:
    file = write(tmp_path / "adds.csv", f"good,1\n{text}good,1\n")
    document = tally("batch", "plays", file, "--json").json
    assert document["applied"] == 2
    assert document["bad_lines"]["count"] == 1
    (bad,) = document["bad_lines"]["first"]
    assert bad["line"] == 2
    assert problem in bad["problem"]
    assert script.counts == {"good": 2}


def test_outcomes_and_exit_code(tally: Any, script: Any, tmp_path: Path) -> None:
    script.refuse = lambda counter, token: (
        errors.InvalidRequest("DELTA_TOO_LARGE", "delta", "too large") if counter == "x" else None
    )
    file = write(tmp_path / "adds.csv", "a,1\nx,9\nb,2\nx,9\na,3,t,1\na,3,t,1\nbroken\n")
    ran = tally("batch", "plays", file)
    assert ran.code == 1
    assert ran.err == ""
    assert ran.table[:6] == [
        ["outcome", "lines", "at lines", "why"],
        ["applied", "3", "", ""],
        ["duplicate", "1", "", "counted before, once"],
        ["refused DELTA_TOO_LARGE", "2", "2, 4", "too large"],
        ["not an add", "1", "7", "line 7 has no delta"],
        [ran.table[5][0]],
    ]
    assert script.counts == {"a": 4, "b": 2}
    document = tally("batch", "plays", file, "--json").json
    assert document["refused"] == [
        {"reason": "DELTA_TOO_LARGE", "count": 2, "message": "too large", "first_lines": [2, 4]}
    ]


def test_all_applied_is_zero_and_stdin_works(tally: Any, script: Any) -> None:
    ran = tally("batch", "plays", "-", stdin="a,1\na,1\n")
    assert ran.code == 0
    ran = tally("batch", "plays", "-", stdin='{"counter": "b", "delta": -1}\n')
    assert ran.code == 0
    assert script.counts == {"a": 2, "b": -1}


def test_strict_sends_nothing_if_a_line_is_bad(tally: Any, script: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "adds.csv", "a,1\nbroken\n")
    ran = tally("batch", "plays", file, "--strict")
    assert ran.code == 1
    assert "line 2 has no delta" in ran.out
    assert script.requests == []
    assert tally("batch", "plays", "-", "--strict", stdin="a,1\n").code == 2


def test_a_large_file_is_added_whole(tally: Any, script: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "adds.csv", "".join(f"c{i % 7},1\n" for i in range(9_001)))
    ran = tally("batch", "plays", file, "--json")
    assert ran.code == 0
    assert ran.json["applied"] == sum(script.counts.values()) == 9_001
    assert len(script.requests) == 9_001


def test_unknown_outcomes_stop_the_import(tally: Any, script: Any, tmp_path: Path) -> None:
    file = write(tmp_path / "adds.csv", "a,1\n" * 4_001)
    script.failure = errors.StoreUnavailable("the store did not answer")
    ran = tally("batch", "plays", file, "--json", "--timeout", "1")
    assert ran.code == 4
    assert ran.json["unknown"]["count"] == 4_000
    assert ran.json["stopped_at_line"] == 4_001
    assert "tally token status" in ran.err


def test_an_interrupted_import_continues_with_its_tokens(
    tally: Any, script: Any, tmp_path: Path
) -> None:
    file = write(tmp_path / "adds.csv", "counter,delta\na,1\nb,2\nc,3\n")
    tokens = tmp_path / "tokens.csv"
    # Everything is applied, but the answer never comes.
    lost = errors.StoreUnavailable("lost")

    def apply_and_fail(counter: str, token: Any) -> errors.TallyError | None:
        if counter == "b":
            script._add("b", 2, token)
            return lost
        return None

    script.refuse = apply_and_fail
    ran = tally("batch", "plays", file, "--write-tokens", str(tokens), "--timeout", "1")
    assert ran.code == 4
    assert "Run the same command again" in ran.err
    script.refuse = lambda counter, token: None
    ran = tally("batch", "plays", file, "--write-tokens", str(tokens), "--json")
    assert ran.code == 0
    assert (ran.json["applied"], ran.json["duplicate"]) == (0, 3)
    assert script.counts == {"a": 1, "b": 2, "c": 3}
    # The file of tokens is itself a file of adds.
    assert tally("batch", "plays", str(tokens), "--json").json["duplicate"] == 3


def test_a_torn_token_file_is_continued_where_it_is_whole(
    tally: Any, script: Any, tmp_path: Path
) -> None:
    file = write(tmp_path / "adds.csv", "a,1\nb,2\n")
    tokens = tmp_path / "tokens.csv"
    tally("batch", "plays", file, "--write-tokens", str(tokens))
    whole = tokens.read_text(encoding="utf-8")
    tokens.write_text(whole[:-1], encoding="utf-8")
    script.counts.clear()
    script.tokens.clear()
    ran = tally("batch", "plays", file, "--write-tokens", str(tokens), "--json")
    assert ran.json["applied"] == 2
    assert tokens.read_text(encoding="utf-8").count("\n") == 3
    assert tokens.read_text(encoding="utf-8").startswith(whole.splitlines()[0] + "\n")


def test_a_logged_token_that_expired_unused_is_replaced(
    tally: Any, script: Any, tmp_path: Path
) -> None:
    file = write(tmp_path / "adds.csv", "a,1\nb,2\n")
    tokens = tmp_path / "tokens.csv"
    header = "counter,delta,token,generation_time,line\n"
    write(tokens, header + "a,1,old,2023-11-14T22:13:20.000000000Z,1\n")
    script.refuse = lambda counter, token: (
        errors.TokenExpired("expired") if token.token == "old" else None
    )
    ran = tally("batch", "plays", file, "--write-tokens", str(tokens), "--json")
    assert ran.code == 0
    assert ran.json["applied"] == 2
    assert script.counts == {"a": 1, "b": 2}
    # The new token is the one that a third run finds.
    ran = tally("batch", "plays", file, "--write-tokens", str(tokens), "--json")
    assert (ran.json["applied"], ran.json["duplicate"]) == (0, 2)
    assert script.counts == {"a": 1, "b": 2}


def test_tokens_of_another_file_are_noticed(tally: Any, script: Any, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    file = write(tmp_path / "adds.csv", "a,1\n")
    tally("batch", "plays", file, "--write-tokens", str(tokens))
    write(tmp_path / "adds.csv", "z,1\n")
    ran = tally("batch", "plays", file, "--write-tokens", str(tokens))
    assert ran.code == 1
    assert "another file" in ran.err
    ran = tally("batch", "plays", file, "--write-tokens", file)
    assert ran.code == 1
    assert "not a file of tokens" in ran.err


def test_files_that_are_none(tally: Any, script: Any, tmp_path: Path) -> None:
    ran = tally("batch", "plays", str(tmp_path / "missing.csv"))
    assert (ran.code, ran.out) == (2, "")
    assert "missing.csv" in ran.err
    ran = tally("batch", "plays", write(tmp_path / "adds.csv", "counter,delta,color\na,1,red\n"))
    assert ran.code == 1
    assert "'color'" in ran.err
    ran = tally("batch", "plays", write(tmp_path / "adds.csv", "a" * 100_000))
    assert ran.code == 1
    assert "line 1" in ran.err
    ran = tally("batch", "nope", write(tmp_path / "adds.csv", "a,1\n"))
    assert ran.code == 1
    assert "'nope'" in ran.err
