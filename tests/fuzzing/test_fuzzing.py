"""Any bytes, wherever bytes come in: see `stored`, `files`, `typed` and `requests`.

`make fuzz SECONDS=60` goes on where this ends, guided by what the bytes reach in the code.
"""

from importlib import import_module
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.fuzzing.target import CORPUS, Target
from tests.fuzzing.targets import TARGETS

THOROUGH = settings.get_current_profile_name() == "thorough"
EXAMPLES = 20_000 if THOROUGH else 250
each_target = pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)


@st.composite
def changed_seeds(draw: st.DrawFn, target: Target) -> bytes:
    """A kept input with some changes: whole pieces come and go, and single bytes."""
    seeds = [each.read_bytes() for each in target.seeds()]
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["word", "cut", "bytes", "flip", "repeat", "join"]))
        if change == "word" and target.words:
            data[at:at] = draw(st.sampled_from(target.words))
        elif change == "cut":
            del data[at : at + draw(st.integers(1, 20))]
        elif change == "bytes":
            data[at:at] = draw(st.binary(max_size=8))
        elif change == "flip" and at < len(data):
            data[at] ^= draw(st.integers(1, 255))
        elif change == "repeat":
            data[at:at] = data[at : at + draw(st.integers(1, 30))] * draw(st.integers(1, 100))
        else:
            data += draw(st.sampled_from(seeds))
    return bytes(data[: target.bytes_max])


@each_target
def test_what_was_worth_keeping(target: Target) -> None:
    for seed in target.seeds():
        with capture_logs():
            target.check(seed.read_bytes())


@pytest.mark.timeout(0 if THOROUGH else 600)  # a failure is made small before it is shown
@each_target
def test_any_bytes(target: Target) -> None:
    @settings(max_examples=EXAMPLES)
    @given(st.binary(max_size=200) | changed_seeds(target))
    def check(data: bytes) -> None:
        with capture_logs():
            target.check(data)

    check()


@each_target
def test_a_parser_that_fails_is_noticed(target: Target) -> None:
    module, _, name = target.parser.partition(":")
    failing = Mock(side_effect=ZeroDivisionError, **{"decode.side_effect": ZeroDivisionError})
    with patch.object(import_module(module), name, failing), capture_logs():
        for seed in target.seeds():
            try:
                target.check(seed.read_bytes())
            except Exception:
                return
    pytest.fail("nothing that is kept gets as far as the parser, or nobody looks at its errors")


def test_every_kept_input_has_a_target_and_is_small() -> None:
    assert {each.name for each in CORPUS.iterdir()} == set(TARGETS)
    for target in TARGETS.values():
        assert all(0 < each.stat().st_size <= target.bytes_max for each in target.seeds())
