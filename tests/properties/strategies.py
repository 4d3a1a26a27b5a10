"""What the property tests draw: events that often collide in counter, time and token."""

from collections.abc import Sequence

from hypothesis import strategies as st

from counter.events import Event
from counter.windows import Layout

# Small windows in a small range of time, so that everything meets everything.
WINDOW_NS = 1_000_000
LAYOUT = Layout(from_window=0, window_ms=1, shards=1)
WINDOWS = 6

Written = tuple[bytes, Sequence[Event]]  # a segment: its id and its events, all of one window

TIMES = st.integers(0, WINDOWS * WINDOW_NS - 1) | st.sampled_from(
    [window * WINDOW_NS + offset for window in range(WINDOWS) for offset in (0, 1, WINDOW_NS - 1)]
)
DELTAS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3).filter(bool)
# Text that UTF-8 can carry: what a gRPC string can hold.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)

EVENTS = st.builds(
    Event,
    counter=st.sampled_from(["a", "b"]),
    time_ns=TIMES,
    token=st.sampled_from(["s", "t", "u"]),
    delta=DELTAS,
)


@st.composite
def histories(draw: st.DrawFn) -> list[Written]:
    """Segments as servers write them: of one window each, the same event in any number of them."""
    events = draw(st.lists(EVENTS, max_size=25))
    copies = draw(st.lists(st.sampled_from(events), max_size=10)) if events else []
    segments: dict[tuple[int, int], list[Event]] = {}
    for event in [*events, *copies]:
        server = draw(st.integers(0, 3))
        segments.setdefault((LAYOUT.window_of(event.time_ns), server), []).append(event)
    ids = draw(
        st.lists(
            st.binary(min_size=16, max_size=16),
            min_size=len(segments),
            max_size=len(segments),
            unique=True,
        )
    )
    return list(zip(ids, segments.values(), strict=True))
