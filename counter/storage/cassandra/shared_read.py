"""One read for many callers, each of which needs it to begin after its own call."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from counter.background import heard

T = TypeVar("T")


class SharedRead(Generic[T]):
    """While one read is under way, callers gather for the next: it begins after all their calls.

    So what a caller did before it called is seen by the read that answers it, and however many
    callers there are, the store sees one read after another.
    """

    def __init__(self, read: Callable[[], Awaitable[T]]) -> None:
        self._read = read
        self._next: asyncio.Future[T] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def __call__(self) -> T:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
            if self._reading is None:
                self._reading = asyncio.create_task(self._read_while_asked())
        # Shielded: one caller that goes away does not take the read from the others.
        return await asyncio.shield(self._next)

    async def _read_while_asked(self) -> None:
        try:
            while (asked := self._next) is not None:
                self._next = None
                try:
                    asked.set_result(await self._read())
                except Exception as error:
                    asked.set_exception(error)
                    heard(asked)
        finally:
            self._reading = None
