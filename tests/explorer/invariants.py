"""What must hold in every reachable state, and from one state to the next."""

from tests.explorer.store import Row, Segments, Store


def broken(segments: Segments, store: Store) -> str | None:
    """The promise that does not hold, if there is one."""
    return _chain(store) or _row(segments, store) or _outcomes(segments, store)


def gone_back(before: Store, after: Store) -> str | None:
    if after.closed_through < before.closed_through:
        return f"I4: closed_through went back to {after.closed_through}"
    if after.watermark < before.watermark:
        return f"I4: the watermark went back to {after.watermark}"
    if after.row.through < before.row.through:
        return f"I4: the row went back to {after.row}"
    for record in before.records:
        if record not in after.records:
            return f"I3, I7: {record} was decided, and is not there any more"
    return None


def _chain(store: Store) -> str | None:
    first = 0
    for record in store.records:
        if record.first != first:
            return f"I3: a record starts at {record.first}, and not at {first}"
        first = record.last + 1
    if first - 1 > store.closed_through:
        return f"I1: window {first - 1} is recorded and not closed"
    if store.watermark >= first:
        return f"I3: the watermark is {store.watermark}, and {first} is not recorded"
    return None


def _row(segments: Segments, store: Store) -> str | None:
    """The row is the fold of the records (I3, I6), each event once (I1), and whoever reads now is
    told the truth (I5)."""
    through = max(store.watermark, store.row.through)
    counted = 0
    for record in store.records:
        if record.last <= store.row.through:
            counted |= record.segments
        elif record.last <= through and record.segments:
            return f"I5: the watermark is {through}, and the row lacks {record}"
    scratch = segments.fold(Row(), counted, store.row.through)
    if scratch != store.row:
        return f"I1, I3, I6: the row is {store.row}, and a fold from scratch is {scratch}"
    return None


def _outcomes(segments: Segments, store: Store) -> str | None:
    _, never = segments.decided(store)
    lost = never & store.acknowledged
    if lost:
        name = segments.name_of(lost.bit_length() - 1)
        return f"I1, I7: {name} was acknowledged, and the record of its window does not have it"
    return None
