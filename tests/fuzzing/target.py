"""A fuzz target: a function of any bytes that raises unless they are dealt with as promised."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).parent / "corpus"


class Target(NamedTuple):
    name: str
    check: Callable[[bytes], None]
    # What reads the bytes, as `module:name`: made to fail, it must make the check fail.
    parser: str
    # Pieces of what it reads, to make others of.
    words: tuple[bytes, ...] = ()
    bytes_max: int = 4_096

    def seeds(self) -> list[Path]:
        """Inputs that are worth keeping: typical ones, and those that once went wrong."""
        return sorted((CORPUS / self.name).iterdir())
