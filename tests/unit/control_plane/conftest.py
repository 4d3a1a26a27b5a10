from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from counter.clock import ManualClock
from counter.storage.memory import MemoryNamespaceStore
from tests.stores import BACKENDS, KEEPING
from tests.unit.control_plane.folders import Watched, make, write
from tests.unit.control_plane.live import Live, running


@pytest.fixture(params=KEEPING)
async def live(
    request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock
) -> AsyncIterator[Live]:
    """On stores that forget when they are told to, by the clock of the test."""
    backend = BACKENDS[request.param]
    async with backend(tmp_path / "data", clock) as stores, running(stores, clock) as started:
        yield started
        missed = set(getattr(request.function, "rules", ())) - started.applied
        assert not missed, f"the test makes no change to which these rules apply: {missed}"


@pytest.fixture
def store() -> MemoryNamespaceStore:
    return MemoryNamespaceStore()


@pytest.fixture
async def watched(store: MemoryNamespaceStore, tmp_path: Path) -> Watched:
    """Started, with the namespaces a and b."""
    write(tmp_path, "a")
    write(tmp_path, "b")
    started = make(store, tmp_path)
    await started.start()
    return started
