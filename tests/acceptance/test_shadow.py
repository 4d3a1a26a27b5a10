"""From best_effort to eventual: a shadow phase under load, a carry-over, and the cutover."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from clients import SyncCounterClient
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import namespace_service_pb2 as namespaces_pb
from tests.calls import Calls, eventually, token
from tests.processes import TallyProcess, run_tally

BEST_EFFORT = "namespace: hits\nstrategy: best_effort\n"
SHADOWED = BEST_EFFORT + "shadow: eventual\n"
EVENTUAL = "namespace: hits\nstrategy: eventual\n"
BUSY = [f"busy-{at}" for at in range(4)]


@pytest.fixture
def own_tally(tmp_path: Path) -> Iterator[TallyProcess]:
    """Windows are short, but callers have all the time that they usually have: a slow machine
    must not make tokens late, which only best_effort counts."""
    process = TallyProcess(tmp_path, "--window", "200ms")
    (process.namespaces / "hits.yaml").write_text(BEST_EFFORT)
    yield process
    process.end()


def begin_phase(tally: TallyProcess, calls: Calls) -> None:
    (tally.namespaces / "hits.yaml").write_text(SHADOWED)
    request = namespaces_pb.GetNamespaceRequest(namespace="hits")
    eventually(
        lambda: calls.namespaces.GetNamespace(request, timeout=10).namespace,
        lambda namespace: namespace.shadow == pb.STRATEGY_EVENTUAL,
    )


def wait_until_known(calls: Calls, *counters: str) -> None:
    """The shadow knows a counter from its first fold on."""
    request = pb.CompareShadowRequest(namespace="hits")
    eventually(
        lambda: calls.counters.CompareShadow(request, timeout=10).counters,
        lambda known: {each.counter_name for each in known} == set(counters),
    )


def cutover(tally: TallyProcess, *options: str, code: int = 0) -> Any:
    ended = run_tally("cutover", "hits", *options, "--json", "--server", tally.address)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return json.loads(ended.stdout)


@contextmanager
def load(address: str, acknowledged: Counter[str]) -> Iterator[None]:
    """Adds to the busy counters all the time, each add once, and counts those acknowledged."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def add(number: int) -> None:
        try:
            with SyncCounterClient(address, namespace="hits") as client:
                while not stop.is_set():
                    client.add(BUSY[number], 3)
                    acknowledged[BUSY[number]] += 3
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=add, args=(number,)) for number in range(len(BUSY))]
    for each in threads:
        each.start()
    try:
        yield
    finally:
        stop.set()
        for each in threads:
            each.join()
    assert not failures


def test_a_namespace_becomes_exact_under_load(own_tally: TallyProcess) -> None:
    own_tally.start()
    acknowledged: Counter[str] = Counter()
    with Calls(own_tally.address) as calls:
        for counter in ("before", "never-again"):
            calls.add("hits", counter, 100, token())
        begin_phase(own_tally, calls)
        with load(own_tally.address, acknowledged):
            calls.add("hits", "before", 1, token())
            again = token()
            for _ in range(3):
                calls.add("hits", "retried", 5, again)
            wait_until_known(calls, *BUSY, "before", "retried")
            # What is only in flight is no difference.
            found = cutover(own_tally, "--compare", code=1)
            assert {each["counter"]: each["difference"] for each in found["largest"]} == {
                "before": 100,
                "retried": 10,
            }
            assert calls.get("hits", "retried").count == 15
            done = cutover(own_tally, "-m", "must be exact", "--carry-over", "--yes")
            assert (done["carried_over"], done["different"]) == (2, 0)
            assert calls.get("hits", "before").count == 101  # at once: it was folded before
            after_cutover = dict(acknowledged)
            eventually(
                lambda: dict(acknowledged),
                lambda now: all(now[each] > after_cutover[each] for each in BUSY),
            )
        assert {each: calls.accurate("hits", each) for each in BUSY} == acknowledged
        assert calls.accurate("hits", "before") == 101
        assert calls.accurate("hits", "retried") == 15
        assert calls.accurate("hits", "never-again") == 0
        # What was carried over is what the events say, and no error to be repaired.
        audited = run_tally("audit", "hits", "before", "--server", own_tally.address)
        assert audited.returncode == 0, audited.stdout + audited.stderr
        value = calls.get("hits", "before")
        assert value.strategy == pb.STRATEGY_EVENTUAL
        [version] = [
            each
            for each in calls.namespaces.ListVersions(
                namespaces_pb.ListVersionsRequest(), timeout=10
            ).versions
            if each.version == done["version"]
        ]
        assert (version.origin, version.reason) == (
            namespaces_pb.Version.ORIGIN_CUT_OVER,
            "must be exact",
        )
        # The same token counts once from now on, and for good.
        (own_tally.namespaces / "hits.yaml").write_text(EVENTUAL)
        own_tally.kill()
        own_tally.start()
        again = token()
        for _ in range(3):
            calls.add("hits", "retried", 5, again)
        assert calls.accurate("hits", "retried") == 20
        assert {each: calls.accurate("hits", each) for each in BUSY} == acknowledged


def test_what_best_effort_loses_is_in_the_shadow(own_tally: TallyProcess) -> None:
    own_tally.start()
    with Calls(own_tally.address) as calls:
        begin_phase(own_tally, calls)
        calls.add("hits", "views", 7, token())
        own_tally.kill()
        own_tally.start()
        assert calls.get("hits", "views").count == 0
        calls.add("hits", "views", 1, token())
        wait_until_known(calls, "views")
        found = cutover(own_tally, "--compare", code=1)
        assert (found["surplus"], found["lacking"]) == (7, 0)
        done = cutover(own_tally, "-m", "must be exact", "--carry-over", "--yes")
        assert done["carried_over"] == 0
        assert calls.accurate("hits", "views") == 8
