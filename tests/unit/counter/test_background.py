import asyncio

import pytest
from structlog.testing import capture_logs

from counter import background
from counter.background import keep_running


async def test_what_fails_unexpectedly_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "RETRY_S", 0.0)
    began = 0

    async def work() -> None:
        nonlocal began
        began += 1
        if began < 3:
            raise ZeroDivisionError

    with capture_logs() as logs:
        async with asyncio.timeout(10):
            await keep_running("divide", work)
    assert began == 3
    assert [(each["action"], each["work"]) for each in logs] == [
        ("background_failed", "divide")
    ] * 2


async def test_cancelled_it_ends() -> None:
    async def work() -> None:
        await asyncio.Event().wait()

    task = keep_running("wait", work)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
