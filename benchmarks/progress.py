"""Says on stderr what is being measured; stdout is for the figures."""

import time

from rich.console import Console


class Progress:
    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._start_s = time.monotonic()

    def say(self, what: str) -> None:
        self._console.print(f"[dim]{self.elapsed_s():5.0f} s[/dim]  {what}")

    def elapsed_s(self) -> float:
        return time.monotonic() - self._start_s
