"""Who is told of an add, where it is not one caller who waits for it."""

from abc import ABC, abstractmethod

from clients.values import AddOutcome


class Listener(ABC):
    """Is told once, on the client's event loop."""

    __slots__ = ()

    @abstractmethod
    def done(self) -> bool:
        """Nobody wants to know any more: what was not sent need not be."""

    @abstractmethod
    def added(self, text: str, time_ns: int, region: str, *, duplicate: bool) -> None:
        """It counts, with this token."""

    @abstractmethod
    def failed(self, outcome: AddOutcome) -> None: ...
