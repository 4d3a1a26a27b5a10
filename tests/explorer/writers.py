"""A server's side of one call: append, then the close check that lets it acknowledge.

A call that is not acknowledged stops here: its server crashed or was paused, or found the window
closed and looks up what became of the token, which changes nothing for others (see `readers`).
"""

from collections.abc import Iterator

from tests.explorer.faults import Protocol
from tests.explorer.steps import Step
from tests.explorer.store import Segments, Store


class Writers:
    def __init__(self, segments: Segments, protocol: Protocol) -> None:
        self._segments = segments
        self._program = protocol.add

    def next(self, store: Store) -> Iterator[tuple[str, Store]]:
        for number, call in enumerate(self._segments.scope.calls):
            segment = 1 << number
            if store.acknowledged & segment:
                continue
            done = {Step.APPEND: store.landed & segment, Step.CHECK: store.checked & segment}
            step = next(each for each in self._program if not done[each])
            who = f"server {call.server}, {self._segments.name_of(number)}"
            if step is Step.APPEND:
                after = store._replace(landed=store.landed | segment)
                told = f"{who}: append (segment {segment:b})"
            elif self._segments.window_of(number) > store.closed_through:
                after = store._replace(checked=store.checked | segment)
                told = f"{who}: check, the window is open"
            else:
                continue
            if step is self._program[-1]:
                acknowledged = after.acknowledged | segment
                after = after._replace(acknowledged=acknowledged, checked=after.checked & ~segment)
                told += ", acknowledge"
            yield told, after
