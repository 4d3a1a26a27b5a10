"""Mistakes in what is said of tokens that come late."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import counter_server.late
from counter_server.late import LateTokens
from tests.simulation.planted.mistake import Mistake, Patches
from tests.simulation.scenario import Scenario, far_behind


def _late_look_up_in_the_log() -> Patches:
    """What became of a late token is read from all segments, not from those that count."""
    read = LateTokens._read

    async def anywhere(self: Any, partition: Any) -> Any:
        found = await read(self, partition)
        if found is None:
            return None
        namespace_id, window, shard = partition
        refs = await self._log.refs(shard, window, window)
        own = [ref for ref in refs if ref.namespace_id == namespace_id]
        bodies = await self._log.bodies(own)
        return found | {
            counter_server.late.identity(event)
            for body in bodies
            if body is not None
            for event in counter_server.late.decode(body)
        }

    yield patch.object(LateTokens, "_read", anywhere)


def _expired_before_the_fold() -> Patches:
    """A token whose window is closed and not folded yet is called expired."""
    read = LateTokens._read

    async def hasty(self: Any, partition: Any) -> Any:
        return await read(self, partition) or frozenset()

    yield patch.object(LateTokens, "_read", hasty)


def _segments_that_are_gone_held_nothing() -> Patches:
    """A token is called expired when the segments of its window are too old to be there."""
    read = LateTokens._read

    async def incomplete(self: Any, partition: Any) -> Any:
        bodies = self._log.bodies

        async def those_there(refs: Any) -> list[bytes]:
            return [body for body in await bodies(refs) if body is not None]

        with patch.object(self._log, "bodies", those_there):
            return await read(self, partition)

    yield patch.object(LateTokens, "_read", incomplete)


def _retention_over(scenario: Scenario) -> Scenario:
    """With a log_retention that is over before the load is."""
    return replace(far_behind(scenario), faults=(), log_retention_s=18, think_s=0.75, odd_share=0.7)


MISTAKES = {
    "late look-up in the log": Mistake(plant=_late_look_up_in_the_log, breaks=("I1",)),
    "expired before the fold": Mistake(plant=_expired_before_the_fold, breaks=("I7",)),
    "segments that are gone held nothing": Mistake(
        plant=_segments_that_are_gone_held_nothing, breaks=("I7",), focus=_retention_over
    ),
}
