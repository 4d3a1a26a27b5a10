"""What may go wrong in a run, and how often: faults are drawn from the seed, as plain data."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

WORKERS_AWAY = "workers away"
WAYS_TO_BE_AWAY = ("crash", "cut off", "pause", "clock")


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


def fault_of(
    chance: Random, *, servers: Sequence[str], workers: Sequence[str], load_s: float, skew_s: float
) -> Fault:
    kind = chance.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
    target = chance.choice([*servers, *workers, *workers])
    statements: Sequence[str] = chance.sample(_STATEMENTS, k=chance.randint(1, 3))
    if kind in AMBUSHES:
        # In a fold, mostly: most of the protocol's steps are there.
        target = chance.choice([*servers, *workers, *workers, *workers])
        of_program = _OF_WORKERS if target in workers else _OF_SERVERS
        statements = (chance.choice(of_program),)
    amounts = {
        "step": chance.choice((-1, 1)) * chance.choice((0.5, 0.95, 1.5, 8)) * skew_s,
        "step at": chance.choice((-1, 1)) * chance.choice((0.5, 0.95, 1.5, 8)) * skew_s,
        "drift": chance.choice((-1, 1)) * chance.choice((0.001, 0.01, 0.05)),
        "store step": chance.choice((-1, 1)) * chance.choice((0.5, 2, 8)) * skew_s,
        "storm": chance.choice((0.05, 0.2, 0.5)),
        "lossy calls": chance.choice((0.05, 0.2, 0.5)),
        "lossy cache": chance.choice((0.3, 1.0)),
        "lost agreements": chance.choice((0.3, 0.7)),
        "late writes": chance.choice((0.2, 0.6)),
        "slow statements": chance.choice((0.05, 0.3, 1.0, 2.0)),
        "slow answers": chance.choice((0.05, 0.3, 1.0, 2.0)),
    }
    return Fault(
        kind=kind,
        at_s=round(chance.uniform(0, load_s), 3),
        for_s=round(chance.choice((0.05, 0.5, 2, 5, 12)) * chance.uniform(0.5, 1.5), 3),
        target=target,
        replica=chance.randrange(3),
        amount=amounts.get(kind, 0.0),
        steps=chance.choice((0, 0, chance.randrange(100))),
        statements=tuple(statements),
    )


# Those that wait for their machine to be about to send a statement.
AMBUSHES = ("crash at", "pause at", "step at", "namespaces at")

_WEIGHTS = {
    "crash": 4,
    "crash at": 4,
    "stop": 2,
    "pause": 4,
    "pause at": 7,
    "restart": 1,
    "cut": 3,
    "cut off": 2,
    "replica down": 2,
    "replicas down": 1,
    "storm": 3,
    "late writes": 3,
    "lost agreements": 2,
    "lossy calls": 3,
    "step": 2,
    "step at": 2,
    "drift": 2,
    "store step": 2,
    "flush cache": 2,
    "lossy cache": 1,
    "older cache": 3,
    "namespaces": 4,
    "namespaces at": 2,
    "slow statements": 8,
    "slow answers": 5,
}
KINDS = (*_WEIGHTS, WORKERS_AWAY)
# Those whose order the closing protocol rests on.
_OF_SERVERS = (
    "append_segment",
    "closed",
    "closed",  # between the append and its close check
    "watermarks",
    "folds",
    "segment_refs",
    "segment_bodies",
    "read_rollups",
)
_OF_WORKERS = (
    "closed",
    "close",
    "watermarks",
    "folds",
    "segment_refs",
    "latest_namespaces",
    "segment_bodies",
    "read_rollups",
    "propose_fold",
    "write_history",
    "write_rollup",
    "advance",
)
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
    "write_history",
    "write_rollup",
    "advance",
)
