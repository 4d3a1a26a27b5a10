from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tally.dev.cassandra_node import CassandraNode
from tests import backends
from tests.faults.injected import Faults
from tests.faults.ring_fleet import RingFleet, mend_ring
from tests.processes import FAST, TallyProcess, free_port


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


@pytest.fixture(scope="session")
def metrics() -> str:
    """Where `steady` has its metrics."""
    return f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="session")
def steady(tmp_path_factory: pytest.TempPathFactory, metrics: str) -> Iterator[TallyProcess]:
    """One embedded Tally for all tests whose faults are their callers': they leave it serving, and
    use counters of their own."""
    process = TallyProcess(tmp_path_factory.mktemp("steady"), *FAST, "--metrics", metrics)
    try:
        yield process.start()
        assert process.stop() == 0
        # A bug would have left its traceback.
        assert "action=call_failed" not in process.log.read_text()
    finally:
        process.end()


# The fleet.

_standing: list[RingFleet] = []


@pytest.fixture
def ring() -> Iterator[list[CassandraNode]]:
    """The three nodes of this run, which are as they were when the test is over."""
    nodes = backends.cassandra_ring()
    yield nodes
    mend_ring(nodes)


@pytest.fixture
async def fleet(
    ring: list[CassandraNode], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[RingFleet]:
    """Two servers, two workers and a control plane that all tests share: each uses counters of its
    own, and whatever it breaks is mended after it."""
    if not _standing:
        starting = RingFleet(tmp_path_factory.mktemp("fleet"), ring)
        try:
            await starting.start_all()
        except BaseException:
            starting.end()
            raise
        _standing.append(starting)
    [fleet] = _standing
    yield fleet
    await fleet.mend()
    fleet.assert_no_bug_shows()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Ring and fleet end with the last of the tests that use them, not with the run: others can
    use the processors better."""
    if nextitem is None or not nextitem.path.name.startswith("test_fleet_"):
        while _standing:
            _standing.pop().end()
        backends.end_ring()


@pytest.fixture
def own_fleet(tmp_path: Path, ring: list[CassandraNode]) -> Iterator[RingFleet]:
    """For one test alone, not started yet, ended whatever happens."""
    fleet = RingFleet(tmp_path, ring)
    try:
        yield fleet
    finally:
        fleet.end()
