"""What a run is made of, drawn from its seed. A scenario is plain data: it can be written down,
made smaller and run again."""

import json
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from tests.simulation.fault_kinds import WAYS_TO_BE_AWAY, WORKERS_AWAY, Fault, fault_of

# Just before midnight, so that some runs go over the end of a day: fold records do not.
MIDNIGHT_S = 1_700_006_400
LOAD_S_MAX = 30.0
# Of those runs in which folds get far behind. All workers are away for long, and then there must be
# time left to catch up: nothing is promised of folds that are behind by all of it.
SHORT_RETENTION_S = 40
_FAR_BEHIND_SHARE = 0.12
_TINY_LIMITS_SHARE = 0.2


@dataclass(frozen=True, kw_only=True)
class Scenario:
    seed: int
    window_ms: int
    accept_limit_ms: int
    max_clock_skew_ms: int
    # Long, or so short that folds get behind by half of it when all workers are away.
    log_retention_s: int
    shards: int
    lanes: int
    epoch_s: int
    namespaces_after_s: float  # how long the fleet runs before anybody applies namespaces
    servers: int
    workers: int
    rivals: bool  # each worker folds every shard
    commits_in_flight: int
    overlap_after_ms: float
    events_waiting_max: int
    store_timeout_s: float
    clients: int
    steps: int  # of each client
    counters: int  # of each namespace
    think_s: float
    client_skew_s: float  # how far clocks of clients are off, at most
    odd_share: float  # of adds: late, repeated, in conflict, from the future
    clear_share: float
    lost_share: float  # of messages to the store, all the time
    slow_share: float
    tiny_limits: bool  # of the product: see small_limits
    faults: tuple[Fault, ...]

    @property
    def load_s(self) -> float:
        """About how long clients act."""
        return min(self.load_s_max, self.steps * self.think_s * 1.5 + 2)

    @property
    def load_s_max(self) -> float:
        """Then they stop, whatever is left to do."""
        away_s = [each.at_s + each.for_s for each in self.faults if each.kind == WORKERS_AWAY]
        return max(LOAD_S_MAX, *(each + 6 for each in away_s)) if away_s else LOAD_S_MAX

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def scenario_from_json(text: str) -> Scenario:
    document: dict[str, Any] = json.loads(text)
    faults = tuple(
        Fault(**each | {"statements": tuple(each["statements"])}) for each in document.pop("faults")
    )
    return Scenario(**document, faults=faults)


def scenario_of(seed: int) -> Scenario:
    chance = Random(f"scenario {seed}")
    window_ms = chance.choice((250, 500, 1_000))
    accept_limit_ms = chance.choice((300, 1_000, 2_000))
    max_clock_skew_ms = chance.choice((100, 250, 500))
    steps = chance.randint(10, 40)
    think_s = chance.choice((0.05, 0.15, 0.4))
    scenario = Scenario(
        seed=seed,
        window_ms=window_ms,
        accept_limit_ms=accept_limit_ms,
        max_clock_skew_ms=max_clock_skew_ms,
        log_retention_s=86_400,
        shards=chance.choice((1, 2, 2, 3)),
        lanes=chance.choice((1, 1, 2)),
        epoch_s=MIDNIGHT_S - chance.choice((5, 12, 3_600, 40_000)) - 1_000,
        namespaces_after_s=chance.choice((0.0, 0.0, round(chance.uniform(2, 3.5), 2))),
        servers=chance.randint(1, 3),
        workers=chance.randint(1, 2),
        rivals=chance.random() < 0.6,
        commits_in_flight=chance.choice((1, 2, 8)),
        overlap_after_ms=chance.choice((0.0, 5.0, 50.0)),
        events_waiting_max=chance.choice((4, 10_000, 10_000)),
        store_timeout_s=chance.choice((0.3, 1.0, 2.0)),
        clients=chance.randint(2, 5),
        steps=steps,
        counters=chance.randint(1, 3),
        think_s=think_s,
        client_skew_s=chance.choice((0.0, 0.1, accept_limit_ms / 1_000)),
        odd_share=chance.choice((0.0, 0.3, 0.7)),
        clear_share=chance.choice((0.0, 0.05, 0.15)),
        lost_share=chance.choice((0.0, 0.0, 0.01, 0.05)),
        slow_share=chance.choice((0.0, 0.02, 0.1)),
        tiny_limits=chance.random() < _TINY_LIMITS_SHARE,
        faults=(),
    )
    number = chance.choice((0, 3, 5, 8, 12))
    if chance.random() < _FAR_BEHIND_SHARE:
        scenario, number = far_behind(scenario), chance.choice((0, 2, 4))
    drawn = [
        fault_of(
            chance,
            servers=[f"server-{number}" for number in range(scenario.servers)],
            workers=[f"worker-{number}" for number in range(scenario.workers)],
            load_s=scenario.load_s,
            skew_s=scenario.max_clock_skew_ms / 1_000,
        )
        for _ in range(number)
    ]
    faults = [*scenario.faults, *drawn]
    return replace(scenario, faults=tuple(sorted(faults, key=lambda each: each.at_s)))


def far_behind(scenario: Scenario) -> Scenario:
    """The same with all workers away for so long that folds get far behind (I8)."""
    chance = Random(f"far behind {scenario.seed}")
    away = Fault(
        kind=WORKERS_AWAY,
        at_s=round(chance.uniform(0, 4), 3),
        for_s=round(chance.uniform(0.2, 0.55) * SHORT_RETENTION_S, 3),
        target="worker-0",
        amount=chance.randrange(len(WAYS_TO_BE_AWAY)),
    )
    return replace(
        scenario,
        log_retention_s=SHORT_RETENTION_S,
        window_ms=min(500, scenario.window_ms),
        accept_limit_ms=min(1_000, scenario.accept_limit_ms),
        max_clock_skew_ms=min(250, scenario.max_clock_skew_ms),
        client_skew_s=min(1.0, scenario.client_skew_s),
        lost_share=min(0.01, scenario.lost_share),
        slow_share=min(0.02, scenario.slow_share),
        steps=40,
        think_s=0.6,
        faults=(away,),
    )
