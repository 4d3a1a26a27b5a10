"""How `tally dev up` goes on: a line per backend that changes on a terminal, plain lines elsewhere.

On stderr, so that stdout has only what the command is asked for.
"""

import sys
import time

from rich.progress import Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from tally.output import console, is_terminal, printable

CASSANDRA = "Cassandra"
READY = "ready"
# Where a terminal is not watched, a sign of life now and then is enough.
FILES_PER_LINE = 100
STAGE_WIDTH_MAX = 60
DRAWN_STAGE_WIDTH_MAX = 38  # leaves room for the other columns on a terminal of 80


class DevProgress:
    """Is told how a start goes on, and shows it. A context manager."""

    def __init__(self, files_expected: int) -> None:
        self._files_expected = files_expected
        self._draws = is_terminal(sys.stderr)
        self._rows: dict[str, TaskID] = {}
        self._shown: dict[str, str] = {}
        self._started_s: dict[str, float] = {}
        self._progress = Progress(
            SpinnerColumn(finished_text="[green]✓[/green]"),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[address]}", markup=False),
            TextColumn("{task.fields[stage]}", markup=False),
            TimeElapsedColumn(),
            console=console(sys.stderr),
            disable=not self._draws,
        )

    def __enter__(self) -> "DevProgress":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def note(self, name: str, stage: str, *, ends: bool = False) -> None:
        """A step that is not a backend."""
        self._show(name, "", stage, ends=ends)

    def passing(self, name: str, stage: str) -> None:
        """Worth a moment's look on a terminal, and no line of a log."""
        if self._draws:
            self.note(name, stage)

    def fetching(self, files: int) -> None:
        share = min(99, 100 * files // self._files_expected)
        if self._draws or files % FILES_PER_LINE == 0:
            self._show(CASSANDRA, "", f"fetching, {share} %", ends=False)

    def fetched(self) -> None:
        if CASSANDRA in self._shown:
            self._show(CASSANDRA, "", "fetched", ends=True)

    def stage(self, name: str, address: str, stage: str) -> None:
        self._show(name, address, stage, ends=stage.startswith(READY))

    def _show(self, name: str, address: str, stage: str, *, ends: bool) -> None:
        stage = printable(stage)[: DRAWN_STAGE_WIDTH_MAX if self._draws else STAGE_WIDTH_MAX]
        if self._shown.get(name) == stage:
            return
        self._shown[name] = stage
        started_s = self._started_s.setdefault(name, time.monotonic())
        if self._draws:
            if name not in self._rows:
                self._rows[name] = self._progress.add_task(
                    name, total=1, address=address, stage=stage
                )
            self._progress.update(self._rows[name], stage=stage, completed=1 if ends else 0)
            return
        took_s = time.monotonic() - started_s
        after = f" after {took_s:.0f} s" if ends and took_s >= 1 else ""
        print(" ".join(filter(None, (name, address, stage))) + after, file=sys.stderr, flush=True)
