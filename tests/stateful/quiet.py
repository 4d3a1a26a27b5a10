"""Programs that do nothing by themselves, and do not wait: for tests that move time by hand."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import Mock, patch


@contextmanager
def nothing_in_the_background() -> Iterator[None]:
    """What programs do every so often, by clocks that no test can move, is left undone."""
    with (
        patch("counter_server.app.keep_running", Mock()),
        patch("control_plane.app.keep_running", Mock()),
    ):
        yield


def no_waiting_for_folds() -> Any:
    """A call whose outcome is decided by a fold to come is told so at once: no fold comes while it
    waits."""
    return patch("counter_server.service.WAIT_S_MAX", 0.0)
