"""The progress bar of an import: on stderr, and only where a person looks at it."""

import sys
import time

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tally.output import console, is_terminal


class BatchProgress:
    """Shows how far into the file the import is, how fast, and how long it will still take."""

    def __init__(self, size_bytes: int | None) -> None:
        self._started_s = time.monotonic()
        self._progress = Progress(
            TextColumn("adding"),
            BarColumn(bar_width=30),
            TextColumn("{task.percentage:>3.0f}%" if size_bytes else ""),
            TextColumn("{task.fields[adds]:>9,} adds  {task.fields[rate]:>8,.0f}/s"),
            TimeRemainingColumn(compact=True),
            console=console(sys.stderr),
            transient=True,
            disable=not is_terminal(sys.stderr),
        )
        self._task = self._progress.add_task("adding", total=size_bytes, adds=0, rate=0.0)

    def __enter__(self) -> "BatchProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, *, bytes_read: int, adds: int) -> None:
        elapsed_s = time.monotonic() - self._started_s
        rate = adds / elapsed_s if elapsed_s else 0.0
        self._progress.update(self._task, completed=bytes_read, adds=adds, rate=rate)
