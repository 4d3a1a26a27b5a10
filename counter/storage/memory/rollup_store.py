from collections.abc import Sequence

from counter.rollups import Rollup, RollupKey
from counter.storage.ports import RollupRow


class MemoryRollupStore:
    def __init__(self) -> None:
        self._rows: dict[RollupKey, Rollup] = {}

    async def read(self, keys: Sequence[RollupKey]) -> list[Rollup | None]:
        return [self._rows.get(key) for key in keys]

    async def write(self, rows: Sequence[RollupRow]) -> None:
        for key, rollup in rows:
            present = self._rows.get(key)
            if present is None or present.through_window <= rollup.through_window:
                self._rows[key] = rollup
