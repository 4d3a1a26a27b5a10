import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tally.dev.cassandra_node import CassandraNode
from tests import backends
from tests.faults.injected import Faults
from tests.faults.ring_fleet import RingFleet, mend_ring
from tests.processes import FAST, TallyProcess


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    return Faults(tmp_path / "faults")


@pytest.fixture
def tally(tmp_path: Path, faults: Faults) -> Iterator[TallyProcess]:
    """An embedded Tally that `faults` can disturb, serving; ended whatever happens."""
    process = TallyProcess(tmp_path, *FAST, faults=faults)
    try:
        yield process.start()
    finally:
        process.end()


@pytest.fixture
def ring() -> Iterator[list[CassandraNode]]:
    """The three nodes of this run, which are as they were when the test is over."""
    nodes = backends.cassandra_ring()
    yield nodes
    mend_ring(nodes)


@pytest.fixture(scope="session")
def standing_fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RingFleet]:
    fleet = RingFleet(tmp_path_factory.mktemp("fleet"), backends.cassandra_ring())
    try:
        asyncio.run(fleet.start_all())
        yield fleet
    finally:
        fleet.end()


@pytest.fixture
async def fleet(standing_fleet: RingFleet) -> AsyncIterator[RingFleet]:
    """Two servers, two workers and a control plane that all tests share: each uses counters of its
    own, and whatever it breaks is mended after it."""
    yield standing_fleet
    await standing_fleet.mend()


@pytest.fixture
def own_fleet(tmp_path: Path, ring: list[CassandraNode]) -> Iterator[RingFleet]:
    """For one test alone, not started yet, ended whatever happens."""
    fleet = RingFleet(tmp_path, ring)
    try:
        yield fleet
    finally:
        fleet.end()
