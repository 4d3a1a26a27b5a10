"""Calls on the platform itself: how far the rollups have come."""

from clients import translate
from clients.connection import Connection, Deadline
from clients.platform_values import RollupStatus
from counter.v1 import rollup_service_pb2 as rollup_pb


class PlatformCalls:
    """The part of `CounterClient` that does not depend on its namespace."""

    def __init__(self, connection: Connection, timeout_s: float) -> None:
        self._connection = connection
        self._timeout_s = timeout_s

    async def rollup_status(self, *, timeout_s: float | None = None) -> RollupStatus:
        """How far the folding of events into rollups has come.

        status = await client.rollup_status()
        print(status.folded_through, status.problem)
        """
        response = await self._connection.read(
            self._connection.rollups.GetRollupStatus,
            rollup_pb.GetRollupStatusRequest(),
            what="the status of the rollups",
            deadline=self._deadline(timeout_s),
        )
        return translate.rollup_status(response)

    def _deadline(self, timeout_s: float | None) -> Deadline:
        return Deadline(self._timeout_s if timeout_s is None else timeout_s)
