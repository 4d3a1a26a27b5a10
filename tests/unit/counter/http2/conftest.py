import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import uvloop

from counter.rpc.http2.server import Limits
from tests.unit.counter.http2.services import Served

Serve = Callable[..., Awaitable[Served]]


def pytest_asyncio_loop_factories(config: Any, item: Any) -> dict[str, Any]:
    """Every test here runs on both: servers use uvloop, tests of others do not."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts servers with limits as given. However a test has gone, they have nothing left."""
    all_served: list[Served] = []

    async def start(
        *, listen: str = "127.0.0.1:0", connection_age_s: float | None = None, **limits: Any
    ) -> Served:
        served = Served(Limits(**limits), connection_age_s)
        all_served.append(served)
        return await served.start(listen)

    yield start
    for served in all_served:
        await served.server.stop(0)
        assert (served.server.calls, served.server.kept_bytes) == (0, 0)
        assert served.server.connections == 0


@pytest.fixture
async def served(serve: Serve) -> Served:
    return await serve()
