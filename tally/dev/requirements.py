"""What must be installed on the machine: found, or installed, or said in one line."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from counter.errors import SetupError

# The newest that Cassandra 5.0 is made for comes first; 21 is not in its list, and runs.
JAVA_VERSIONS = (17, 21, 11)
SYSTEM_JAVAS = Path("/usr/lib/jvm")
# Debian keeps servers out of the PATH of users who are not root.
SERVER_PROGRAMS = ("/usr/sbin", "/usr/local/sbin")
ASK_TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Java:
    path: str
    version: int


@dataclass(frozen=True, kw_only=True)
class Requirement:
    name: str  # for people
    packages: tuple[str, ...]  # of Debian; the first that there is will do


JAVA = Requirement(
    name=f"Java {', '.join(map(str, sorted(JAVA_VERSIONS)[:-1]))} or {max(JAVA_VERSIONS)}",
    packages=tuple(f"openjdk-{version}-jre-headless" for version in JAVA_VERSIONS),
)
MAVEN = Requirement(name="Maven (mvn)", packages=("maven",))
MEMCACHED = Requirement(name="memcached", packages=("memcached",))


def find_java() -> Java:
    """A Java that Cassandra runs on: that of JAVA_HOME, of the PATH, or one beside it."""
    found = java_found()
    if found is None:
        raise SetupError(how_to_install([JAVA]))
    return found


def find_program(requirement: Requirement, name: str) -> str:
    path = shutil.which(name, path=_search_path())
    if path is None:
        raise SetupError(how_to_install([requirement]))
    return path


def missing(*, jars_are_there: bool) -> list[Requirement]:
    """What is not installed. Maven is needed only to bring Cassandra."""
    absent = [] if java_found() is not None else [JAVA]
    if not jars_are_there and shutil.which("mvn") is None:
        absent.append(MAVEN)
    if shutil.which("memcached", path=_search_path()) is None:
        absent.append(MEMCACHED)
    return absent


def how_to_install(absent: Sequence[Requirement]) -> str:
    """One line: what is missing, and the command that installs it."""
    names = " and ".join(each.name for each in absent)
    verb = "is" if len(absent) == 1 else "are"
    packages = " ".join(each.packages[0] for each in absent)
    if shutil.which("apt-get") is not None:
        return f"{names} {verb} not installed. Install with: sudo apt-get install {packages}"
    if shutil.which("brew") is not None:
        formulas = " ".join("openjdk@17" if each is JAVA else each.packages[0] for each in absent)
        return f"{names} {verb} not installed. Install with: brew install {formulas}"
    return f"{names} {verb} not installed. On Debian the packages are: {packages}"


def can_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def install(absent: Sequence[Requirement]) -> Iterator[str]:
    """Installs Debian packages, as root. Yields what apt-get says, line by line."""
    yield from _apt(["update"])
    packages = [_available(each) for each in absent]
    yield from _apt(["install", "--yes", "--no-install-recommends", *packages])


def _available(requirement: Requirement) -> str:
    for package in requirement.packages:
        shown = subprocess.run(
            ["apt-cache", "show", package], capture_output=True, timeout=ASK_TIMEOUT_S, check=False
        )
        if shown.returncode == 0:
            return package
    wanted = " or ".join(requirement.packages)
    raise SetupError(f"{requirement.name} is not installed, and this system has no {wanted}.")


def _apt(arguments: Sequence[str]) -> Iterator[str]:
    errors = []
    with subprocess.Popen(
        ["apt-get", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("E:"):
                errors.append(line.strip())
            yield line.strip()
    if process.returncode != 0:
        raise SetupError(f"apt-get {arguments[0]} failed: {' '.join(errors)}")


def java_found() -> Java | None:
    for path in _java_candidates():
        version = _java_version(path)
        if version in JAVA_VERSIONS:
            return Java(path=path, version=version)
    return None


def _java_candidates() -> Iterator[str]:
    if home := os.environ.get("JAVA_HOME"):
        yield str(Path(home) / "bin" / "java")
    if on_path := shutil.which("java"):
        yield on_path
    for version in JAVA_VERSIONS:
        yield from map(str, sorted(SYSTEM_JAVAS.glob(f"*-{version}-*/bin/java")))


def _java_version(path: str) -> int | None:
    try:
        said = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False
        ).stderr
    except OSError:
        return None
    # `openjdk version "17.0.15" 2025-04-15`; Java 8 calls itself 1.8.
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(found[1]) if found else None


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *SERVER_PROGRAMS])
