"""Who changes namespaces while everybody counts: through the control plane's own code."""

import asyncio
from dataclasses import replace
from random import Random

from control_plane.snapshots import Wanted, about_of
from counter.errors import StoreUnavailable, VersionConflict
from counter.namespaces import Definition, HistoryStep, Limits, Origin, Strategy
from tests.simulation.programs import ControlPlaneProgram

# Counted in all the time. Nobody deletes them.
VIEWS = "views"
PLAYS = "plays"
HITS = "hits"
# Deleted now and then, and brought back with its counts, or created anew without them.
GUESTS = "guests"
NAMES = (VIEWS, PLAYS, HITS, GUESTS)
NAMES_WEIGHTS = (5, 4, 2, 1)
WITH_HISTORY = (VIEWS, VIEWS, GUESTS)

# Shorter than an admin may choose, so that a run has many of them.
HISTORY_STEPS_MS = (2_000, 6_000)
_HISTORY = (
    HistoryStep(step_ms=HISTORY_STEPS_MS[0], retention_ms=20_000),
    HistoryStep(step_ms=HISTORY_STEPS_MS[1], retention_ms=3_600_000),
)
_ROLLING_MS = 4_000

FIRST = (
    Definition(
        name=VIEWS,
        strategy=Strategy.EVENTUAL,
        cache_ttl_ms=2_000,
        cache_local_ttl_ms=300,
        history=_HISTORY,
    ),
    Definition(name=PLAYS, strategy=Strategy.ACCURATE, cache_ttl_ms=2_000),
    Definition(name=HITS, strategy=Strategy.ROLLING_WINDOW, rolling_window_ms=_ROLLING_MS),
    Definition(name=GUESTS, strategy=Strategy.EVENTUAL, cache_ttl_ms=2_000, history=_HISTORY[1:]),
)
CHANGES = {
    "delta": 1,
    "strategy": 1,
    "limits": 1,
    "cache": 1,
    "history": 2,
    "rolling": 2,
    "delete": 2,
    "another": 1,
}


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

    async def change(self, wanted: str | None = None) -> str:
        """Another version, by one of the ways in which admins make one; answers with which."""
        snapshots = self._program.control_plane.snapshots
        await snapshots.follower.look()
        named = {each.name: each for each in snapshots.current.definitions}
        if GUESTS not in named:
            if self._chance.random() < 0.5:
                await self.bring_back()
                return "brought back"
            named[GUESTS] = FIRST[-1]
            await self._apply(tuple(named.values()))
            return "created anew"
        drawn = self._chance.choices(list(CHANGES), weights=list(CHANGES.values()))[0]
        change = wanted or drawn
        self._change(change, named)
        await self._apply(tuple(named.values()))
        return change

    def _change(self, change: str, named: dict[str, Definition]) -> None:
        choice = self._chance.choice
        views, plays, hits = named[VIEWS], named[PLAYS], named[HITS]
        match change:
            case "delta":
                named[VIEWS] = replace(views, max_delta=choice((50, 1_000_000)))
            case "strategy":
                other = choice((Strategy.EVENTUAL, Strategy.ACCURATE))
                named[PLAYS] = replace(plays, strategy=other)
            case "limits":
                limits = Limits(adds_per_s=choice((None, 20, 200)))
                named[VIEWS] = replace(views, limits=limits)
            case "cache":
                named[VIEWS] = replace(views, cache_ttl_ms=choice((0, 100, 3_000)))
            case "history":
                named[VIEWS] = replace(views, history=choice(((), _HISTORY[:1], _HISTORY)))
            case "rolling":
                length_ms = choice((None, 2_000, _ROLLING_MS))
                strategy = Strategy.ACCURATE if length_ms is None else Strategy.ROLLING_WINDOW
                named[HITS] = replace(hits, strategy=strategy, rolling_window_ms=length_ms)
            case "delete":
                del named[GUESTS]
            case "another":
                self._number += 1
                name = f"other_{self._number}"
                named[name] = Definition(name=name, strategy=Strategy.EVENTUAL)

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
