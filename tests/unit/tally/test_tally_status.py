"""`tally status` of a fleet: what is behind or stuck, where, and why."""

import io
import re
import sys
import time
from typing import Any

import pytest

from counter.v1 import rollup_service_pb2 as rollup_pb
from tally.commands.status_view import _ranges
from tally.main import main

MEMBERS = [
    f"tally-worker-7d9f8b6c5-x2x4z.eu-west-1.compute.internal-{number}1-a1b2c3d{number}"
    for number in range(3)
]
DAMAGE = "segment 00ff cannot be read: restore it, or let it not count: tally quarantine 00ff"
SHARDS = 16
COLUMNS = 80


def fleet(*, stuck: tuple[int, ...] = (), lag_s: int = 2_800) -> rollup_pb.GetRollupStatusResponse:
    """Three workers, by turns; every shard that is stuck is so for the same reason."""
    answer = rollup_pb.GetRollupStatusResponse(region="eu-west-1")
    now_ns = time.time_ns()
    answer.window.FromMilliseconds(5_000)
    answer.closed_through.FromNanoseconds(now_ns - 8_000_000_000)
    answer.folded_through.FromNanoseconds(now_ns - lag_s * 1_000_000_000)
    for number, member in enumerate(MEMBERS):
        shards = range(number, SHARDS, len(MEMBERS))
        answer.workers.add(member=member, shards=shards, passes_in_parallel=4)
    for shard in range(SHARDS):
        shard_lag_s = lag_s if shard in stuck else 9
        status = answer.shards.add(
            shard=shard,
            owner=MEMBERS[shard % len(MEMBERS)],
            queue_depth=shard_lag_s // 5 if shard in stuck else 0,
            batch_counters=1_000,
            folded_events=12_345_678,
            duplicate_events=2,
            last_pass_events=20_000,
            problem=DAMAGE if shard in stuck else "",
        )
        status.last_pass_time.FromMilliseconds(83)
        status.watermark.FromNanoseconds(now_ns - shard_lag_s * 1_000_000_000)
        status.lag.FromSeconds(shard_lag_s)
    return answer


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[str]:
    """The lines on a terminal of 80 columns, without colours."""
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("TERM", "xterm")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Tty())
        assert main(list(arguments)) == 0
        text = sys.stdout.getvalue()  # type: ignore[attr-defined]
    return [line.rstrip() for line in re.sub(r"\x1b\[[\d;]*m", "", text).splitlines()]


def test_a_fleet_that_is_well(tally: Any, script: Any, rollups: Any) -> None:
    rollups.status = fleet()
    ran = tally("status")
    assert (ran.code, ran.err) == (0, "")
    assert ["queue", "empty"] in ran.table
    assert ["workers", "3, up to 12 passes at once"] in ran.table
    assert [MEMBERS[1], "4", "0", "1, 4, 7, 10, 13"] in ran.table
    assert "problem" not in ran.out
    assert "watermark" not in ran.out  # no shard is worth showing


def test_what_is_stuck_is_shown_with_the_reason_without_being_asked_for(
    tally: Any, script: Any, rollups: Any
) -> None:
    rollups.status = fleet(stuck=(3, 4, 5, 9))
    rollups.status.problem = f"shard 3: {DAMAGE}"
    ran = tally("status")
    assert ran.code == 0
    assert ["queue", "2,240 windows of 4 shards to fold"] in ran.table
    assert ["largest lag", "46 min 40 s (shard 3 of 16)"] in ran.table
    rows = {row[0]: row for row in ran.table if len(row) == 10}
    assert set(rows) == {"shard", "3", "4", "5", "9"}
    row = dict(zip(rows["shard"], rows["3"], strict=True))
    assert row["lag"] == "46 min 40 s"
    assert row["queue"] == "560"
    assert row["batch"] == "1000"
    assert row["last pass"] == "20,000 in 83 ms"
    assert row["owner"] == MEMBERS[0]
    assert row["folded"] == "12,345,678"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["watermark"])
    # One line for all that have the same trouble, and not again as the problem as a whole.
    assert re.findall("problem: .*", ran.out) == [f"problem: shards 3-5, 9: {DAMAGE}"]


def test_shards_that_are_far_behind_are_shown_too(tally: Any, script: Any, rollups: Any) -> None:
    rollups.status = fleet(stuck=tuple(range(15)), lag_s=70)
    for shard in rollups.status.shards:
        shard.problem = ""
    ran = tally("status")
    assert len([row for row in ran.table if len(row) == 10]) == 11  # with the header
    assert "problem" not in ran.out


def test_a_worker_with_a_problem_is_named(tally: Any, script: Any, rollups: Any) -> None:
    rollups.status = fleet()
    rollups.status.workers[2].problem = "its clock is off"
    rollups.status.problem = f"worker {MEMBERS[2]}: its clock is off"
    ran = tally("status")
    assert re.findall("problem: .*", ran.out) == [f"problem: worker {MEMBERS[2]}: its clock is off"]


def test_many_problems_are_not_all_told(tally: Any, script: Any, rollups: Any) -> None:
    rollups.status = fleet(stuck=tuple(range(SHARDS)))
    for shard in rollups.status.shards:
        shard.problem = f"trouble {shard.shard}"
    told = re.findall("problem: .*", tally("status").out)
    assert told[0] == "problem: shard 0: trouble 0"
    assert told[10:] == ["problem: and 6 more: see --json"]


def test_a_problem_of_the_answering_worker_alone(tally: Any, script: Any, rollups: Any) -> None:
    rollups.problem = "the disk is full"
    assert "problem: the disk is full" in tally("status").out


def test_the_document_for_programs(tally: Any, script: Any, rollups: Any) -> None:
    rollups.status = fleet(stuck=(3,))
    document = tally("status", "--json").json["rollups"]
    shard = document["shards"][3]
    assert shard["owner"] == MEMBERS[0]
    assert shard["queue_depth"] == 560
    assert shard["batch_counters"] == 1_000
    assert shard["problem"] == DAMAGE
    assert shard["lag_ms"] == 2_800_000
    assert document["shards"][0]["problem"] is None
    assert document["workers"][1] == {
        "member": MEMBERS[1],
        "shards": [1, 4, 7, 10, 13],
        "passes_in_parallel": 4,
        "problem": None,
    }


@pytest.mark.parametrize("lag_s", [9, 2_800, 50_000, 3_000_000])
def test_it_fits_into_80_columns(
    monkeypatch: pytest.MonkeyPatch, script: Any, rollups: Any, lag_s: int
) -> None:
    rollups.status = fleet(stuck=(3, 7), lag_s=lag_s)
    lines = drawn(monkeypatch, "status", "--shards")
    tables = [line for line in lines if not line.startswith("problem: ")]
    assert max(len(line) for line in tables) <= COLUMNS
    header = next(line for line in lines if line.startswith("shard "))
    assert header.split() == [
        "shard",
        "watermark",
        "lag",
        "queue",
        "batch",
        "last",
        "pass",
        "owner",
    ]
    rows = [line for line in lines if line.endswith(("…-a1b2c3d0", "…-a1b2c3d1", "…-a1b2c3d2"))]
    assert len(rows) == SHARDS  # none goes over two lines, and all owners can be told apart
    assert any("tally-worker-7d9f8b…internal-21-a1b2c3d2" in line for line in lines)


def test_one_worker_is_not_repeated_in_every_line(
    monkeypatch: pytest.MonkeyPatch, script: Any, rollups: Any
) -> None:
    rollups.status = fleet()
    del rollups.status.workers[1:]
    lines = drawn(monkeypatch, "status", "--shards")
    header = next(line for line in lines if line.startswith("shard "))
    assert "owner" not in header
    assert not any("a1b2c3" in line for line in lines)


def test_a_worker_of_a_version_before_has_no_owners_and_no_queues(
    tally: Any, script: Any, rollups: Any
) -> None:
    ran = tally("status", "--shards")
    assert ran.code == 0
    assert ["queue", "empty"] in ran.table
    assert "workers" not in ran.out


@pytest.mark.parametrize(
    ("numbers", "text"),
    [([], ""), ([5], "5"), ([1, 2], "1-2"), ([9, 0, 1, 2, 7, 10, 11], "0-2, 7, 9-11")],
)
def test_ranges(numbers: list[int], text: str) -> None:
    assert _ranges(numbers) == text
