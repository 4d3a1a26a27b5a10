"""One round of the soak, whose faults a fixed seed chooses."""

from pathlib import Path

import pytest

from tests.faults.soak import FAULTS_PER_ROUND, run_round
from tests.faults.soaked_embedded import SoakedEmbedded
from tests.faults.soaked_fleet import SoakedFleet


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_round_on_the_embedded_product(tmp_path: Path) -> None:
    async with SoakedEmbedded(tmp_path / "soaked") as soaked:
        done = await run_round(soaked, "8-1")
    assert done.total() == FAULTS_PER_ROUND


@pytest.mark.long
@pytest.mark.timeout(1_800)
async def test_a_round_on_a_fleet(tmp_path: Path) -> None:
    home = tmp_path / "soaked"
    home.mkdir()
    async with SoakedFleet(home) as soaked:
        done = await run_round(soaked, "8-1")
    assert done.total() == FAULTS_PER_ROUND
