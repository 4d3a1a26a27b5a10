"""Mistakes in what is asked of the stores, as another consistency level would make them."""

from typing import Any
from unittest.mock import patch

from tests.simulation.planted.mistake import Mistake, Patches
from tests.simulation.replicas import Replicas


def _marks_read_from_one_node() -> Patches:
    """The close mark and the watermarks are read without a quorum."""
    read = Replicas._read

    async def at_one(self: Any, machine: str, selection: Any) -> Any:
        if selection.table not in ("closes", "watermarks"):
            return await read(self, machine, selection)
        node, now_s = self._chance.choice(self.replicas), self._coordinator_s()
        [(_, rows)] = await self._ask(
            machine, lambda replica: replica.select(selection, now_s), of=[node]
        )
        return rows

    yield patch.object(Replicas, "_read", at_one)


def _reads_repair_nothing() -> Patches:
    """What one node has and another lacks is answered, and left at that."""

    async def idle(self: Any, *args: Any) -> None:
        return

    yield patch.object(Replicas, "_repair", idle)


MISTAKES = {
    "marks read from one node": Mistake(plant=_marks_read_from_one_node, breaks=("I4",)),
    "reads repair nothing": Mistake(plant=_reads_repair_nothing, breaks=("I4",)),
}
