"""The programs that the benchmarks run and that are no part of Tally, and their versions.

`make bench-tools` brings them: ghz and nats-server to `.tools/bin`, the others through the system's
packages.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from counter.errors import SetupError

_TOOLS = Path(__file__).parent.parent / ".tools" / "bin"
# Debian keeps servers out of the PATH of users who are not root.
_SERVER_FOLDERS = ("/usr/sbin", "/usr/local/sbin")
_POSTGRES_FOLDERS = Path("/usr/lib/postgresql")

_ANSWERS_WITHIN_S = 10.0
_VERSION = re.compile(r"\d+(\.\d+)+")
# By the name in the results: the program. All of them know --version.
_PROGRAMS = {
    "ghz": "ghz",
    "redis": "redis-server",
    "postgresql": "postgres",
    "nats-server": "nats-server",
    "memcached": "memcached",
}


def find_program(name: str) -> str:
    """Its path, or a SetupError that says how to bring it."""
    found = shutil.which(name, path=os.pathsep.join(map(str, _folders())))
    if found is None:
        raise SetupError(f"{name} is not installed. Bring it with: make bench-tools")
    return found


def _folders() -> list[Path | str]:
    postgres = sorted(_POSTGRES_FOLDERS.glob("*/bin"), key=_version, reverse=True)
    return [_TOOLS, *postgres, *os.get_exec_path(), *_SERVER_FOLDERS]


def _version(folder: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.parent.name.split(".") if part.isdigit())


def tool_versions() -> dict[str, str]:
    """Of those that are installed."""
    versions: dict[str, str] = {}
    for name, program in _PROGRAMS.items():
        try:
            path = find_program(program)
        except SetupError:
            continue
        answer = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            timeout=_ANSWERS_WITHIN_S,
            check=False,
        )
        versions[name] = parse_version(answer.stdout + answer.stderr)
    return versions


def parse_version(text: str) -> str:
    """The first thing that looks like one; a build that has none says so in words."""
    found = _VERSION.search(text)
    return found.group() if found else text.strip() or "unknown"
