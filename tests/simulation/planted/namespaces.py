"""Mistakes in how namespaces change."""

from dataclasses import replace
from typing import Any
from unittest.mock import patch

import control_plane.snapshots
from counter_server.registry import Registry
from rollup_worker.record_folds import RecordFolds
from tests.simulation.planted.mistake import Mistake, Patches, reconfigured, struck
from tests.simulation.scenario import Scenario


def _namespaces_switched_by_halves() -> Patches:
    """A new version replaces what is new in it, and leaves the rest as it was."""
    switch = Registry.switch

    def half(self: Any, snapshot: Any) -> None:
        before = dict(self.strategies)
        switch(self, snapshot)
        self.strategies = {**self.strategies, **before}

    yield patch.object(Registry, "switch", half)


def _id_given_again() -> Patches:
    """A namespace that is created anew gets the id, and the counts, that it had."""
    next_snapshot = control_plane.snapshots.next_snapshot

    def with_old_ids(current: Any, definitions: Any, **options: Any) -> Any:
        options["ids"] = {each.name: each.id for each in current.retired} | dict(options["ids"])
        return next_snapshot(current, definitions, **options)

    yield patch.object(control_plane.snapshots, "next_snapshot", with_old_ids)


def _deleted_is_forgotten() -> Patches:
    """Nobody remembers a deleted namespace, so what was added last is not folded."""
    next_snapshot = control_plane.snapshots.next_snapshot

    def forgetful(*args: Any, **options: Any) -> Any:
        return replace(next_snapshot(*args, **options), retired=())

    yield patch.object(control_plane.snapshots, "next_snapshot", forgetful)


def _folded_by_the_newest_version() -> Patches:
    """A record is folded by the namespaces of now, not by those that it names."""

    async def newest(self: Any, version: int) -> Any:
        return await self._namespace_store.latest()

    yield patch.object(RecordFolds, "snapshot", newest)


def _rivals_meanwhile(scenario: Scenario) -> Scenario:
    """With two workers on each shard, of which one stands still while namespaces change."""
    changed = reconfigured("rolling")(scenario)
    paused = struck("pause at", "write_rollup", times=12)(scenario)
    return replace(changed, workers=2, rivals=True, faults=changed.faults + paused.faults)


MISTAKES = {
    "namespaces switched by halves": Mistake(plant=_namespaces_switched_by_halves, breaks=("I10",)),
    "id given again": Mistake(plant=_id_given_again, breaks=("I10",), focus=reconfigured("delete")),
    "deleted is forgotten": Mistake(
        plant=_deleted_is_forgotten, breaks=("I1",), focus=reconfigured("delete")
    ),
    "folded by the newest version": Mistake(
        plant=_folded_by_the_newest_version, breaks=("I3",), focus=_rivals_meanwhile
    ),
}
