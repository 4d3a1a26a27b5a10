"""The synchronous client's calls on the platform itself, its audits among them."""

from clients.audit_values import CounterAudit, QuarantinedSegment, WindowAudit
from clients.client import CounterClient
from clients.loop_thread import LoopThread
from clients.platform_values import RollupStatus
from clients.translate_history import Moment


class SyncPlatformCalls:
    """The part of `SyncCounterClient` that control planes and workers answer."""

    _client: CounterClient
    _thread: LoopThread

    def rollup_status(self, *, timeout_s: float | None = None) -> RollupStatus:
        """How far the folding of events into rollups has come.

        print(client.rollup_status().folded_through)
        """
        return self._thread.run(self._client.rollup_status(timeout_s=timeout_s))

    def audit_counter(
        self, counter: str, *, base_time: Moment | None = None, timeout_s: float | None = None
    ) -> CounterAudit:
        """Computes a counter again and compares; see `CounterClient.audit_counter`.

        print(client.audit_counter("title-42").result)
        """
        return self._thread.run(
            self._client.audit_counter(counter, base_time=base_time, timeout_s=timeout_s)
        )

    def audit_window(
        self, shard: int, time: Moment, *, timeout_s: float | None = None
    ) -> WindowAudit:
        """Reads a partition of the event log again and compares; see `CounterClient.audit_window`.

        print(client.audit_window(3, datetime.now(UTC) - timedelta(minutes=1)).result)
        """
        return self._thread.run(self._client.audit_window(shard, time, timeout_s=timeout_s))

    def quarantine_segment(
        self, segment_id: str, *, author: str, reason: str, timeout_s: float | None = None
    ) -> QuarantinedSegment:
        """Sets a segment that cannot be read aside; see `CounterClient.quarantine_segment`.

        client.quarantine_segment("5f...", author="oncall", reason="disk failure")
        """
        return self._thread.run(
            self._client.quarantine_segment(
                segment_id, author=author, reason=reason, timeout_s=timeout_s
            )
        )
