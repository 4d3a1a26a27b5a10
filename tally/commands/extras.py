"""Commands that need the server's dependencies say so when those are not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from tally.output import Failure


@contextmanager
def needs_server_extra(command: str) -> Iterator[None]:
    """Put around imports. Our own modules are always installed, so a missing one is a bug."""
    try:
        yield
    except ModuleNotFoundError as error:
        ours = {"counter", "counter_server", "rollup_worker", "control_plane", "clients", "tally"}
        if error.name is None or error.name.partition(".")[0] in ours:
            raise
        raise Failure(
            f"{command} needs {error.name}, which is not installed. "
            "Install what the server needs with: pip install 'tally[server]'"
        ) from error
