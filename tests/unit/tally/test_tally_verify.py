"""`tally verify`: its report and its exit codes. The rules have tests of their own."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[3] / "docs" / "verify.md"


def line(**fields: Any) -> str:
    common = {"client": "c", "namespace": "plays", "counter": "a", "outcome": "ok"}
    common |= {"completed_ns": fields["invoked_ns"] + 1}
    return json.dumps(common | fields)


GOOD = [
    line(call="add", invoked_ns=1, token="t1", generation_time_ns=100, delta=5),
    line(call="add", invoked_ns=3, token="t2", generation_time_ns=200, delta=3),
    line(call="get", invoked_ns=10, count=8, complete_through_ns=300, epoch=0),
]
LOST = [*GOOD[:2], line(call="get", invoked_ns=10, count=5, complete_through_ns=300, epoch=0)]


@pytest.fixture
def recorded(tmp_path: Path) -> Any:
    def write(lines: list[str]) -> str:
        path = tmp_path / "history.jsonl"
        path.write_text("".join(each + "\n" for each in lines))
        return str(path)

    return write


def test_a_good_history(tally: Any, nobody: str, recorded: Any) -> None:
    ran = tally("--server", nobody, "verify", recorded(GOOD))
    assert (ran.code, ran.err) == (0, "")
    assert ran.table[0] == [
        "calls: 3, tokens: 2 (0 of unknown outcome), counters: 1 (1 read to the last event)"
    ]
    assert ran.table[1] == ["rule", "checked", "violations", "promise"]
    rules = {row[0]: row[1:3] for row in ran.table[2:]}
    assert rules["I1"] == ["1", "0"]
    assert rules["I7"] == ["2", "0"]
    assert list(rules) == ["I1", "I4", "I5", "I6", "I7", "agreement"]


def test_a_violation_names_the_calls(tally: Any, recorded: Any) -> None:
    path = recorded(LOST)
    ran = tally("verify", path)
    assert ran.code == 1
    said = ran.out.splitlines()[-1]
    assert said.startswith("I1 plays/a: line 3 (get by c) says 5, complete through 300.")
    assert said.endswith("One explanation: line 2 (add by c) was lost")
    document = tally("verify", path, "--json").json
    assert (document["calls"], document["tokens"], document["tokens_unsettled"]) == (3, 2, 0)
    assert document["rules"][0]["violations"] == 1
    [violation] = document["violations"]
    assert (violation["rule"], violation["counter"]) == ("I1", "plays/a")
    assert violation["lines"] == [1, 2, 3]


def test_many_violations_are_not_all_shown(tally: Any, recorded: Any) -> None:
    lines = [
        json.dumps(json.loads(each) | {"counter": f"c{n}"}) for n in range(30) for each in LOST
    ]
    ran = tally("verify", recorded(lines))
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == "... and 10 more; --json has them all"


def test_a_file_that_cannot_be_read(tally: Any, recorded: Any, tmp_path: Path) -> None:
    ran = tally("verify", str(tmp_path / "missing.jsonl"))
    assert (ran.code, ran.out) == (2, "")
    assert "missing.jsonl cannot be read: No such file or directory." in ran.err
    ran = tally("verify", recorded([GOOD[0], '{"client": "c"}']))
    assert (ran.code, ran.out) == (2, "")
    assert "line 2 has no call." in ran.err


def test_the_example_of_the_docs_says_what_the_docs_say(tally: Any, recorded: Any) -> None:
    [history] = re.findall(r"```json\n(.*?)```", DOCS.read_text(), re.DOTALL)
    ran = tally("verify", recorded(history.splitlines()))
    assert ran.code == 1
    [shown] = re.findall(r"\$ tally verify history.jsonl\n(.*?)```", DOCS.read_text(), re.DOTALL)
    words = " ".join(shown.split())
    for said in (ran.out.splitlines()[0], ran.out.splitlines()[-1]):
        assert said in words
