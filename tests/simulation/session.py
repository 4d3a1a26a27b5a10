"""A session of the Cassandra adapters on the simulated replicas."""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from counter.storage.cassandra.session import CassandraSession, Row
from tests.simulation.machines import Machine
from tests.simulation.replicas import Cell, Put, Replicas
from tests.simulation.statements import (
    AGREEMENTS,
    READS,
    READS_OF_MANY,
    WRITES,
    Key,
    Mutation,
    Selection,
)
from tests.simulation.witness import Witness

_MARKS = ("closed", "watermarks")


class SimulatedSession(CassandraSession):
    """Runs statements by name; all that the adapters do with them, and `agree` itself, is real."""

    def __init__(self, replicas: Replicas, machine: Machine, witness: Witness) -> None:
        self._replicas = replicas
        self._machine = machine
        self._witness = witness

    async def run(self, name: str, parameters: Sequence[Any]) -> list[Row]:
        await self._reach(name)
        answer = await self._run(name, parameters)
        if self._replicas.weather.slow_answers:
            await self._replicas.after(name)
        return answer

    async def run_batch(self, name: str, rows: Sequence[Sequence[Any]]) -> None:
        """Rows of one partition are one mutation; partitions of one batch are not."""
        await self._reach(name)
        self._witness.trace(self._machine.name, name)
        by_partition: defaultdict[Key, list[Mutation]] = defaultdict(list)
        for row in rows:
            mutation = WRITES[name](row)
            by_partition[mutation.partition].append(mutation)
        if len(by_partition) == 1:
            await self._write(*by_partition.values())
        else:
            await asyncio.gather(*(self._write(each) for each in by_partition.values()))
        for row in rows:
            self._witness.wrote(name, row)
        if self._replicas.weather.slow_answers:
            await self._replicas.after(name)

    async def _run(self, name: str, parameters: Sequence[Any]) -> list[Row]:
        if name in WRITES:
            self._witness.trace(self._machine.name, name)
            await self._write([WRITES[name](parameters)])
            self._witness.wrote(name, parameters)
            return []
        if name in AGREEMENTS:
            self._witness.trace(self._machine.name, name)
            return await self._insert(AGREEMENTS[name](parameters))
        if name in READS_OF_MANY:
            selections = READS_OF_MANY[name](parameters)
            if len(selections) == 1:
                return await self._select(selections[0])
            found = await asyncio.gather(*(self._select(each) for each in selections))
            return [row for rows in found for row in rows]
        if name in _MARKS:
            return await self._read_marks(name, READS[name](parameters))
        rows = await self._select(READS[name](parameters))
        return [(len(rows),)] if name == "count_rollups" else rows

    async def _read_marks(self, name: str, selection: Selection) -> list[Row]:
        """Nobody gets older ones than were there when he asked (I4)."""
        before = self._witness.marks_before(name)
        store_ms = self._replicas.now_ms(self._machine.epoch_ns)
        rows = await self._select(selection)
        self._witness.saw_marks(name, before, rows)
        return [(*row, store_ms) for row in rows] if name == "closed" else rows

    async def _reach(self, name: str) -> None:
        """Whoever lies in wait for this statement strikes before it is sent."""
        machine = self._machine
        strike = machine.ambushes.pop(name, None) if machine.ambushes else None
        if strike is not None:
            strike()
            await asyncio.sleep(0)  # a machine that stands still or is gone gets no further
        if self._replicas.weather.slow_statements:
            await self._replicas.before(name)

    async def _select(self, selection: Selection) -> list[Row]:
        rows = await self._replicas.read(self._machine.name, selection)
        return [selection.columns(key, value) for key, value in rows]

    async def _write(self, mutations: list[Mutation]) -> None:
        clock_us = self._machine.clock.now_ns() // 1_000
        puts = [
            Put(
                each.table,
                each.partition,
                each.row,
                Cell(
                    clock_us if each.stamp_us is None else each.stamp_us,
                    each.value,
                    self._replicas.ends_s(each),
                ),
            )
            for each in mutations
        ]
        await self._replicas.write(self._machine.name, puts)

    async def _insert(self, mutation: Mutation) -> list[Row]:
        present = await self._replicas.insert_if_absent(self._machine.name, mutation)
        if present is None:
            return [(True,)]
        if present == mutation.value:
            self._witness.counted["own proposals met again"] += 1
        return [(False, *mutation.partition, *mutation.row, *present)]
