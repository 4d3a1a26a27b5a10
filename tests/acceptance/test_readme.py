"""The README's commands, run as a reader would run them, against a real server.

A block marked `bash` is run as it stands; only the address and the place of the `tally` command are
changed. The `text` block under it is what the reader was told to see: `...` stands for anything,
and the amount of white space does not matter.
"""

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from control_plane.files.loader import load_files
from tests.processes import TallyProcess

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TOOLS = ROOT / ".tools" / "bin"
ADDRESS = "127.0.0.1:50051"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND_TIMEOUT_S = 60.0


class Block(NamedTuple):
    language: str
    text: str


def blocks() -> list[Block]:
    return [Block(*found.groups()) for found in BLOCK.finditer(README.read_text())]


def blocks_in(language: str) -> list[str]:
    return [block.text for block in blocks() if block.language == language]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TallyProcess]:
    home = tmp_path_factory.mktemp("readme")
    (home / "namespaces").symlink_to(ROOT / "configs" / "namespaces")
    tally = TallyProcess(home).start()
    yield tally
    tally.end()


class Reader:
    """A terminal in the checkout. Variables that one block sets are there in the next one."""

    def __init__(self, server: TallyProcess, home: Path) -> None:
        self._server = server
        self._variables = home / "variables"
        self._variables.touch()
        path = f"{Path(sys.executable).parent}:{TOOLS}:{os.environ['PATH']}"
        self._environment = {
            **os.environ,
            "PATH": path,
            "TALLY_SERVER": server.address,
            "NO_COLOR": "1",
            "COLUMNS": "120",
        }

    def run(self, script: str) -> tuple[int, str]:
        script = script.replace(ADDRESS, self._server.address).replace("uv run tally", "tally")
        names = re.findall(r"^([A-Z][A-Z_]*)=", script, re.MULTILINE)
        keep = "".join(f"\ndeclare -p {name} >> {self._variables}" for name in names)
        whole = f"set -eo pipefail\nsource {self._variables}\n{script}{keep}"
        done = subprocess.run(
            ["bash", "-c", whole],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
        return done.returncode, done.stdout


def shows(output: str, documented: str) -> bool:
    """Whether the output holds what the README shows, from its first to its last word."""
    parts = [re.escape(" ".join(part.split())) for part in documented.split("...")]
    pattern = ".*?".join(part.replace(r"\ ", r"\s*") for part in parts)
    return re.search(pattern, " ".join(output.split()), re.DOTALL) is not None


def test_every_command_of_the_readme_does_what_it_shows(
    server: TallyProcess, tmp_path: Path
) -> None:
    assert (TOOLS / "grpcurl").exists(), "run `make .tools/bin/grpcurl` first; `make test` does"
    reader = Reader(server, tmp_path)
    listed = blocks()
    ran = 0
    for block, following in itertools.pairwise(listed):
        if block.language != "bash":
            continue
        assert following.language == "text", f"the README does not say what comes of:\n{block.text}"
        exit_code, output = reader.run(block.text)
        failed = following.text.startswith("ERROR:")
        assert (exit_code != 0) is failed, f"exit code {exit_code} of:\n{block.text}\n{output}"
        assert shows(output, following.text), (
            f"{block.text}\nshould show\n{following.text}\nand shows\n{output}"
        )
        ran += 1
    assert ran >= 10


def test_no_command_of_the_readme_escapes_this_test() -> None:
    """Whatever calls a server is in a `bash` block, which the test above runs; `tally dev`, which
    starts real backends, is run by tests of its own."""
    outside = [
        line
        for block in blocks()
        if block.language != "bash"
        for line in block.text.splitlines()
        if line.lstrip("$ ").startswith(("grpcurl", "uv run tally"))
        and not line.startswith("uv run tally dev")
    ]
    assert outside == []


def test_the_python_example_runs(server: TallyProcess, tmp_path: Path) -> None:
    [example] = blocks_in("python")
    script = tmp_path / "example.py"
    script.write_text(example.replace(ADDRESS, server.address))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr


def test_the_namespace_example_is_valid() -> None:
    [example] = blocks_in("yaml")
    loaded = load_files({"likes.yaml": example})
    assert loaded.mistakes == ()
    assert [each.name for each in loaded.definitions] == ["likes"]


@pytest.mark.parametrize(
    ("output", "documented", "expected"),
    [
        ("a 1 b", "a ... b", True),
        ('{\n  "token": "xyz"\n}', '{ "token": "..." }', True),
        ("added +3 to x/y\ntoken: --token t --at now", "added +3 to x/y\ntoken: ...", True),
        ("a 1 c", "a ... b", False),
        ('{"count": "4"}', '{"count": "5"}', False),
    ],
)
def test_output_is_compared_with_what_the_readme_shows(
    output: str, documented: str, expected: bool
) -> None:
    assert shows(output, documented) is expected
