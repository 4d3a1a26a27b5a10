import pytest

from benchmarks.suites import ALL, QUICK_ONES, SUITES
from benchmarks.tools import find_program, parse_version
from counter.errors import SetupError


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", "7.0.15"),
        ("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "15.18"),
        ("nats-server: v2.15.2", "2.15.2"),
        ("dev\n", "dev"),
        ("", "unknown"),
    ],
)
def test_versions_are_found_in_what_programs_say(said: str, version: str) -> None:
    assert parse_version(said) == version


def test_a_missing_program_says_how_to_bring_it() -> None:
    with pytest.raises(SetupError, match="make bench-tools"):
        find_program("no-such-program-anywhere")


def test_every_part_of_a_run_exists() -> None:
    assert set(ALL) <= set(SUITES)
    assert set(QUICK_ONES) <= set(SUITES)
