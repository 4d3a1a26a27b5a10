"""What a planted mistake is, and what the mistakes share."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.fault_kinds import Fault
from tests.simulation.scenario import Scenario

Patches = Iterator[Any]


def _as_it_is(scenario: Scenario) -> Scenario:
    return scenario


@dataclass(frozen=True, kw_only=True)
class Mistake:
    plant: Callable[[], Patches]
    # The promise that is seen to break; where several are, any of them.
    breaks: tuple[str, ...]
    # Some need a moment that seldom comes by itself. For these it comes more often.
    focus: Callable[[Scenario], Scenario] = _as_it_is


def slowed(*statements: str, kind: str = "slow statements") -> Callable[[Scenario], Scenario]:
    """With requests that are slow at just the wrong moment, as the scenario's one fault."""
    fault = Fault(
        kind=kind,
        at_s=0,
        for_s=60,
        target="worker-0",
        amount=1.0,
        statements=statements,
    )

    def focus(scenario: Scenario) -> Scenario:
        return replace(
            scenario, faults=(fault,), workers=1, clients=5, steps=40, think_s=0.05, odd_share=0.7
        )

    return focus


def struck(kind: str, statement: str, *, times: int = 6) -> Callable[[Scenario], Scenario]:
    """With ambushes on the workers, one after the other."""

    def focus(scenario: Scenario) -> Scenario:
        faults = tuple(
            Fault(
                kind=kind,
                at_s=1 + number,
                for_s=0.5,
                target=f"worker-{number % scenario.workers}",
                statements=(statement,),
            )
            for number in range(times)
        )
        return replace(scenario, faults=faults, clients=5, steps=40, think_s=0.3)

    return focus


def reconfigured(*changes: str) -> Callable[[Scenario], Scenario]:
    """With one change of the namespaces after the other, of these kinds."""
    faults = tuple(
        Fault(
            kind="namespaces",
            at_s=0.7 * number,
            for_s=0.3,
            target="worker-0",
            statements=(changes[number % len(changes)],),
        )
        for number in range(16)
    )

    def focus(scenario: Scenario) -> Scenario:
        return replace(scenario, faults=faults, clients=5, steps=40, think_s=0.3)

    return focus


def beside(work: Any) -> None:
    asyncio.get_running_loop().create_task(work)


async def quietly(work: Any) -> None:
    with suppress(Exception):
        await work
