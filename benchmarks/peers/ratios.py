"""Rates and ratios as figures. Only rounds of one cycle are compared with each other."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.figures import Figure, Target, at_least, at_most, over_rounds
from benchmarks.peers import limits, postgres, tally_cassandra, tally_embedded
from benchmarks.peers.cassandra_counters import NAME as NATIVE
from benchmarks.peers.jetstream import NAME as JETSTREAM
from benchmarks.peers.redis_lua import pipelined
from benchmarks.peers.system import Result, Round
from benchmarks.workloads import HOT, TEN_THOUSAND, Workload

REDIS = pipelined("everysec")


@dataclass(frozen=True, kw_only=True)
class Ratio:
    above: str
    below: str
    name: str
    target: Target | None = None


EMBEDDED_RATIOS = (
    Ratio(
        above=tally_embedded.SINGLE,
        below=REDIS,
        name="Tally embedded / Redis everysec",
        target=at_least(2),
    ),
    Ratio(
        above=tally_embedded.SINGLE,
        below=pipelined("always"),
        name="Tally embedded / Redis always",
    ),
    Ratio(
        above=tally_embedded.SINGLE,
        below=postgres.ONE_BY_ONE,
        name="Tally embedded / PostgreSQL",
        target=at_least(10),
    ),
    Ratio(
        above=tally_embedded.SINGLE,
        below=postgres.BATCHED,
        name="Tally embedded / PostgreSQL batched by hand",
    ),
    Ratio(above=tally_embedded.SINGLE, below=JETSTREAM, name="Tally embedded / NATS JetStream"),
    Ratio(
        above=tally_embedded.BATCHED,
        below=limits.PARSER_BATCHED,
        name="batched adds / handler that only parses",
        target=at_least(0.5),
    ),
    Ratio(
        above=tally_embedded.PREPARED,
        below=limits.PARSER_PREPARED,
        name="batched adds / handler that only parses, prepared",
    ),
    Ratio(
        above=tally_embedded.SINGLE,
        below=limits.PARSER_SINGLE,
        name="client.add / handler that only parses",
    ),
    Ratio(
        above=tally_embedded.SINGLE,
        below=limits.SQLITE,
        name="Tally embedded / packed segments into SQLite",
    ),
)
CASSANDRA_RATIOS = (
    Ratio(
        above=tally_cassandra.SINGLE,
        below=NATIVE,
        name="Tally on Cassandra / native counters",
        target=at_least(15),
    ),
    Ratio(
        above=tally_cassandra.SINGLE,
        below=REDIS,
        name="Tally on Cassandra / Redis everysec",
        target=at_least(1),
    ),
    Ratio(
        above=tally_cassandra.SINGLE,
        below=limits.CASSANDRA,
        name="Tally on Cassandra / packed segments into Cassandra",
    ),
)
_HOT_NAME = "Tally embedded: server time of an add to one hot counter / to 10,000"


def rates(results: Sequence[Result]) -> list[Figure]:
    return [
        over_rounds(
            _placed(f"{each.workload}: {each.system}", each.place),
            [one.per_s for one in each.rounds],
            unit=each.unit,
            explains=each.costs(),
        )
        for each in results
    ]


def ratios(results: Sequence[Result], wanted: Sequence[Ratio]) -> list[Figure]:
    """Of rounds of the same cycle. A ratio with a system that was not measured is left out."""
    by_system = {each.system: each for each in results}
    figures = []
    for ratio in wanted:
        above, below = by_system.get(ratio.above), by_system.get(ratio.below)
        if above is None or below is None:
            continue
        figures.append(
            over_rounds(
                _placed(ratio.name, above.place),
                [a.per_s / b.per_s for a, b in zip(above.rounds, below.rounds, strict=True)],
                unit="x",
                target=ratio.target,
                explains={
                    "adds_per_s": above.per_s,
                    "beside_adds_per_s": below.per_s,
                    **above.processor_us(),
                    **{f"beside_{name}": us for name, us in below.processor_us().items()},
                },
            )
        )
    return figures


def hot_cost(results: Sequence[Result]) -> list[Figure]:
    """What an add costs the server, folds included."""

    def rounds(workload: Workload) -> Sequence[Round]:
        return next(
            (
                each.rounds
                for each in results
                if each.system == tally_embedded.SINGLE and each.workload == workload.name
            ),
            (),
        )

    hot = [each.server_cpu_us for each in rounds(HOT)]
    even = [each.server_cpu_us for each in rounds(TEN_THOUSAND)]
    if not hot or not even:
        return []
    return [
        over_rounds(
            _HOT_NAME,
            [a / b for a, b in zip(hot, even, strict=True)],
            unit="x",
            target=at_most(1.0),
            explains={"hot_us": median(hot), "ten_thousand_us": median(even)},
        )
    ]


def _placed(name: str, place: str) -> str:
    return f"{name}, {place}" if place else name
