from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.injected import Faults
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
