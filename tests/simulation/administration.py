"""Who changes namespaces while everybody counts: through the control plane's own code."""

import asyncio
from dataclasses import replace
from random import Random

from control_plane.snapshots import Wanted, about_of
from counter.errors import StoreUnavailable, VersionConflict
from counter.namespaces import Definition, HistoryStep, Limits, Origin, Strategy
from tests.simulation.programs import ControlPlaneProgram

# Counted in all the time. Nobody deletes it.
VIEWS = "views"
PLAYS = "plays"
# Deleted now and then, and brought back with its counts.
GUESTS = "guests"
NAMES = (VIEWS, PLAYS, GUESTS)

_MINUTE_MS = 60_000

FIRST = (
    Definition(
        name=VIEWS,
        strategy=Strategy.EVENTUAL,
        cache_ttl_ms=2_000,
        cache_local_ttl_ms=300,
        history=(HistoryStep(step_ms=_MINUTE_MS, retention_ms=3_600_000),),
    ),
    Definition(name=PLAYS, strategy=Strategy.ACCURATE),
    Definition(name=GUESTS, strategy=Strategy.EVENTUAL),
)


class Administration:
    def __init__(self, program: ControlPlaneProgram, chance: Random) -> None:
        self._program = program
        self._chance = chance
        self._number = 0

    async def begin(self) -> None:
        for _ in range(600):
            if self._program.is_ready:
                break
            await asyncio.sleep(0.1)
        while True:
            try:
                await self._apply(FIRST)
                return
            except StoreUnavailable:
                await asyncio.sleep(0.3)
            except VersionConflict:
                return  # the first attempt did happen

    async def change(self) -> None:
        """Another version, by one of the ways in which admins make one."""
        snapshots = self._program.control_plane.snapshots
        await snapshots.follower.look()
        current = snapshots.current
        named = {each.name: each for each in current.definitions}
        if GUESTS not in named:
            await self.bring_back()
            return
        match self._chance.choice(("delta", "strategy", "limits", "cache", "delete", "another")):
            case "delta":
                most = self._chance.choice((50, 1_000_000))
                named[VIEWS] = replace(named[VIEWS], max_delta=most)
            case "strategy":
                other = self._chance.choice((Strategy.EVENTUAL, Strategy.ACCURATE))
                named[PLAYS] = replace(named[PLAYS], strategy=other)
            case "limits":
                per_s = self._chance.choice((None, 20, 200))
                named[VIEWS] = replace(named[VIEWS], limits=Limits(adds_per_s=per_s))
            case "cache":
                ttl_ms = self._chance.choice((0, 100, 5_000))
                named[VIEWS] = replace(named[VIEWS], cache_ttl_ms=ttl_ms)
            case "delete":
                del named[GUESTS]
            case "another":
                self._number += 1
                name = f"other_{self._number}"
                named[name] = Definition(name=name, strategy=Strategy.EVENTUAL)
        await self._apply(tuple(named.values()))

    async def bring_back(self) -> None:
        """Rolls back to the last version that had them all, so that its counts come back too."""
        snapshots = self._program.control_plane.snapshots
        await snapshots.follower.look()
        current = snapshots.current
        if GUESTS in current.namespaces:
            return
        for version in range(current.version - 1, 0, -1):
            if GUESTS in (await snapshots.version(version)).namespaces:
                await snapshots.rollback(
                    version,
                    expected_version=current.version,
                    about=about_of(Origin.ROLLED_BACK, author="nemesis", reason="it was missed"),
                    allow_data_loss=True,
                )
                return

    async def _apply(self, definitions: tuple[Definition, ...]) -> None:
        snapshots = self._program.control_plane.snapshots
        wanted = Wanted(
            definitions=definitions,
            about=about_of(Origin.APPLIED, author="nemesis", reason="a change under load"),
            allow_data_loss=True,
        )
        await snapshots.apply(wanted, expected_version=snapshots.current.version)
