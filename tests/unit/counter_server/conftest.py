import pytest

from counter.clock import ManualClock
from tests.unit.counter_server.parts import Parts


@pytest.fixture
async def parts(clock: ManualClock) -> Parts:
    return await Parts.create(clock)
