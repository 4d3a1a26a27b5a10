"""History that is gone: as it is after its retention, or because somebody removed it."""

from counter.storage.memory import MemoryHistoryStore
from counter.storage.ports import HistoryStore


def forget_until(
    store: HistoryStore, namespace_id: int, step_ms: int, until_step: int = 2**40
) -> int:
    """Removes the rows of a length of step that held until `until_step` or before."""
    assert isinstance(store, MemoryHistoryStore)
    gone = 0
    for key, rows in store._rows.items():
        if (key.namespace_id, key.step_ms) == (namespace_id, step_ms):
            kept = [row for row in rows if row.until_step > until_step]
            gone += len(rows) - len(kept)
            rows[:] = kept
    return gone
