from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.calls import Calls
from tests.processes import FAST, TallyProcess


@pytest.fixture(scope="session")
def tally(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TallyProcess]:
    """One server for all tests that leave it as it was: each uses counters of its own."""
    process = TallyProcess(tmp_path_factory.mktemp("tally"), *FAST).start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="session")
def calls(tally: TallyProcess) -> Iterator[Calls]:
    with Calls(tally.address) as calls:
        yield calls


@pytest.fixture
def own_tally(tmp_path: Path) -> Iterator[TallyProcess]:
    """A server for one test, not started yet, ended whatever happens."""
    process = TallyProcess(tmp_path, *FAST)
    yield process
    process.end()
