"""`tally capacity` as it is typed: tables, JSON, refusals, prices, and a live namespace."""

import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from counter.v1 import counter_service_pb2 as counter_pb
from counter.v1 import namespace_service_pb2 as pb
from tally.commands.capacity import CAPACITY_FIELDS
from tally.commands.capacity_view import COLUMNS
from tally.output import draw_table
from tests.unit.tally.control_plane_script import ControlPlane

ROOT = Path(__file__).parents[3]
PRICES = ROOT / "configs" / "prices.yaml"
LOAD = ("--adds-per-s", "50k", "--reads-per-s", "100k", "--counters", "2M")


def rows(ran: Any) -> dict[str, list[str]]:
    return {row[0].strip(): row[1:] for row in ran.table if len(row) == 3}


def test_a_fleet_for_a_load(tally: Any) -> None:
    ran = tally("capacity", *LOAD)
    assert (ran.code, ran.err) == (0, "")
    assert ran.table[0] == ["what", "needed", "how it comes about"]
    shown = rows(ran)
    assert shown["servers"] == ["74", "max(2, ceil(37 cores / 0.5))"]
    assert {
        "workers", "Cassandra nodes", "disk of all nodes", "memcached", "shards", "lanes",
        "window", "cardinality", "complete_through", "network, callers",
    } <= set(shown)  # fmt: skip
    assert "cost" not in shown
    assert shown["cardinality"][0] == "high"
    assert "One process (tally serve) is not enough: 30 cores" in ran.out
    assert "--explain shows every number" in ran.out


def test_a_small_load_needs_one_process(tally: Any) -> None:
    options = ("--adds-per-s", "200", "--reads-per-s", "500", "--counters", "50k", "--batch", "1")
    ran = tally("capacity", *options)
    assert "One process is enough: tally serve takes 0.189 cores" in ran.out
    assert "  0.189 cores = (200/s " in ran.out
    document = tally("capacity", *options, "--json").json
    assert document["embedded"]["enough"] is True
    assert document["embedded"]["cores"] == pytest.approx(0.18947, abs=1e-4)


def test_explain_has_every_number_with_formula_or_source(tally: Any) -> None:
    ran = tally("capacity", *LOAD, "--explain")
    start = next(n for n, row in enumerate(ran.table) if row[0] == "name")
    assert ran.table[start] == [
        "name", "value", "kind", "formula", "in numbers", "source", "meaning",
    ]  # fmt: skip
    figures = {row[0]: row for row in ran.table[start + 1 :]}
    assert len(figures) > 70
    for name, row in figures.items():
        assert row[2] in ("given", "constant", "computed"), name
        assert bool(row[3] and row[4]) == (row[2] == "computed"), name
        assert bool(row[5]) == (row[2] == "constant"), name
    assert figures["servers"][3] == "max(servers_min, ceil(server_cores / usable_share))"
    assert figures["add_item_us"][5].startswith("measured: benchmarks/results/cassandra.json")
    # Every name in a formula is explained.
    words = {word for row in figures.values() for word in re.findall(r"[a-z]\w+", row[3])}
    assert words - set(figures) <= {"max", "min", "ceil", "floor", "next_power_of_2"}


def test_json(tally: Any) -> None:
    document = tally("capacity", *LOAD, "--prices", str(PRICES), "--json").json
    assert set(document) == set(re.findall(r"\b(namespace|load|refusals|embedded|cardinality|"
                                           r"fleet|notes|figures)\b", CAPACITY_FIELDS))  # fmt: skip
    assert document["fleet"]["servers"] == 74
    assert document["fleet"]["cost"] > 0
    assert document["load"]["strategy"] == "eventual"
    assert document["load"]["adds_per_s"] == 50_000
    assert document["refusals"] == []
    by_name = {each["name"]: each for each in document["figures"]}
    assert by_name["nodes"]["in_numbers"].startswith("max(3, ceil(")
    assert by_name["cost"]["unit"] == "EUR/month"


def test_prices(tally: Any) -> None:
    shown = rows(tally("capacity", *LOAD, "--prices", str(PRICES)))
    assert shown["cost"][0].endswith("EUR/month")
    assert shown["servers"] == ["2,220 EUR/month", shown["servers"][1]]


def test_all_mistakes_of_a_price_file_are_told(tally: Any, tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("currency: euros\nserver: 30\n")
    ran = tally("capacity", *LOAD, "--prices", str(file))
    assert (ran.code, ran.out) == (1, "")
    lines = ran.err.splitlines()
    assert len(lines) == 6
    assert f"{file}:1:11: currency: 'euros' is not a currency" in ran.err
    assert all(line.startswith("tally: ") for line in lines)


def test_a_refusal(tally: Any) -> None:
    options = ("--adds-per-s", "10M", "--reads-per-s", "1k", "--counters", "1M")
    ran = tally("capacity", *options)
    assert (ran.code, ran.out) == (1, "")
    assert "tally: refused: --hot-share: the busiest counter gets 500,000/s" in ran.err
    assert "tally: refused: --adds-per-s: 512 lanes" in ran.err
    assert "Take --window 4300ms or less" in ran.err
    ran = tally("capacity", *options, "--json", "--prices", str(PRICES))
    assert ran.code == 1
    assert [each["code"] for each in ran.json["refusals"]] == ["HOT_COUNTER_FOLD", "LANES"]
    assert ran.json["fleet"] is None


def test_few_counters_are_hot_by_themselves(tally: Any) -> None:
    """One of four counters has a quarter of the adds at least."""
    document = tally(
        "capacity", "--adds-per-s", "10", "--reads-per-s", "1", "--counters", "4", "--json"
    ).json
    assert document["load"]["hot_share"] == 0.25


def test_without_reads_it_says_so(tally: Any) -> None:
    ran = tally("capacity", "--adds-per-s", "50k", "--counters", "2M", "--json")
    assert ran.code == 0
    assert ran.json["load"]["reads_per_s"] == 0
    assert "no reads are planned for: give --reads-per-s" in ran.json["notes"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "missing --adds-per-s, --counters"),
        (("--adds-per-s", "5", "--reads-per-s", "5"), "missing --counters: "),
        (("--adds-per-s", "many"), "'many' is not a number. Write it like 50000, 50k or 2M."),
        (("--counters", "1.5"), "'1.5' is not a whole number"),
        (("--history", "1m"), "'1m' is not a history"),
        (("--history", "1m:week"), "'week' is not a duration"),
        (("--node-disk", "5"), "'5' is not a size"),
        (("--strategy", "exact"), "'exact'"),
    ],
)
def test_wrong_usage(tally: Any, options: tuple[str, ...], words: str) -> None:
    ran = tally("capacity", *options)
    assert ran.code == 2
    assert words in ran.err


def test_every_option_arrives(tally: Any) -> None:
    given = {
        "--retention": ("2d", "retention_s", 172_800),
        "--batch": ("50", "batch", 50),
        "--read-batch": ("5", "read_batch", 5),
        "--name-bytes": ("20", "name_bytes", 20),
        "--hot-share": ("0.1", "hot_share", 0.1),
        "--strategy": ("rolling_window", "strategy", "rolling_window"),
        "--rolling-window": ("60s", "rolling_window_ms", 60_000),
        "--dedupe-ttl": ("1m", "dedupe_ttl_ms", 60_000),
        "--cache-ttl": ("2s", "cache_ttl_ms", 2_000),
        "--cache-hits": ("0.5", "cache_hits", 0.5),
        "--namespaces": ("3", "namespaces", 3),
        "--window": ("2s", "window_ms", 2_000),
        "--accept-limit": ("4s", "accept_limit_ms", 4_000),
        "--max-clock-skew": ("100ms", "max_clock_skew_ms", 100),
        "--replication": ("5", "replication", 5),
        "--headroom": ("0.3", "headroom", 0.3),
        "--node-cores": ("16", "node_cores", 16),
        "--node-disk": ("4TB", "node_disk_bytes", 4e12),
    }
    options = [text for option, (value, _, _) in given.items() for text in (option, value)]
    ran = tally("capacity", *LOAD, *options, "--history", "1m:7d,1h:90d", "--json")
    assert ran.code == 0, ran.err
    load = ran.json["load"]
    assert {name: load[name] for _, name, _ in given.values()} == {
        name: value for _, name, value in given.values()
    }
    assert [each["step_ms"] for each in load["history"]] == [60_000, 3_600_000]


@pytest.mark.parametrize("width", [80, 120])
def test_the_table_fits_a_terminal(tally: Any, width: int) -> None:
    ran = tally("capacity", *LOAD, "--history", "1m:7d,1h:90d", "--prices", str(PRICES))
    cells = [row for row in ran.table[1:] if len(row) == 3]
    console = Console(width=width, record=True, file=StringIO())
    console.print(draw_table(COLUMNS, cells))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= width
    names = [line.split("  ")[0] for line in lines]
    # No name or number is broken over lines.
    assert {"servers", "complete_through", "Cassandra nodes", "disk of all nodes"} <= set(names)
    assert any("EUR/month" in line for line in lines)


class WithNamespaces(ControlPlane):
    """Answers GetNamespace, with whatever a test has put there."""

    def __init__(self) -> None:
        super().__init__()
        self.namespace = pb.Namespace(
            name="plays",
            strategy=counter_pb.STRATEGY_EVENTUAL,
            cardinality=pb.CARDINALITY_MEDIUM,
        )
        self.namespace.cache.ttl.FromMilliseconds(2_000)
        self.namespace.cache.local_ttl.FromMilliseconds(100)
        step = self.namespace.history.add()
        step.step.FromSeconds(60)
        step.retention.FromSeconds(7 * 86_400)

    def GetNamespace(self, request, context):  # type: ignore[no-untyped-def]
        self.requests.append(request)
        return pb.GetNamespaceResponse(version=7, namespace=self.namespace)


@pytest.fixture
def control_plane() -> Iterator[WithNamespaces]:
    made = WithNamespaces()
    fleet = pb.ListProcessesResponse(version=7)
    for process, adds_per_s, counters in (("a", 1_200.5, 40_000), ("b", 800.0, 41_000)):
        server = fleet.processes.add(process=process, program="server", version=7)
        server.traffic.add(
            namespace="plays", adds_per_s=adds_per_s, reads_per_s=50, counters=counters
        )
        server.traffic.add(namespace="other", adds_per_s=9_999)
    fleet.processes.add(process="c", program="worker", version=7)
    made.fleets = [fleet]
    return made


def test_a_live_namespace_is_measured(
    tally: Any, script: Any, control_plane: WithNamespaces
) -> None:
    ran = tally("capacity", "--namespace", "plays", "--json")
    assert ran.code == 0, ran.err
    load = ran.json["load"]
    assert (load["adds_per_s"], load["reads_per_s"]) == (2_000.5, 100)
    assert load["counters"] == 41_000
    assert (load["cardinality"], load["cache_ttl_ms"]) == ("medium", 2_000)
    assert load["history"] == [{"step_ms": 60_000, "retention_ms": 604_800_000}]
    assert ran.json["namespace"] == "plays"
    assert "in the last seconds, on 2 servers" in ran.json["notes"][0]


def test_options_go_before_what_was_measured(
    tally: Any, script: Any, control_plane: WithNamespaces
) -> None:
    ran = tally("capacity", "--namespace", "plays", "--adds-per-s", "9k", "--json")
    assert ran.json["load"]["adds_per_s"] == 9_000
    assert ran.json["load"]["reads_per_s"] == 100


def test_limits_of_a_live_namespace(tally: Any, script: Any, control_plane: WithNamespaces) -> None:
    control_plane.namespace.limits.adds_per_s = 5_000
    control_plane.namespace.limits.counters = 60_000
    control_plane.namespace.limits.batch_items = 20
    for process in control_plane.fleets[0].processes:
        for traffic in process.traffic:
            traffic.ClearField("counters")
            traffic.limited_per_s = 1.5
    ran = tally("capacity", "--namespace", "plays", "--json")
    assert ran.json["load"]["counters"] == 60_000
    assert ran.json["load"]["batch"] == 20
    assert any("plan for that with --adds-per-s 5000" in note for note in ran.json["notes"])
    assert any("refused 3.0 calls/s" in note for note in ran.json["notes"])


def test_a_shadow_phase_is_planned_as_what_comes_after_it(
    tally: Any, script: Any, control_plane: WithNamespaces
) -> None:
    del control_plane.namespace.history[:]
    control_plane.namespace.strategy = counter_pb.STRATEGY_BEST_EFFORT
    control_plane.namespace.shadow = counter_pb.STRATEGY_EVENTUAL
    control_plane.namespace.dedupe_ttl.FromSeconds(60)
    ran = tally("capacity", "--namespace", "plays", "--json")
    assert ran.json["load"]["strategy"] == "eventual"
    assert "shadow phase: planned as eventual" in ran.json["notes"][0]


def test_what_nobody_knows_must_be_given(
    tally: Any, script: Any, control_plane: WithNamespaces
) -> None:
    control_plane.fleets = [pb.ListProcessesResponse(version=7)]
    ran = tally("capacity", "--namespace", "plays", "--reads-per-s", "5")
    assert ran.code == 2
    assert "for --adds-per-s, --counters" in ran.err
    assert "tally capacity --namespace plays --adds-per-s N --counters N" in ran.err


def test_a_namespace_that_this_version_does_not_understand(
    tally: Any, script: Any, control_plane: WithNamespaces
) -> None:
    control_plane.namespace.strategy = 99  # type: ignore[assignment]
    ran = tally("capacity", "--namespace", "plays")
    assert ran.code == 1
    assert "that this tally does not know" in ran.err


def test_nobody_is_called_without_a_namespace(tally: Any, nobody: str) -> None:
    assert tally("--server", nobody, "capacity", *LOAD).code == 0
    ran = tally("--server", nobody, "capacity", "--namespace", "plays")
    assert ran.code == 3
