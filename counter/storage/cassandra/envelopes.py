"""Small writes to different partitions that share a request.

A request costs the driver and the node more than the little that is in it. A batch over partitions
is not more than writes in one envelope: nobody relies on it being atomic. It stays small: Cassandra
warns of batches over more than 10 partitions or 5 KiB, because it fears for its coordinators.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

WRITES_MAX = 8
BYTES_MAX = 4_096

Item = TypeVar("Item")


def envelopes(items: Iterable[Item], bytes_of: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Small ones together, large ones alone."""
    together: list[Item] = []
    room = BYTES_MAX
    for item in items:
        size = bytes_of(item)
        if size > BYTES_MAX // 2:
            yield [item]
            continue
        if size > room or len(together) == WRITES_MAX:
            yield together
            together, room = [], BYTES_MAX
        together.append(item)
        room -= size
    if together:
        yield together
