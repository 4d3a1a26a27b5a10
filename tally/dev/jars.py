"""Cassandra's jars: brought once per user by Maven, and kept.

The folder appears under its name only when it is complete, so neither a broken download nor two
runs at once leave half of it behind.
"""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from counter.errors import SetupError
from tally.dev.requirements import MAVEN, find_program

CASSANDRA_VERSION = "5.0.9"
# About that many, Maven's own parts and all descriptions included; for a progress display.
FILES_EXPECTED = 505
POM = Path(__file__).parent / "pom.xml"
STAMP = "complete"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "tally"


def cached_jars() -> Path | None:
    """The folder with the jars, if they have been brought already."""
    directory = cache_directory() / f"cassandra-{CASSANDRA_VERSION}"
    return directory if (directory / STAMP).exists() else None


def cassandra_jars(progress: Callable[[int], None] = lambda _: None) -> Path:
    """The folder with the jars; brings them if needed, which takes a minute or so.

    `progress` is called with the number of files that Maven has brought so far. SetupError says
    what went wrong.
    """
    if (found := cached_jars()) is not None:
        return found
    progress(0)
    cache = cache_directory()
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "cassandra.lock"):
        # Somebody else may have brought them while we waited.
        if (found := cached_jars()) is not None:
            return found
        wanted = cache / f"cassandra-{CASSANDRA_VERSION}"
        with tempfile.TemporaryDirectory(dir=cache, prefix="fetching-") as temporary:
            made = Path(temporary) / "jars"
            _bring(made, progress)
            (made / STAMP).write_text(f"{CASSANDRA_VERSION}\n")
            # Without the stamp, it is what somebody broke.
            shutil.rmtree(wanted, ignore_errors=True)
            made.rename(wanted)
        return wanted


def _bring(target: Path, progress: Callable[[int], None]) -> None:
    maven = find_program(MAVEN, "mvn")
    command = [
        maven,
        "--batch-mode",
        "--strict-checksums",
        f"--file={POM}",
        _COPY,
        f"-DoutputDirectory={target}",
        "-DincludeScope=runtime",
        f"-Dcassandra.version={CASSANDRA_VERSION}",
    ]
    said: list[str] = []
    brought = 0
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Maven's plug-ins write beside the POM; ours may be installed read-only.
        cwd=target.parent,
    ) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                said.append(line.rstrip())
                if "Downloaded from" in line:
                    brought += 1
                    progress(brought)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0 or not any(target.glob("cassandra-all-*.jar")):
        errors = [line for line in said if line.startswith("[ERROR]")] or said[-5:]
        raise SetupError(
            f"Maven could not bring Cassandra {CASSANDRA_VERSION}: is there a network?\n"
            + "\n".join(errors[:5])
        )


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    """One at a time, over all processes of this user; a killed one lets go."""
    with file.open("w") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
