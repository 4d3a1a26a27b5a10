from pathlib import Path

import pytest

from benchmarks.hot_path.server_adds import batch_stages, stream_stages
from benchmarks.hot_path.stages import Stages, least_us

_SERVER_STAGES = {
    "protobuf_parse",
    "protobuf_access",
    "admission",
    "limits",
    "hashing",
    "grouping",
    "packing",
    "append",
    "answer",
    "rest",
}


def test_what_the_stages_do_not_explain_is_the_rest() -> None:
    stages = Stages(whole_us=5.0, parts_us={"parse": 1.0, "write": 2.5})
    assert stages.by_name() == {"parse": 1.0, "write": 2.5, "rest": 1.5}


def test_every_round_does_the_work() -> None:
    done: list[int] = []
    assert least_us(lambda: done.append(1), items=10, rounds=7) >= 0
    assert len(done) == 7


@pytest.mark.parametrize("stages", [stream_stages, batch_stages])
async def test_the_server_s_stages_are_those_of_real_adds(stages: object, tmp_path: Path) -> None:
    found = await stages(tmp_path, 10)  # type: ignore[operator]
    assert set(found.by_name()) == _SERVER_STAGES
    assert found.whole_us > 0
