"""How much of the comparison is measured."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers.system import Extent
from benchmarks.peers.turns import Pace
from benchmarks.workloads import DUPLICATES, HOT, MIXED, TEN_THOUSAND, UNIQUE, Workload
from tally.dev.cassandra_files import CommitlogSync


@dataclass(frozen=True, kw_only=True)
class Plan:
    # Of the workload that ratios are about, and of each of the others.
    zipf: Pace
    other: Pace
    # Java compiles the paths of its node while it warms up.
    zipf_on_cassandra: Pace
    other_on_cassandra: Pace
    others: Sequence[Workload]
    others_on_cassandra: Sequence[Workload]
    commitlog_syncs: Sequence[CommitlogSync]
    # Which drivers are measured with the workload that ratios are about.
    extent: Extent
    # How late an event may come decides how long a load must last until it is folded meanwhile.
    accept_limit_s: float


FULL = Plan(
    zipf=Pace(round_s=3.0, warm_up_s=1.0, cycles=4),
    other=Pace(round_s=3.0, warm_up_s=1.0, cycles=1),
    zipf_on_cassandra=Pace(round_s=4.0, warm_up_s=45.0, cycles=4),
    other_on_cassandra=Pace(round_s=4.0, warm_up_s=15.0, cycles=1),
    others=(HOT, TEN_THOUSAND, UNIQUE, MIXED, DUPLICATES),
    others_on_cassandra=(HOT, MIXED, DUPLICATES),  # folding unique counters takes minutes there
    commitlog_syncs=("batch",),  # durable, like the others; the suite cassandra-periodic has both
    extent=Extent.DETAILS,
    accept_limit_s=5.0,
)
QUICK = Plan(
    zipf=Pace(round_s=1.5, warm_up_s=0.5, cycles=2),
    other=Pace(round_s=1.5, warm_up_s=0.5, cycles=1),
    zipf_on_cassandra=Pace(round_s=2.0, warm_up_s=4.0, cycles=1),
    other_on_cassandra=Pace(round_s=2.0, warm_up_s=4.0, cycles=1),
    others=(HOT,),
    others_on_cassandra=(),
    commitlog_syncs=("batch",),
    extent=Extent.RATIOS,
    accept_limit_s=1.0,
)
