"""A store that has become slow: somebody else holds the file's write lock most of the time."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Shorter than the 5 s after which a write that waits for the lock fails.
HELD_S = 1.5
# Long enough for whoever waits for the lock: SQLite tries again every 100 ms.
FREE_S = 0.3


class SlowStore:
    def __init__(self) -> None:
        self.turns = 0  # how often the lock was held
        self._over = threading.Event()

    def hold_again_and_again(self, file: Path) -> None:
        lock = sqlite3.connect(file, isolation_level=None, timeout=60)
        while not self._over.is_set():
            lock.execute("BEGIN IMMEDIATE")
            self.turns += 1
            self._over.wait(HELD_S)
            lock.execute("ROLLBACK")
            self._over.wait(FREE_S)
        lock.close()

    def end(self) -> None:
        self._over.set()


@contextmanager
def slow_store(data: Path) -> Iterator[SlowStore]:
    """Meanwhile the store of this data directory takes writes for a moment only, now and then."""
    store = SlowStore()
    holding = threading.Thread(target=store.hold_again_and_again, args=(data / "tally.db",))
    holding.start()
    try:
        yield store
    finally:
        store.end()
        holding.join(60)
        assert not holding.is_alive()
