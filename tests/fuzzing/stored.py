"""Targets: what comes back from a store, or from another process, may be any bytes.

They are what was written, or damage that is told. Checksums keep most damage out, so they are put
right here: what is behind them must not rely on them alone.
"""

import asyncio
from unittest.mock import Mock

from xxhash import xxh3_64_digest

from counter import presence
from counter.errors import StoreDamaged
from counter.keys import namespace_prefix
from counter.namespaces import (
    Strategy,
    snapshot_from_json,
    snapshot_to_json,
    version_info_from_json,
    version_info_to_json,
)
from counter.rollups import CachedCount, Rollup
from counter.segments import decode, encode
from counter.storage.cassandra import ledger as cassandra_ledger
from counter.storage.cassandra import states as cassandra_states
from counter.storage.memcached.connection import Connection
from counter.storage.memcached.count_cache import decoded, encoded
from counter.storage.sqlite import ledger as sqlite_ledger
from counter.storage.sqlite import states as sqlite_states
from counter_server.strategies.strategy import Source, Value
from counter_server.translate import value_message
from rollup_worker import report
from tests.fuzzing.target import Target

KEY = (7, "counter")


def _segment(data: bytes) -> None:
    for body in (data, b"\x01" + xxh3_64_digest(data) + data):
        try:
            events = decode(body)
        except StoreDamaged:
            continue
        assert decode(encode(events)) == events


def _fold_record(data: bytes) -> None:
    try:
        record = cassandra_ledger._decoded(data)
    except StoreDamaged:
        return
    assert cassandra_ledger._decoded(cassandra_ledger._encoder.encode(record)) == record


def _fold_row(data: bytes) -> None:
    """The columns of the embedded store that are packed."""
    for segments, set_aside in ((data, b"\x90"), (b"\x90", data)):
        try:
            sqlite_ledger._record((0, 1, 2, segments, 3, 4, b"", set_aside))
        except StoreDamaged:
            pass


def _rollup_text(data: bytes) -> None:
    try:
        rollup = cassandra_states.from_text(data.decode(errors="replace"))
    except StoreDamaged:
        return
    assert cassandra_states.from_text(cassandra_states.to_text(rollup)) == rollup


def _rollup_columns(data: bytes) -> None:
    """Numbers of more than 64 bits are text there, and recent windows are packed."""
    text = data.decode(errors="replace")
    for count, total, recent in ((text, 5, None), (5, text, None), (5, 5, data)):
        columns = (count, 0, 0, 1, total, 1, 1, recent)
        try:
            rollup: Rollup = sqlite_states.from_columns(columns)
        except StoreDamaged:
            continue
        assert sqlite_states.from_columns(sqlite_states.to_columns(rollup)) == rollup


def _namespace_versions(data: bytes) -> None:
    try:
        snapshot = snapshot_from_json(data)
    except StoreDamaged:
        pass
    else:
        assert snapshot_from_json(snapshot_to_json(snapshot)) == snapshot
    try:
        info = version_info_from_json(data)
    except StoreDamaged:
        return
    assert version_info_from_json(version_info_to_json(info)) == info


def _reports(data: bytes) -> None:
    """What processes say of themselves: what cannot be read is as good as nothing."""
    said = presence.decode(data)
    assert said is None or presence.decode(presence.encode(said)) is not None
    worker = report.decode(data)
    assert worker is None or report.decode(report.encode(worker)) is not None


def _cached_count(data: bytes) -> None:
    """Any bytes under a key are a miss, or a count that can be answered with."""
    prefix = namespace_prefix(KEY[0])
    checksum = xxh3_64_digest(data + prefix + KEY[1].encode())
    for value in (data, b"\x01" + data, b"\x01" + checksum + data):
        found = decoded(KEY, value)
        if found is None:
            continue
        count, ends_ms = found
        assert isinstance(count, CachedCount)
        assert decoded(KEY, encoded(KEY, count, ends_ms)) == found
        assert decoded((8, "counter"), value) is None
        value_message(
            Value(
                count.count,
                count.complete_through_ns,
                count.epoch,
                count.cleared_at_ns,
                Source.SHARED_CACHE,
            ),
            Strategy.EVENTUAL,
        )


def _memcached_answers(data: bytes) -> None:
    """Whatever a server sends, in whatever pieces: answers, or the end of the connection."""
    loop = asyncio.new_event_loop()
    try:
        lost = Mock()
        connection = Connection(loop, timeout_ms=1_000, on_lost=lost)
        connection.connection_made(Mock())
        batches = [connection.send(b"mg a v\r\n", 1), connection.send(b"mg a v\r\nmg b v\r\n", 2)]
        cut = data[0] if data else 0
        for piece in (data[:cut], data[cut:]):
            connection.data_received(piece)
        answered = [each.result() if each.done() else None for each in batches]
        for replies, wanted in zip(answered, (1, 2), strict=True):
            assert replies is None or len(replies) == wanted
        assert connection.lost == lost.called
        connection.give_up("the end")
        assert all(each.done() for each in batches)
    finally:
        loop.close()


TARGETS = [
    Target(
        "segments",
        _segment,
        "counter.segments:_decoder",
        (b"\x91", b"\x94", b"\x95", b"\xa1a", b"\xa1\xff", b"\xc0", b"\xdd\xff\xff\xff\xff"),
    ),
    Target("fold_records", _fold_record, "counter.storage.cassandra.ledger:_decoder"),
    Target("fold_rows", _fold_row, "counter.storage.sqlite.ledger:_segments"),
    Target("rollup_text", _rollup_text, "counter.storage.cassandra.states:Rollup"),
    Target("rollup_columns", _rollup_columns, "counter.storage.sqlite.states:Rollup"),
    Target("namespace_versions", _namespace_versions, "counter.namespaces:Snapshot"),
    Target("reports", _reports, "counter.presence:_DECODER"),
    Target("cached_counts", _cached_count, "counter.storage.memcached.count_cache:_decode"),
    Target(
        "memcached_answers",
        _memcached_answers,
        "counter.storage.memcached.connection:_size",
        (b"VA 3\r\nabc\r\n", b"HD\r\n", b"EN\r\n", b"VA 99999999\r\n", b"SERVER_ERROR\r\n"),
    ),
]
