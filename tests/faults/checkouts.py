"""Earlier states of this repository, to run their programs beside those of today."""

import os
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from tests.processes import ROOT, ProgramProcess

SCHEMA = "counter/storage/cassandra/schema.cql"
STREAMS = "clients/stream.py"
PRODUCT = ("clients", "control_plane", "counter", "counter_server", "rollup_worker", "tally")


def first_with_this_schema() -> str:
    """The commit that made the tables what they are: the oldest that can share a keyspace."""
    return _differs(_git("log", "-1", "--format=%H", "--", SCHEMA))


def last_without_streams() -> str:
    """A client of then makes single calls and batches; it knows no stream of adds."""
    made = _git("log", "--format=%H", "--diff-filter=A", "--", STREAMS).split()
    assert made, _missing(f"a commit that added {STREAMS}")
    return _differs(_git("rev-parse", "--verify", "--quiet", f"{made[-1]}^"))


def check_out(commit: str, directory: Path) -> Path:
    """The files of a commit, in a directory of their own."""
    packed = subprocess.run(
        ["git", "archive", commit, *PRODUCT, "pyproject.toml"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    directory.mkdir(parents=True)
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(directory, filter="data")
    return directory


def environment(checkout: Path) -> dict[str, str]:
    """In which Python finds the packages of the checkout, and not those of today."""
    return {**os.environ, "PYTHONPATH": str(checkout)}


class VersionedProcess(ProgramProcess):
    """A program that can be started from another checkout each time."""

    def run_from(self, checkout: Path | None) -> None:
        """From the next start on; None: from today's."""
        self._directory = checkout or ROOT
        self._environment = environment(self._directory)

    @property
    def runs_from(self) -> Path:
        """As the system has it."""
        return Path(f"/proc/{self.process.pid}/cwd").readlink()


def _differs(commit: str) -> str:
    """The commit; fails if it is not an older state of the programs."""
    assert commit, _missing("an older commit")
    same = subprocess.run(["git", "diff", "--quiet", commit, "--", *PRODUCT], cwd=ROOT, check=False)
    assert same.returncode == 1, _missing("an older state of the programs")
    return commit


def _missing(what: str) -> str:
    return (
        f"this test needs {what} of this repository: is the clone shallow? "
        "Fetch its history with: git fetch --unshallow"
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""
