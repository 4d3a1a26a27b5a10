"""Waiting for what the worker's tasks do by themselves."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], meanwhile: Callable[[], None] | None = None) -> None:
    """`meanwhile` is called again and again: to let the tests' clock go on, for example."""
    async with asyncio.timeout(10):
        while not condition():
            if meanwhile is not None:
                meanwhile()
            await asyncio.sleep(0.005)
