import pytest

from counter.clock import ManualClock
from tests.stores import Stores
from tests.unit.rollup_worker.world import World


@pytest.fixture
async def world(stores: Stores, clock: ManualClock) -> World:
    return await World.create(stores, clock)
