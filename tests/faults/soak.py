"""A soak: load for minutes, with faults that a seed chooses, and every history checked.

    python -m tests.faults.soak --minutes 30 --seed 7 --on embedded

It goes in rounds. In each some faults are done to the platform under load, one after the other;
then the load stops and all of its history is checked, as in the tests. The seed decides which
faults, in which order and with which parameters; when exactly they hit is the machine's.
"""

import argparse
import asyncio
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Protocol

from tests.faults.soaked_embedded import SoakedEmbedded
from tests.faults.soaked_fleet import SoakedFleet
from tests.load import Habits, Load

FAULTS_PER_ROUND = 6

# Does one fault under this load, with what chance decides, and says what it was.
Fault = Callable[[Load, random.Random], Awaitable[str]]


class Soaked(Protocol):
    """A platform that a soak is made of. Entered, it serves; left, nothing of it is there."""

    addresses: Sequence[str]  # of its servers
    worker: str  # the address of one
    late_s: tuple[float, float]  # how old its late tokens are
    pause_s: float  # of a client, between its calls
    converges_s: float
    faults: Mapping[str, Fault]

    def check(self) -> str:
        """After each round: raises if it is not well. How it is, in some words."""
        ...


SOAKED: dict[str, Callable[[Path], AbstractAsyncContextManager[Soaked]]] = {
    "embedded": SoakedEmbedded,
    "fleet": SoakedFleet,
}


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


async def run_round(soaked: Soaked, seed: str) -> Counter[str]:
    """The faults that were done. Raises what was wrong."""
    chance, done = random.Random(seed), Counter[str]()
    habits = Habits(late_s=soaked.late_s, pause_s=soaked.pause_s, cancels=0.05, name=f"soak-{seed}")
    load = Load(soaked.addresses, habits)
    try:
        for _ in range(FAULTS_PER_ROUND):
            name = chance.choice(sorted(soaked.faults))
            # Of its own, so that what a fault draws does not decide which one comes next.
            details = random.Random(chance.random())
            await load.acknowledged(30, within_s=300)
            say(f"  {await soaked.faults[name](load, details)}")
            done[name] += 1
        await load.finish(converges_s=soaked.converges_s, worker=soaked.worker)
    finally:
        await load.close()
    outcomes = Counter(outcome.value for outcome in load.history.outcomes.values())
    say(
        f"  {len(load.history.deltas):,} events in {load.history.writes:,} calls "
        f"({outcomes['ok']:,} count, {outcomes['fail']:,} do not), {load.history.reads:,} reads: "
        f"all as promised. {soaked.check()}"
    )
    return done


async def soak(on: str, minutes: float, seed: int, home: Path) -> Counter[str]:
    ends_s = time.monotonic() + 60 * minutes
    done, number = Counter[str](), 0
    async with SOAKED[on](home) as soaked:
        while number == 0 or time.monotonic() < ends_s:
            number += 1
            say(f"round {number} on {on}")
            done += await run_round(soaked, f"{seed}-{number}")
    return done


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1_000_000))
    parser.add_argument("--on", choices=sorted(SOAKED), action="append")
    arguments = parser.parse_args()
    platforms = arguments.on or sorted(SOAKED)
    say(f"seed {arguments.seed}, {arguments.minutes:g} minutes on {' and on '.join(platforms)}")
    for on in platforms:
        home = Path(tempfile.mkdtemp(prefix=f"tally-soak-{on}-"))
        try:
            done = asyncio.run(soak(on, arguments.minutes / len(platforms), arguments.seed, home))
        except Exception:
            again = f"make soak MINUTES={arguments.minutes:g} SEED={arguments.seed}"
            say(f"failed; data and logs are in {home}. The same faults again: {again}")
            raise
        faults = ", ".join(f"{name} {times}" for name, times in sorted(done.items()))
        say(f"{on} is well. Faults: {faults}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
