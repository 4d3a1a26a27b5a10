"""Says on stderr what is being measured; stdout is for the figures."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status


class Progress:
    """Lines of what was begun and found; on a terminal, also what is going on right now."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._start_s = time.monotonic()
        self._status: Status | None = None
        self._part = ""

    @contextmanager
    def part(self, number: int, parts: int, title: str) -> Iterator[None]:
        """One of so many parts of the run."""
        self._start_s = time.monotonic()
        self._part = f"part {number} of {parts}: {title}"
        self._console.print(f"\n[bold]{self._part}[/bold]")
        with self._console.status(self._part) as self._status:
            yield
        self._status = None

    def say(self, what: str) -> None:
        self._console.print(f"[dim]{self.elapsed_s():5.0f} s[/dim]  {what}")
        if self._status is not None:
            self._status.update(f"{self._part} - {what.strip()}")

    def elapsed_s(self) -> float:
        """Since the part began."""
        return time.monotonic() - self._start_s
