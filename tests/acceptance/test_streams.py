"""Streams of a real server, as other teams use them: by grpcurl, carelessly, through kill -9."""

import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from counter.v1 import counter_service_pb2 as pb
from tests.calls import Calls, fresh_counter
from tests.processes import TallyProcess
from tests.streamed_adds import batch_of

ROOT = Path(__file__).parents[2]
GRPCURL = ROOT / ".tools" / "bin" / "grpcurl"
BATCHES, ADDS_PER_BATCH = 400, 50  # of each stream
KILL_AFTER_ANSWERS = (20, 150, 300)


def grpcurl(address: str, *batches: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    assert GRPCURL.exists(), "run `make .tools/bin/grpcurl` first; `make test` does"
    call = "counter.v1.CounterService/StreamAddCount"
    return subprocess.run(
        [str(GRPCURL), "-plaintext", "-d", "@", address, call],
        input="\n".join(json.dumps(each) for each in batches),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def answers(output: str) -> dict[int, dict[str, Any]]:
    """grpcurl prints one object after the other."""
    decoder, found, rest = json.JSONDecoder(), {}, output.strip()
    while rest:
        answer, end = decoder.raw_decode(rest)
        found[int(answer["sequence_number"])] = answer
        rest = rest[end:].lstrip()
    return found


def columns(counter: str, deltas: list[int], *, number: int = 1) -> dict[str, Any]:
    return {
        "sequence_number": number,
        "namespace": "plays",
        "columns": {
            "counter_name": [counter] * len(deltas),
            "delta": deltas,
            "token": [f"{counter}-{number}-{at}" for at in range(len(deltas))],
            "generation_time_ns": [time.time_ns()] * len(deltas),
        },
    }


def test_batches_by_grpcurl(tally: TallyProcess, calls: Calls) -> None:
    counter = fresh_counter()
    items = [{"counter_name": counter, "delta": 2}, {"counter_name": "", "delta": 1}]
    run = grpcurl(
        tally.address,
        {"sequence_number": 1, "namespace": "plays", "items": items},
        columns(counter, [5, -1], number=2),
        columns(counter, [5, 0], number=3),
        {"sequence_number": 4, "namespace": "playz", "items": items},
    )
    assert run.returncode == 0, run.stderr
    seen = answers(run.stdout)
    assert sorted(seen) == [1, 2, 3, 4]
    made, unnamed = seen[1]["outcomes"]
    assert made["idempotency_token"]["token"]
    assert unnamed["reason"] == "NAME_EMPTY"
    assert seen[2] == {"sequence_number": "2", "all_added": True}
    assert [each.get("reason") for each in seen[3]["outcomes"]] == [None, "DELTA_ZERO"]
    assert [each["reason"] for each in seen[4]["outcomes"]] == ["NAMESPACE_UNKNOWN"] * 2
    assert calls.accurate("plays", counter) == 11


def test_a_bad_batch_by_grpcurl(tally: TallyProcess, calls: Calls) -> None:
    counter = fresh_counter()
    uneven = columns(counter, [1, 1], number=2)
    uneven["columns"]["delta"].pop()
    run = grpcurl(tally.address, columns(counter, [1]), uneven)
    assert run.returncode != 0
    assert answers(run.stdout) == {1: {"sequence_number": "1", "all_added": True}}
    assert "COLUMNS_UNEVEN" in run.stderr
    assert "columns.delta" in run.stderr
    assert calls.accurate("plays", counter) == 1


def test_the_examples_of_the_page(tmp_path: Path) -> None:
    """docs/streams.md says what to run and what is then seen."""
    (tmp_path / "namespaces").symlink_to(ROOT / "configs" / "namespaces")
    tally = TallyProcess(tmp_path).start()
    page = (ROOT / "docs" / "streams.md").read_text().replace("127.0.0.1:50051", tally.address)
    blocks = dict(re.findall(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))
    assert set(blocks) == {"bash", "text", "python"}
    try:
        environment = {**os.environ, "PATH": f"{GRPCURL.parent}:{os.environ['PATH']}"}
        by_hand = run_script(["bash", "-euc", blocks["bash"]], environment)
        assert answers(by_hand) == answers(blocks["text"])
        environment["PYTHONPATH"] = str(ROOT)
        assert run_script([sys.executable, "-c", blocks["python"]], environment) == ""
        with Calls(tally.address) as calls:
            counts = {n: calls.accurate("video_plays", f"title-{n}") for n in range(10)}
        assert counts == dict.fromkeys(range(10), 1_000) | {7: 1_007, 8: 999}
    finally:
        tally.end()


def run_script(command: list[str], environment: dict[str, str]) -> str:
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def applied(answer: pb.StreamAddCountResponse) -> int | None:
    """How many adds of a batch count; None if the same has to be sent again to know."""
    if answer.all_added:
        return ADDS_PER_BATCH
    reasons = [each.reason for each in answer.outcomes]
    if any(reason not in ("", "TOKEN_EXPIRED") for reason in reasons):
        assert set(reasons) <= {"", "TOKEN_EXPIRED", "FOLD_PENDING", "OVERLOADED", "CLOCK_SKEWED"}
        return None
    return reasons.count("")


class Sender:
    """Sends batches over one stream after the other; keeps those that were not answered."""

    def __init__(self, counter: str) -> None:
        self._counter = counter
        self._numbers = itertools.count(1)
        self.unanswered: dict[int, pb.StreamAddCountRequest] = {}
        self.counted = 0

    def stream(self, address: str, new: int, *, then: Callable[[int], None]) -> None:
        """Sends what was not answered before, and new batches; tells `then` of each answer."""
        for number in itertools.islice(self._numbers, new):
            self.unanswered[number] = batch_of(self._counter, number, ADDS_PER_BATCH)
        sent = list(self.unanswered.values())
        with Calls(address) as calls:
            try:
                for answered, answer in enumerate(
                    calls.counters.StreamAddCount(iter(sent), timeout=60, wait_for_ready=True), 1
                ):
                    self._take(answer)
                    then(answered)
            except grpc.RpcError as broken:
                if broken.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise

    def _take(self, answer: pb.StreamAddCountResponse) -> None:
        number = applied(answer)
        if number is not None:
            self.counted += number
            del self.unanswered[answer.sequence_number]


@pytest.mark.timeout(180)
def test_what_was_not_answered_is_sent_again_and_counts_once(tmp_path: Path) -> None:
    # Tokens are good for as long as a slow restart takes; what comes later still is told apart.
    tally = TallyProcess(tmp_path, "--window", "200ms", "--accept-limit", "20s").start()
    counter = fresh_counter()
    sender, left_open = Sender(counter), 0
    try:
        for kill_after in KILL_AFTER_ANSWERS:

            def kill(answered: int, kill_after: int = kill_after) -> None:
                if answered == kill_after:
                    tally.kill()

            sender.stream(tally.address, BATCHES, then=kill)
            left_open += len(sender.unanswered)
            tally.start()
        for _ in range(20):
            if sender.unanswered:
                sender.stream(tally.address, 0, then=lambda _: None)
        assert sender.unanswered == {}
        assert left_open > 0
        with Calls(tally.address) as calls:
            assert calls.accurate("plays", counter) == sender.counted
        assert sender.counted > 0
    finally:
        tally.end()


def test_a_server_that_stops_ends_streams_with_ok(own_tally: TallyProcess) -> None:
    own_tally.start()
    counter, more = fresh_counter(), threading.Event()

    def batches() -> Iterator[pb.StreamAddCountRequest]:
        yield batch_of(counter, 1, ADDS_PER_BATCH)
        more.wait(60)  # the stream stays open

    with Calls(own_tally.address) as calls:
        stream = calls.counters.StreamAddCount(batches(), timeout=60)
        assert next(stream).all_added
        assert own_tally.stop() == 0
        assert list(stream) == []
        assert stream.code() is grpc.StatusCode.OK
        more.set()
