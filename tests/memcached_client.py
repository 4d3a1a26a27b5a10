"""Clients of real memcached servers, as tests need them."""

import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from counter.storage.memcached import MemcachedServers, MemcachedSettings
from tally.dev.memcached import Memcached

ANSWERED_WITHIN_S = 10.0
# Tests run on machines that are busy with tests: only those about time limits use short ones.
PATIENT_MS = 5_000


def ask(server: Memcached, request: bytes) -> bytes:
    """What memcached answers to one command in raw form."""
    where = (server.host, server.port)
    with socket.create_connection(where, timeout=ANSWERED_WITHIN_S) as connection:
        connection.sendall(request + b"quit\r\n")
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    return answer


@asynccontextmanager
async def connected(
    servers: Sequence[Memcached],
    *,
    prefix: str = "test",
    timeout_ms: int = PATIENT_MS,
    connections_per_server: int = 1,
) -> AsyncIterator[MemcachedServers]:
    opened = MemcachedServers(
        MemcachedSettings(
            servers=tuple(server.address for server in servers),
            prefix=prefix,
            timeout_ms=timeout_ms,
            connections_per_server=connections_per_server,
            probe_interval_ms=20,
        )
    )
    await opened.start()
    try:
        yield opened
    finally:
        await opened.close()
