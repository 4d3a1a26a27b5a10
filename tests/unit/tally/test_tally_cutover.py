"""`tally cutover`: compares, carries over, asks, and cuts over."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
import typer
from grpc_status import rpc_status

from counter import errors
from counter.rpc.status import status_of
from counter.v1 import counter_service_pb2 as pb
from counter.v1 import counter_service_pb2_grpc as pb_grpc
from counter.v1 import namespace_service_pb2 as namespace_pb
from counter.v1 import namespace_service_pb2_grpc as namespace_pb_grpc
from tally.commands import shadow_differences
from tests.unit.tally.conftest import Ran, Script, _health_handler

FAR_AHEAD_S = 4_000_000_000
CUTOVER = ("cutover", "plays", "-m", "must be exact", "--author", "oncall")


class Phase(Script, namespace_pb_grpc.NamespaceServiceServicer):
    """A namespace in its shadow phase. `counts` are those of the shadow."""

    def __init__(self) -> None:
        super().__init__()
        self.old: dict[str, int] = {}
        self.has_shadow = True
        self.version = 7
        self.cutover: namespace_pb.CutoverNamespaceRequest | None = None
        # Called before each comparison.
        self.before_comparison: Callable[[], None] = lambda: None
        # Adjustments of this counter are refused.
        self.broken_counter = ""
        self.folded_through_s = FAR_AHEAD_S

    def ListNamespaces(self, request, context):  # type: ignore[no-untyped-def]
        answer = namespace_pb.ListNamespacesResponse(version=self.version)
        plays = answer.namespaces.add(name="plays", id=3, strategy=pb.STRATEGY_BEST_EFFORT)
        if self.has_shadow:
            plays.shadow = pb.STRATEGY_EVENTUAL
        return answer

    def CompareShadow(self, request, context):  # type: ignore[no-untyped-def]
        self._start(request, context)
        if not request.page_token and request.page_size > 1:  # else a look at the folds alone
            self.before_comparison()
        names = [name for name in sorted(self.counts) if name > request.page_token]
        page, rest = names[:2], names[2:]
        answer = pb.CompareShadowResponse(next_page_token=page[-1] if rest else "")
        answer.complete_through.FromSeconds(self.folded_through_s)
        for name in page:
            answer.counters.add(
                counter_name=name, count=self.old[name], shadow_count=self.counts[name]
            )
        return answer

    def AdjustCount(self, request, context):  # type: ignore[no-untyped-def]
        if request.counter_name == self.broken_counter:
            self._abort(context, errors.WrongRegion("this is another region"))
        return super().AdjustCount(request, context)

    def CutoverNamespace(self, request, context):  # type: ignore[no-untyped-def]
        if request.expected_version != self.version:
            refused = errors.VersionConflict("another version was applied first")
            context.abort_with_status(rpc_status.to_status(status_of(refused)))
        self.cutover = request
        self.version += 1
        return namespace_pb.CutoverNamespaceResponse(
            version=namespace_pb.Version(version=self.version)
        )

    @property
    def adjustments(self) -> dict[str, int]:
        return {
            each.counter_name: each.delta
            for each in self.requests
            if isinstance(each, pb.AdjustCountRequest)
        }


@pytest.fixture
def phase(monkeypatch: pytest.MonkeyPatch) -> Iterator[Phase]:
    phase = Phase()
    monkeypatch.setattr(shadow_differences, "_LASTING_S", 0.0)
    phase.old = {"a": 5, "b": 100, "c": 3, "d": 2}
    phase.counts = {"a": 5, "b": 30, "c": 4, "d": 2}
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    pb_grpc.add_CounterServiceServicer_to_server(phase, server)
    namespace_pb_grpc.add_NamespaceServiceServicer_to_server(phase, server)
    server.add_generic_rpc_handlers((_health_handler(phase),))
    phase.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    monkeypatch.setenv("TALLY_SERVER", phase.address)
    yield phase
    server.stop(grace=None).wait()


TABLE = [
    ["counter", "count", "in the shadow", "difference"],
    ["b", "100", "30", "+70"],
    ["c", "3", "4", "-1"],
]
SUMMARY = "4 counters compared: 2 equal, 2 different; the shadow lacks 70 and the shadow has 1 more"


def test_it_compares_all_pages_and_changes_nothing(phase: Phase, tally: Any) -> None:
    ran: Ran = tally("cutover", "plays", "--compare")
    assert ran.code == 1
    assert ran.table == [*TABLE, [SUMMARY]]
    phase.old = dict(phase.counts)
    ran = tally("cutover", "plays", "--compare")
    assert (ran.code, ran.table) == (0, [["4 counters compared, all equal"]])
    assert (phase.adjustments, phase.cutover) == ({}, None)


def test_it_cuts_over_without_carrying_over(phase: Phase, tally: Any) -> None:
    ran: Ran = tally(*CUTOVER, "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[3:] == [
        SUMMARY,
        "counters that nobody added to since the phase began are not known to the shadow: they "
        "will read 0",
        "plays is eventual since version 8",
        "counts are those of the shadow now: what it lacked is missing",
        "write 'strategy: eventual' into its file, without 'shadow' and 'dedupe_ttl': the next "
        "apply of the file as it is would be refused",
    ]
    assert phase.adjustments == {}
    assert phase.cutover == namespace_pb.CutoverNamespaceRequest(
        namespace="plays", expected_version=7, author="oncall", reason="must be exact"
    )


def test_differences_are_carried_over_before(phase: Phase, tally: Any) -> None:
    ran: Ran = tally(*CUTOVER, "--carry-over", "--yes")
    assert ran.code == 0
    assert "adjustments sent: 1. Compared again:" in ran.out
    assert "4 counters compared: 3 equal, 1 different; the shadow has 1 more" in ran.out
    assert "missing" not in ran.out
    assert phase.adjustments == {"b": 70}  # the old count has lost what the shadow has more
    assert phase.counts == phase.old | {"c": 4}
    assert phase.version == 8
    notes = {
        (each.author, each.reason)
        for each in phase.requests
        if isinstance(each, pb.AdjustCountRequest)
    }
    assert notes == {("oncall", "must be exact")}


def test_what_shows_only_later_is_carried_over_too_within_limits(phase: Phase, tally: Any) -> None:
    comparisons = 0

    def add_to_the_old_one() -> None:
        nonlocal comparisons
        comparisons += 1
        phase.old["a"] += 10

    phase.before_comparison = add_to_the_old_one
    ran: Ran = tally(*CUTOVER, "--carry-over", "--yes", "--json")
    assert comparisons == 7  # one, and one before and after each of three carry-overs
    assert ran.json["carried_over"] == 2 + 1 + 1
    assert (ran.json["different"], ran.json["lacking"], ran.json["version"]) == (2, 20, 8)


def test_what_is_only_under_way_is_not_carried_over(phase: Phase, tally: Any) -> None:
    comparisons = 0

    def catch_up() -> None:
        nonlocal comparisons
        comparisons += 1
        if comparisons == 2:
            phase.counts["b"] += 60

    phase.before_comparison = catch_up
    ran: Ran = tally(*CUTOVER, "--carry-over", "--yes", "--json")
    assert phase.adjustments == {"b": 10}
    assert phase.counts["b"] == phase.old["b"]
    assert (ran.json["carried_over"], ran.json["lacking"]) == (1, 0)


def test_json(phase: Phase, tally: Any) -> None:
    assert tally(*CUTOVER, "--yes", "--json").json == {
        "namespace": "plays",
        "strategy": "eventual",
        "carried_over": 0,
        "version": 8,
        "compared": 4,
        "different": 2,
        "lacking": 70,
        "surplus": 1,
        "largest": [
            {"counter": "b", "count": 100, "shadow_count": 30, "difference": 70},
            {"counter": "c", "count": 3, "shadow_count": 4, "difference": -1},
        ],
    }
    assert tally("cutover", "plays", "--compare", "--json").json["version"] is None


def test_an_empty_shadow_is_not_cut_over_to(phase: Phase, tally: Any) -> None:
    phase.old, phase.counts = {}, {}
    ran: Ran = tally(*CUTOVER, "--carry-over", "--yes")
    assert ran.code == 1
    assert "its shadow knows no counter yet" in ran.err
    assert phase.cutover is None


def test_only_the_largest_are_shown(phase: Phase, tally: Any) -> None:
    phase.old = {f"c{at:02}": at for at in range(40)}
    phase.counts = dict.fromkeys(phase.old, 0)
    ran: Ran = tally("cutover", "plays", "--compare")
    assert [row[0] for row in ran.table[1:11]] == [f"c{at}" for at in range(39, 29, -1)]
    assert ran.table[11] == ["and 29 counters more"]


def test_nobody_is_there_to_ask(phase: Phase, tally: Any) -> None:
    ran: Ran = tally(*CUTOVER, "--carry-over")
    assert ran.code == 2
    assert "namespace plays is not cut over: nobody is here to ask. Add --yes" in ran.err
    assert (phase.adjustments, phase.cutover) == ({}, None)


@pytest.mark.parametrize("agrees", [True, False])
@pytest.mark.parametrize("carries_over", [True, False])
def test_it_asks_before_it_changes_anything(
    phase: Phase, tally: Any, monkeypatch: pytest.MonkeyPatch, agrees: bool, carries_over: bool
) -> None:
    asked: list[str] = []

    def confirm(question: str, **_: Any) -> bool:
        asked.append(question)
        return agrees

    monkeypatch.setattr(typer, "confirm", confirm)
    is_terminal = "tally.commands.cutover.is_terminal"
    monkeypatch.setattr(is_terminal, lambda stream=None: stream is sys.stdin)
    ran: Ran = tally(*CUTOVER, *(["--carry-over"] if carries_over else []))
    if carries_over:
        assert asked == ["Add 70 to the shadow, and cut plays over to eventual?"]
    else:
        assert asked == ["Cut plays over to eventual?"]
        assert "what the shadow lacks will be missing" in ran.err
    assert ran.code == (0 if agrees else 1)
    assert (phase.cutover is not None) is agrees
    assert phase.adjustments == ({"b": 70} if agrees and carries_over else {})


def test_a_carry_over_is_folded_before_it_is_read(
    phase: Phase, tally: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads of eventual begin with rollups: counts would drop for some seconds."""
    phase.folded_through_s = 1
    seen: list[Any] = []

    def fold(_: float) -> None:
        if not phase.adjustments:
            return
        seen.append((dict(phase.adjustments), phase.cutover))
        phase.folded_through_s = FAR_AHEAD_S

    monkeypatch.setattr(shadow_differences.time, "sleep", fold)
    assert tally(*CUTOVER, "--carry-over", "--yes").code == 0
    assert seen == [({"b": 70}, None)]
    assert phase.cutover is not None


def test_without_folds_nothing_is_cut_over(
    phase: Phase, tally: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    phase.folded_through_s = 1
    monkeypatch.setattr(shadow_differences, "_FOLD_WAIT_S", 0.05)
    ran: Ran = tally(*CUTOVER, "--carry-over", "--yes")
    assert ran.code == 1
    assert "is not folded" in ran.err
    assert phase.cutover is None


def test_a_carry_over_that_fails_stops_and_can_be_run_again(phase: Phase, tally: Any) -> None:
    phase.broken_counter = "d"
    phase.old["d"] = 9
    ran: Ran = tally(*CUTOVER, "--carry-over", "--yes")
    assert ran.code == 1
    assert "namespace plays is not cut over" in ran.err
    assert "Run the same command again: it compares anew" in ran.err
    assert phase.cutover is None
    phase.broken_counter = ""
    assert tally(*CUTOVER, "--carry-over", "--yes").code == 0
    assert phase.counts == phase.old | {"c": 4}


def test_another_version_that_was_applied_meanwhile_is_no_surprise(
    phase: Phase, tally: Any
) -> None:
    def apply() -> None:
        phase.version += 1

    phase.before_comparison = apply
    ran: Ran = tally(*CUTOVER, "--yes")
    assert (ran.code, phase.cutover) == (1, None)
    assert "another version was applied first" in ran.err


def test_a_namespace_without_a_shadow(phase: Phase, tally: Any) -> None:
    phase.has_shadow = False
    ran: Ran = tally(*CUTOVER, "--yes")
    assert ran.code == 1
    assert "namespace plays is in no shadow phase" in ran.err
    ran = tally("cutover", "nope", "-m", "x", "--yes")
    assert "there is no namespace nope" in ran.err


def test_why_is_asked_for(phase: Phase, tally: Any) -> None:
    ran: Ran = tally("cutover", "plays", "--yes")
    assert ran.code == 2
    assert "--reason" in ran.err
