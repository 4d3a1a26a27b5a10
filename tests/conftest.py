"""One fixture over all backends; everything else is beside the tests that use it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from counter.clock import ManualClock
from tests.stores import BACKENDS, Stores


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=list(BACKENDS))
async def stores(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Stores]:
    async with BACKENDS[request.param](tmp_path / "data", clock) as opened:
        yield opened
