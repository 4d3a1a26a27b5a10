"""What a machine lacks is found out and said, and Cassandra is brought whole or not at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from counter.errors import SetupError
from tally.dev import requirements
from tally.dev.jars import CASSANDRA_VERSION, cached_jars, cassandra_jars
from tally.dev.requirements import JAVA, MAVEN, MEMCACHED, find_java, how_to_install, missing

TOOLS = ("sh", "mkdir", "touch", "sleep", "dirname", "env")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder of the PATH. It has what scripts need, and no Java, Maven or memcached."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for tool in TOOLS:
        found = next(each for each in ("/bin", "/usr/bin") if Path(each, tool).exists())
        (folder / tool).symlink_to(Path(found, tool))
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(requirements, "SYSTEM_JAVAS", tmp_path / "jvm")
    monkeypatch.setattr(requirements, "SERVER_PROGRAMS", ())
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tally"


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def java(path: Path, version: str) -> str:
    script(path, f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")
    return str(path)


def test_everything_that_is_missing_is_named_at_once(programs: Path) -> None:
    assert missing(jars_are_there=False) == [JAVA, MAVEN, MEMCACHED]
    assert missing(jars_are_there=True) == [JAVA, MEMCACHED]
    script(programs / "memcached", "")
    java(programs / "java", "17.0.15")
    assert missing(jars_are_there=True) == []


def test_one_line_says_what_to_install(programs: Path) -> None:
    with pytest.raises(SetupError, match="Java 11, 17 or 21 is not installed"):
        find_java()
    assert "packages are: openjdk-17-jre-headless" in how_to_install([JAVA])
    script(programs / "apt-get", "")
    assert how_to_install([JAVA, MEMCACHED]) == (
        "Java 11, 17 or 21 and memcached are not installed. "
        "Install with: sudo apt-get install openjdk-17-jre-headless memcached"
    )


def test_a_java_that_cassandra_runs_on_is_looked_for(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java(programs / "java", "1.8.0_392")
    assert missing(jars_are_there=True) == [JAVA, MEMCACHED]
    beside = java(tmp_path / "jvm" / "java-11-openjdk" / "bin" / "java", "11.0.2")
    assert (find_java().path, find_java().version) == (beside, 11)
    on_path = java(programs / "java", "21.0.4")
    assert (find_java().path, find_java().version) == (on_path, 21)
    chosen = java(tmp_path / "home" / "bin" / "java", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert (find_java().path, find_java().version) == (chosen, 17)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert find_java().path == on_path


# Stands for Maven: makes what Maven would bring, and counts how often it is asked.
MAVEN_SCRIPT = """
for argument; do case $argument in -DoutputDirectory=*) target=${argument#*=};; esac; done
echo asked >>"$ASKED"
mkdir -p "$target"
touch "$target/cassandra-all-5.jar"
echo 'Downloaded from somewhere: one.jar (1 kB)'
"""


def test_jars_are_brought_once(
    programs: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    script(programs / "mvn", MAVEN_SCRIPT)
    seen: list[int] = []
    assert cached_jars() is None
    jars = cassandra_jars(seen.append)
    assert jars == cached_jars() == cache / f"cassandra-{CASSANDRA_VERSION}"
    assert (jars / "cassandra-all-5.jar").exists()
    assert seen == [0, 1]
    assert cassandra_jars() == jars
    assert (tmp_path / "asked").read_text().split() == ["asked"]


def test_a_broken_download_leaves_nothing(programs: Path, cache: Path) -> None:
    with pytest.raises(SetupError, match="Maven"):
        cassandra_jars()
    broken = MAVEN_SCRIPT.replace('echo asked >>"$ASKED"', "")
    script(programs / "mvn", f"{broken}\necho '[ERROR] the disk is full'\nexit 1")
    with pytest.raises(SetupError, match="the disk is full"):
        cassandra_jars()
    assert cached_jars() is None
    assert [each.name for each in cache.iterdir()] == ["cassandra.lock"]


def test_half_a_cache_is_replaced(
    programs: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    half = cache / f"cassandra-{CASSANDRA_VERSION}"
    half.mkdir(parents=True)
    (half / "half.jar").touch()
    script(programs / "mvn", MAVEN_SCRIPT)
    assert not (cassandra_jars() / "half.jar").exists()


def test_two_runs_at_once_bring_it_once(
    programs: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    # Slow enough that the second run comes while the first one is at it.
    script(programs / "mvn", f"sleep 1\n{MAVEN_SCRIPT}")
    code = "from tally.dev.jars import cassandra_jars; print(cassandra_jars())"
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        for _ in range(2)
    ]
    said = [run.communicate(timeout=60)[0].strip() for run in runs]
    assert said == [str(cache / f"cassandra-{CASSANDRA_VERSION}")] * 2
    assert (tmp_path / "asked").read_text().split() == ["asked"]
