"""Programs that run beside us, found again by a pid file and never mistaken for another program.

A pid alone proves nothing: after a crash the number may belong to somebody else. So each program
is started with a marker in its arguments (the directory that it works in), and a pid counts only
while the process with that number has the marker.
"""

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from tally.dev.ports import require_free

PID_WITHIN_S = 10.0
KILLED_WITHIN_S = 10.0
PAUSED_WITHIN_S = 10.0
LOOK_EVERY_S = 0.02

_PROCESSES = Path("/proc")  # of Linux

# The pid file is written by the started process itself, before it becomes the program: no crash of
# ours can leave a program behind that no pid file knows.
_DETACHED = 'echo $$ >"$0.new" && mv "$0.new" "$0" && exec "$@"'
# The shell waits for the end of its input, which comes when we close it and also when we are killed
# in whatever way: then it kills the program.
_BOUND = (
    '"$@" </dev/null & child=$!; echo $child >"$0.new" && mv "$0.new" "$0"; '
    "read -r _; kill -9 $child 2>/dev/null; wait $child"
)


class ManagedProcess:
    """One program with a pid file. Several objects, also in several processes, can mean the same.

    With `detached` the program goes on when this process ends; otherwise it is killed then, even
    if this process has no chance to do anything about it.
    """

    def __init__(self, *, pid_file: Path, marker: str, detached: bool) -> None:
        self.pid_file = pid_file
        self._marker = marker
        self._detached = detached
        self._shell: subprocess.Popen[bytes] | None = None

    def start(
        self, command: Sequence[str], *, log: Path, listens: Sequence[tuple[str, int]] = ()
    ) -> None:
        """Starts the program; its output is appended to `log`. It must not be running.

        SetupError if one of the ports that it `listens` on is taken.
        """
        assert self._marker in command, "it could not be found again"
        assert not self.is_running, f"{self.pid_file} is of a running process"
        # One that was killed a moment ago may still hold its ports.
        self._wait_collected(KILLED_WITHIN_S)
        require_free(listens)
        self._forget()
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        script = _DETACHED if self._detached else _BOUND
        with log.open("ab") as output:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", script, str(self.pid_file), *command],
                stdin=subprocess.DEVNULL if self._detached else subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=self.pid_file.parent,
                # Ctrl-C in our terminal is for us alone.
                start_new_session=True,
            )
        try:
            self._wait_for_pid_file()
        except BaseException:
            self._abandon()
            raise

    @property
    def pid(self) -> int | None:
        """The process's number while it runs, also while it is paused."""
        pid = self._written_pid()
        return pid if pid is not None and self._marker in _arguments(pid) else None

    @property
    def is_running(self) -> bool:
        return self.pid is not None

    def signal(self, number: signal.Signals) -> bool:
        """Sends the signal; false if there is no process to send it to."""
        pid = self.pid
        if pid is None:
            return False
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return False
        return True

    def pause(self) -> None:
        """Stops the process where it is (SIGSTOP); returns when all of its threads have stopped."""
        pid = self.pid
        if pid is None or not self.signal(signal.SIGSTOP):
            return
        ends_s = time.monotonic() + PAUSED_WITHIN_S
        while not _is_paused(pid) and time.monotonic() < ends_s:
            time.sleep(LOOK_EVERY_S)

    def resume(self) -> None:
        self.signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """SIGTERM; `stop` waits for the end."""
        self.resume()
        self.signal(signal.SIGTERM)

    def kill(self) -> None:
        """kill -9; returns when the process is gone."""
        self.signal(signal.SIGKILL)
        if not self.wait_gone(KILLED_WITHIN_S):
            raise TimeoutError(f"process {self.pid} does not die of SIGKILL")
        self._forget()

    def stop(self, within_s: float) -> bool:
        """SIGTERM, and SIGKILL for what is not gone then; false if it came to that."""
        self.ask_to_stop()
        if self.wait_gone(within_s):
            self._forget()
            return True
        self.kill()
        return False

    def wait_gone(self, within_s: float) -> bool:
        """Whether the process ended in time, with all that it held, like ports and locks."""
        ends_s = time.monotonic() + within_s
        while self.is_running:
            if time.monotonic() >= ends_s:
                return False
            time.sleep(LOOK_EVERY_S)
        self._wait_collected(ends_s - time.monotonic())
        return True

    def _wait_collected(self, within_s: float) -> None:
        """A dying process loses its arguments first, and its ports later."""
        pid = self._written_pid()
        ends_s = time.monotonic() + within_s
        while pid is not None and _is_dying(pid) and time.monotonic() < ends_s:
            time.sleep(LOOK_EVERY_S)

    def _written_pid(self) -> int | None:
        try:
            return int(self.pid_file.read_text())
        except (FileNotFoundError, ValueError):
            return None

    def _wait_for_pid_file(self) -> None:
        assert self._shell is not None
        ends_s = time.monotonic() + PID_WITHIN_S
        while not self.pid_file.exists() and self._shell.poll() is None:
            if time.monotonic() >= ends_s:
                raise TimeoutError(f"no {self.pid_file} within {PID_WITHIN_S:.0f} s")
            time.sleep(LOOK_EVERY_S)

    def _abandon(self) -> None:
        """Ends a start that was interrupted before there was a pid file."""
        if self._shell is not None and self._detached:
            self._shell.kill()  # the shell, or what it has become
        self._forget()

    def _forget(self) -> None:
        if self._shell is not None:
            if self._shell.stdin is not None:
                self._shell.stdin.close()
            self._shell.wait(KILLED_WITHIN_S)
            self._shell = None
        self.pid_file.unlink(missing_ok=True)


class Backend:
    """A server that is started, stopped, killed and paused at will."""

    def __init__(self, process: ManagedProcess, *, stopped_within_s: float) -> None:
        self._process = process
        self._stopped_within_s = stopped_within_s

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether there is a process: it may still be starting, or be paused."""
        return self._process.is_running

    def kill(self) -> None:
        """kill -9: it has no chance to finish anything."""
        self._process.kill()

    def ask_to_stop(self) -> None:
        """`stop` without waiting, for when several are to end."""
        self._process.ask_to_stop()

    def stop(self) -> None:
        """Lets it finish, for a while."""
        self._process.stop(self._stopped_within_s)

    def pause(self) -> None:
        """It hangs: it keeps its connections, the kernel takes new ones, and nobody answers."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()


def _arguments(pid: int) -> list[str]:
    """The process's command line; empty if it has ended, or there is none."""
    if not (_PROCESSES / "self").exists():
        shown = subprocess.run(
            ["ps", "-ww", "-o", "command=", "-p", str(pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        return shown.stdout.split()
    try:
        return (_PROCESSES / str(pid) / "cmdline").read_text(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []


def _is_dying(pid: int) -> bool:
    """Whether it has no arguments any more, and still is more than a dead process's entry."""
    states = _thread_states(pid)
    return bool(states) and not _arguments(pid) and states != ["Z"]


def _is_paused(pid: int) -> bool:
    """Where threads cannot be looked at, one is taken at its word: it was sent the signal."""
    return all(state == "T" for state in _thread_states(pid))


def _thread_states(pid: int) -> list[str]:
    """By the letters of Linux; empty if it is gone, or cannot be told."""
    try:
        tasks = list((_PROCESSES / str(pid) / "task").iterdir())
        return [(each / "stat").read_text().rpartition(")")[2].split()[0] for each in tasks]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return []
