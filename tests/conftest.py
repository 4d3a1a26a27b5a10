"""One fixture over all backends; everything else is beside the tests that use it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import settings

from counter.clock import ManualClock
from tests.stores import BACKENDS, Stores

# The same examples in every run, and none is judged by its seconds: other work may slow it down.
settings.register_profile("tests", derandomize=True, database=None, deadline=None)
# --hypothesis-profile=thorough: others each time, and many more.
settings.register_profile("thorough", database=None, deadline=None, max_examples=5_000)
settings.load_profile("tests")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=list(BACKENDS))
async def stores(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Stores]:
    async with BACKENDS[request.param](tmp_path / "data", clock) as opened:
        yield opened
