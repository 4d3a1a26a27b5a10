"""Ports whose calls can be counted, held, failed or answered by a test."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

Wrap = Callable[[str, Any], Any]


class Tampered:
    """A port whose every call passes `around`, which may fail, wait or look."""

    def __init__(self, name: str, port: Any, around: Callable[..., Any]) -> None:
        self._name = name
        self._port = port
        self._around = around

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._port, method)
        name = f"{self._name}.{method}"

        async def tampered(*args: Any, **kwargs: Any) -> Any:
            return await self._around(name, call, *args, **kwargs)

        return tampered


class Gate:
    """Holds the first call of one method until it is opened."""

    def __init__(self, held: str) -> None:
        self._held = held
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    def wrap(self, name: str, port: Any) -> Any:
        return Tampered(name, port, self._around)

    async def _around(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        if name == self._held and not self.reached.is_set():
            self.reached.set()
            await self.opened.wait()
        return await call(*args, **kwargs)


class Scripted:
    """Counts the calls of all ports, and holds or replaces those that a test names."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.in_flight: Counter[str] = Counter()
        self.held: dict[str, asyncio.Event] = {}
        self.answers: dict[str, Callable[..., Awaitable[Any]]] = {}

    def wrap(self, name: str, port: Any) -> Any:
        return Tampered(name, port, self._around)

    def hold(self, name: str) -> asyncio.Event:
        """Holds every call of the method that begins from now on, until the event is set."""
        self.held[name] = asyncio.Event()
        return self.held[name]

    async def _around(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        self.calls[name] += 1
        self.in_flight[name] += 1
        try:
            if name in self.held:
                await self.held[name].wait()
            if name in self.answers:
                return await self.answers[name](call, *args, **kwargs)
            return await call(*args, **kwargs)
        finally:
            self.in_flight[name] -= 1


async def settle() -> None:
    """Lets everything that can go on without outside help go on."""
    for _ in range(50):
        await asyncio.sleep(0)
