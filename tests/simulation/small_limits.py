"""Limits of the product made tiny, for some runs: what is cut into pieces there is cut here, too.

With the real ones no run has enough events for a second page, a second slice or a second record of
one pass.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from unittest.mock import patch

import counter.storage.cassandra.envelopes
import counter.storage.cassandra.event_log
import counter.storage.cassandra.history_store
import counter.storage.cassandra.ledger
import counter.storage.cassandra.rollup_store
import counter_server.commit
import counter_server.count_history
import counter_server.late
import counter_server.listing
import counter_server.ranking
import counter_server.streams
import counter_server.tail
import rollup_worker.audit.log
import rollup_worker.record_folds
import rollup_worker.rollup
from rollup_worker.pace import Pace, PassSize

_TINY: dict[ModuleType, dict[str, int]] = {
    counter_server.commit: {"SEGMENT_EVENTS_MAX": 2},
    counter_server.tail: {"EVENTS_KEPT_MAX": 4, "_SEGMENTS_PER_FETCH": 1},
    counter_server.late: {"EVENTS_KEPT_MAX": 3, "LOOKUPS_IN_FLIGHT_MAX": 1},
    counter_server.streams: {"ADDS_UNANSWERED_MAX": 3, "BATCHES_UNANSWERED_MAX": 2},
    counter_server.count_history: {"_ROWS_PER_PAGE": 1},
    counter_server.ranking: {"_COUNTERS_PER_PAGE": 1},
    counter_server.listing: {"_ROWS_PER_BUCKET_MIN": 1},
    counter.storage.cassandra.envelopes: {"WRITES_MAX": 1},
    counter.storage.cassandra.event_log: {
        "_MUTATION_BYTES": 40,
        "_WINDOWS_AT_ONCE": 3,
        "_SEGMENTS_PER_QUERY": 1,
    },
    counter.storage.cassandra.history_store: {"_REQUESTS_AT_ONCE": 1},
    counter.storage.cassandra.ledger: {"_FOLDS_PER_QUERY": 1},
    counter.storage.cassandra.rollup_store: {"_ROWS_PER_QUERY": 1, "_ROWS_PER_BATCH": 1},
    rollup_worker.rollup: {"_WINDOWS_PER_LOOK": 3},
    rollup_worker.record_folds: {"_EVENTS_PER_SLICE": 1},
    rollup_worker.audit.log: {"_WINDOWS_PER_LOOK": 3, "_EVENTS_PER_SLICE": 1},
}
_SMALL_PASS = PassSize(events_max=3, rollups_per_batch=1)


@contextmanager
def limits_as(*, tiny: bool) -> Iterator[None]:
    with ExitStack() as stack:
        if tiny:
            for module, limits in _TINY.items():
                for name, limit in limits.items():
                    assert getattr(module, name) > limit, name
                    stack.enter_context(patch.object(module, name, limit))
            stack.enter_context(patch.object(Pace, "size", lambda self, shard: _SMALL_PASS))
        yield
