"""Which namespace a call met.

A name alone does not tell: one that was deleted and created anew has another id, and counts from 0.
Callers do not see ids, so servers note them here, for the history of the run.
"""

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NamedTuple

from counter.namespaces import Namespace
from tally.verify.history import Call


class Served:
    """Filled in by the server, possibly long after the caller gave up."""

    __slots__ = ("namespace",)

    def __init__(self) -> None:
        self.namespace: Namespace | None = None  # None: the call met none

    @property
    def namespace_id(self) -> int:
        return 0 if self.namespace is None else self.namespace.id


SERVED: ContextVar[Served | None] = ContextVar("SERVED", default=None)


class Noted(NamedTuple):
    call: Call
    served: Served


def noting(named: Callable[[str], Any]) -> Callable[[str], Any]:
    """The registry's own way to find a strategy, which also notes whose it is."""

    def found(name: str) -> Any:
        strategy = named(name)
        served = SERVED.get()
        if served is not None:
            served.namespace = strategy.namespace
        return strategy

    return found
