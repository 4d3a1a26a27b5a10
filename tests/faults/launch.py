"""Runs a program of Tally as a real process under the faults of a directory.

    python -m tests.faults.launch DIRECTORY serve --listen ...

The product has no hooks: what is wrapped here, before its own `main` runs, are the wall clock of
the process, the methods at which steps are reached, and where its driver looks for Cassandra.
"""

import datetime
import inspect
import sys
import time
from functools import wraps
from pathlib import Path
from typing import Any

from tests.faults.injected import Faults
from tests.faults.steps import Place, Step, places


def main(directory: str, *arguments: str) -> int:
    faults = Faults(Path(directory))
    skew_clock(faults)
    reroute(faults.cassandra_network())
    for place in places(arguments[0]):
        setattr(place.owner, place.method, wrapped(place, faults))
    from tally.main import main as tally

    return tally(arguments)


def skew_clock(faults: Faults) -> None:
    """Whoever asks for the time of day from now on gets the skewed one."""
    real_ns = time.time_ns
    time.time_ns = lambda: real_ns() + faults.ahead_ns()
    time.time = lambda: time.time_ns() / 1_000_000_000

    import apscheduler.executors.base
    import apscheduler.schedulers.base

    import rollup_worker.schedule

    right = datetime.datetime

    class SkewedDatetime(right):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return right.fromtimestamp(time.time(), tz)

    # The type itself cannot be changed, so those who ask it for the time get another one.
    for module in (
        apscheduler.executors.base,
        apscheduler.schedulers.base,
        rollup_worker.schedule,
    ):
        module.datetime = SkewedDatetime


def reroute(network: str | None) -> None:
    """Nodes announce addresses that are the same for everybody: this process takes its own."""
    if network is None:
        return
    from cassandra.cluster import Cluster
    from cassandra.policies import AddressTranslator

    class OwnNetwork(AddressTranslator):
        def translate(self, address: str) -> str:
            return f"{network}.{address.rpartition('.')[2]}"

    Cluster.address_translator = OwnNetwork()


def wrapped(place: Place, faults: Faults) -> Any:
    method = getattr(place.owner, place.method)

    def reach(step: Step | None) -> None:
        if step is not None:
            faults.reach(step)

    def pieces(arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """The call, or two calls of half of its rows each, if something is to happen between."""
        *others, rows = arguments or [()]
        if place.middle is None or len(rows) < 2:
            return [arguments]
        half = len(rows) // 2
        return [(*others, rows[:half]), (*others, rows[half:])]

    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def asynchronous(self: Any, *arguments: Any, **options: Any) -> Any:
            reach(place.start)
            first, *second = pieces(arguments)
            answer = await method(self, *first, **options)
            for piece in second:
                reach(place.middle)
                answer = await method(self, *piece, **options)
            reach(place.end)
            return answer

        return asynchronous

    @wraps(method)
    def synchronous(self: Any, *arguments: Any, **options: Any) -> Any:
        reach(place.start)
        first, *second = pieces(arguments)
        answer = method(self, *first, **options)
        for piece in second:
            reach(place.middle)
            answer = method(self, *piece, **options)
        reach(place.end)
        return answer

    return synchronous


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
