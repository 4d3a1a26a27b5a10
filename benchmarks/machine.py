"""What a run was measured on: versions of everything, and what the machine can do."""

import os
import platform
import sqlite3
from importlib.metadata import version
from typing import Any

import psutil

from benchmarks.tools import tool_versions
from tally.dev.jars import CASSANDRA_VERSION

_GIGABYTE = 1_000_000_000
# By the name in the results, which tells a client from its server.
_PACKAGES = {
    "grpcio": "grpcio",
    "cassandra-driver": "cassandra-driver",
    "redis-py": "redis",
    "asyncpg": "asyncpg",
    "nats-py": "nats-py",
}


def versions() -> dict[str, str]:
    return {
        "tally": version("tally"),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "cassandra": CASSANDRA_VERSION,
        **tool_versions(),
        **{name: version(package) for name, package in _PACKAGES.items()},
    }


def machine() -> dict[str, Any]:
    """What it can do, not which one it is."""
    return {
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / _GIGABYTE),
        "system": f"{platform.system()} {platform.machine()}",
    }
