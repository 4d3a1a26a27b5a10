from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.injected import Faults
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
