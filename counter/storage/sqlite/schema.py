"""The schema's version and the way from any older one: migrations/NNNN.sql, in order."""

import sqlite3
from importlib import resources

from counter.errors import SetupError


def _migrations() -> list[str]:
    folder = resources.files(__package__) / "migrations"
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".sql"))
    return [(folder / name).read_text() for name in names]


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Brings the schema up to this Tally's version, one transaction per step."""
    migrations = _migrations()
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > len(migrations):
        raise SetupError(
            f"{path} has schema version {version}, but this Tally knows versions up to "
            f"{len(migrations)}: run the Tally that wrote it, or a newer one"
        )
    for number, script in enumerate(migrations[version:], start=version + 1):
        connection.executescript(f"BEGIN;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
