"""What a run is made of, drawn from its seed. A scenario is plain data: it can be written down,
made smaller and run again."""

import json
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

# Just before midnight, so that some runs go over the end of a day: fold records do not.
MIDNIGHT_S = 1_700_006_400
LOAD_S_MAX = 30.0


@dataclass(frozen=True, kw_only=True)
class Fault:
    kind: str
    at_s: float  # after the load began
    for_s: float = 0.0
    target: str = ""  # the machine
    replica: int = 0
    amount: float = 0.0
    steps: int = 0  # callbacks of the target that still run, after at_s
    statements: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scenario:
    seed: int
    window_ms: int
    accept_limit_ms: int
    max_clock_skew_ms: int
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
    faults: tuple[Fault, ...]

    @property
    def load_s(self) -> float:
        """About how long clients act. They stop after LOAD_S_MAX, whatever is left to do."""
        return self.steps * self.think_s * 1.5 + 2

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
        # The short one is longer than any run, because nothing is promised of folds that are
        # behind by more. A quarter of it, from which on writes are refused, is not.
        log_retention_s=chance.choice((86_400, 86_400, 86_400, 150)),
        shards=chance.choice((1, 2, 2, 3)),
        lanes=chance.choice((1, 1, 2)),
        epoch_s=MIDNIGHT_S - chance.choice((5, 12, 3_600, 40_000)) - 1_000,
        namespaces_after_s=chance.choice((0.0, 0.0, round(chance.uniform(2, 3.5), 2))),
        servers=chance.randint(1, 3),
        workers=chance.randint(1, 2),
        rivals=chance.random() < 0.6,
        commits_in_flight=chance.choice((1, 2, 8)),
        overlap_after_ms=chance.choice((0.0, 5.0, 50.0)),
        events_waiting_max=chance.choice((3, 10_000, 10_000)),
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
        faults=(),
    )
    number = chance.choice((0, 2, 4, 7, 11))
    faults = sorted((_fault(chance, scenario) for _ in range(number)), key=lambda each: each.at_s)
    return replace(scenario, faults=tuple(faults))


def _fault(chance: Random, scenario: Scenario) -> Fault:
    """One of those that this scenario can have."""
    servers = [f"server-{number}" for number in range(scenario.servers)]
    workers = [f"worker-{number}" for number in range(scenario.workers)]
    kind = chance.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
    skew_s = scenario.max_clock_skew_ms / 1_000
    amounts = {
        "step": chance.choice((-1, 1)) * chance.choice((0.5, 0.95, 1.5, 8)) * skew_s,
        "drift": chance.choice((-1, 1)) * chance.choice((0.001, 0.01, 0.05)),
        "store step": chance.choice((-1, 1)) * chance.choice((0.5, 2, 8)) * skew_s,
        "storm": chance.choice((0.05, 0.2, 0.5)),
        "lossy calls": chance.choice((0.05, 0.2, 0.5)),
        "lossy cache": chance.choice((0.3, 1.0)),
        "slow statements": chance.choice((0.05, 0.3, 1.0, 2.0)),
    }
    return Fault(
        kind=kind,
        at_s=round(chance.uniform(0, scenario.load_s), 3),
        for_s=round(chance.choice((0.05, 0.5, 2, 5, 12)) * chance.uniform(0.5, 1.5), 3),
        target=chance.choice(servers + workers * 2),
        replica=chance.randrange(3),
        amount=amounts.get(kind, 0.0),
        steps=chance.choice((0, 0, chance.randrange(100))),
        statements=tuple(chance.sample(_STATEMENTS, k=chance.randint(1, 3))),
    )


_WEIGHTS = {
    "crash": 5,
    "stop": 1,
    "pause": 4,
    "cut": 3,
    "cut off": 2,
    "replica down": 2,
    "storm": 3,
    "lossy calls": 2,
    "step": 2,
    "drift": 1,
    "store step": 1,
    "flush cache": 1,
    "lossy cache": 1,
    "older cache": 1,
    "namespaces": 3,
    "slow statements": 12,
}
# Those whose order the closing protocol rests on.
_STATEMENTS = (
    "append_segment",
    "closed",
    "close",
    "watermarks",
    "folds",
    "segment_refs",
    "segment_bodies",
    "propose_fold",
    "read_rollups",
    "write_rollup",
    "advance",
)
