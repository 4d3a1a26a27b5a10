from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from counter.clock import ManualClock
from counter_server.limits import Limits
from tests.stores import BACKENDS, KEEPING
from tests.unit.counter_server.parts import PLATFORM, Parts
from tests.unit.counter_server.served import Served, Servers, serve


@pytest.fixture
async def parts(clock: ManualClock) -> Parts:
    return await Parts.create(clock)


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture(params=KEEPING)
async def served(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock, servers: Servers
) -> AsyncIterator[Served]:
    """A service without namespaces, whose limits go by the clock of the test."""
    async with BACKENDS[request.param](tmp_path / "data", clock) as stores:
        layout = await stores.ledger.open_layout(PLATFORM.layout(clock.now_ns()))
        parts = Parts(stores, clock, layout)
        parts.admission.observe(await stores.ledger.closed())
        limits = Limits(
            parts.rollup_store, servers_alive=lambda: servers.alive, monotonic_ns=clock.now_ns
        )
        yield serve(parts, limits)
