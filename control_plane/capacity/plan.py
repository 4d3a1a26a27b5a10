"""A plan: the numbers for a load, or why there are none."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from control_plane.capacity import constants, sizes
from control_plane.capacity.load import WINDOW_MS_MIN, Load, Refusal, out_of_range
from control_plane.capacity.processes import US_PER_S
from control_plane.capacity.quantities import NOTHING, Line, Quantity, Sheet, total
from control_plane.capacity.stores import Formulas, recommended_cardinality
from control_plane.capacity.units import plain, shown
from control_plane.files.durations import format_ms
from counter.namespaces import Cardinality

# Beyond this nobody should start from a formula.
NODES_MAX = 1_000
# Windows that a refusal proposes are multiples of it.
_WINDOW_STEP_MS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Embedded:
    """Whether one process on the embedded store (`tally serve`) carries the load."""

    enough: bool
    why: str
    lines: Mapping[str, Line]


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    load: Load
    refusals: tuple[Refusal, ...]
    # By name, in the order in which they were computed; empty if the load is refused.
    lines: Mapping[str, Line] = field(default_factory=dict)
    cardinality: Cardinality = Cardinality.LOW
    embedded: Embedded | None = None
    notes: tuple[str, ...] = ()

    def value(self, name: str) -> float:
        return self.lines[name].value


def plan(load: Load) -> Plan:
    if refusals := out_of_range(load):
        return Plan(load=load, refusals=tuple(refusals))
    formulas = Formulas(load, Sheet())
    cardinality = load.cardinality or recommended_cardinality(load.counters / load.namespaces)
    formulas.servers()
    if load.counts_in_cache:
        # Cassandra has the namespaces, and nothing else.
        formulas.nodes(formulas.node_cores(), NOTHING)
    elif refusals := list(_logged(formulas, cardinality)):
        return Plan(load=load, refusals=tuple(refusals))
    formulas.cache_memory()
    formulas.network()
    return Plan(
        load=load,
        refusals=(),
        lines=formulas.sheet.lines,
        cardinality=cardinality,
        embedded=_embedded(load),
        notes=tuple(_notes(load, formulas.sheet.lines)),
    )


def _logged(formulas: Formulas, cardinality: Cardinality) -> Iterator[Refusal]:
    formulas.workers()
    yield from _check_hot_counter(formulas)
    rollups = formulas.rollup_bytes()
    yield from _check_rollups(formulas, rollups, cardinality)
    if layout := [*_check_shards(formulas), *_check_lanes(formulas)]:
        yield from layout
        return
    formulas.segments_written()
    log, records = formulas.log_bytes()
    parts = [log, records, rollups]
    if (history := formulas.history_bytes()) is not None:
        parts.append(history)
    data = formulas.sheet.named("data_bytes", "B", total(*parts), "all data, a copy")
    nodes = formulas.nodes(formulas.node_cores(), data)
    if nodes.value > NODES_MAX:
        yield Refusal(
            code="NODES",
            what="--adds-per-s",
            why=f"{shown(nodes.value, '')} Cassandra nodes ({_why(formulas, 'nodes')}) are more "
            f"than {plain(NODES_MAX)}",
            change="Split the load over several platforms, or take a shorter --retention, less "
            "--history or larger nodes (--node-cores, --node-disk)",
        )
    formulas.lag()


def _why(formulas: Formulas, name: str) -> str:
    return formulas.sheet.lines[name].filled


def _check_hot_counter(formulas: Formulas) -> Iterator[Refusal]:
    cores = formulas.hot_fold_cores()
    if cores.value <= formulas.usable.value:
        return
    load = formulas.load
    yield Refusal(
        code="HOT_COUNTER_FOLD",
        what="--hot-share",
        why=f"the busiest counter gets {shown(load.adds_per_s * load.hot_share, '/s')}, and one "
        f"shard is folded by one worker: {shown(cores.value, 'cores')} "
        f"({_why(formulas, 'hot_fold_cores')}), where {shown(formulas.usable.value, '')} of one "
        "may be used",
        change="Spread it over several counters and add up their counts, or give it less "
        "--headroom",
    )


def _check_shards(formulas: Formulas) -> Iterator[Refusal]:
    shards = formulas.shard_count()
    if shards.value <= sizes.SHARDS_MOST.value:
        return
    yield Refusal(
        code="SHARDS",
        what="--adds-per-s",
        why=f"{shown(shards.value, '')} shards ({_why(formulas, 'shards')}) are more than "
        f"{shown(sizes.SHARDS_MOST.value, '')}: workers would not share them evenly",
        change="Split the load over several platforms, or take less --history or --headroom",
    )


def _check_lanes(formulas: Formulas) -> Iterator[Refusal]:
    lanes = formulas.lane_count()
    most = sizes.LANES_MOST.value
    if lanes.value <= most:
        return
    load = formulas.load
    room = most * sizes.PARTITION_BYTES_MAX.value / formulas.sheet["window_bytes"].value
    window_ms = int(load.window_ms * room) // _WINDOW_STEP_MS * _WINDOW_STEP_MS
    split = "split the load over several platforms"
    if window_ms >= WINDOW_MS_MIN:
        change = f"Take --window {format_ms(window_ms)} or less, or {split}"
    else:
        change = split.capitalize()
    yield Refusal(
        code="LANES",
        what="--adds-per-s",
        why=f"{shown(lanes.value, '')} lanes ({_why(formulas, 'lanes')}) are more than "
        f"{shown(most, '')}: partitions of the log would be over "
        f"{shown(sizes.PARTITION_BYTES_MAX.value, 'B')}",
        change=change,
    )


def _check_rollups(
    formulas: Formulas, rollups: Quantity, cardinality: Cardinality
) -> Iterator[Refusal]:
    partition = formulas.rollup_partition(rollups, cardinality)
    most = sizes.ROLLUP_PARTITION_BYTES_MAX.value
    if partition.value <= most:
        return
    load = formulas.load
    if cardinality is not Cardinality.HIGH:
        change = "Its cardinality is fixed: create another namespace with cardinality: high"
    else:
        namespaces = -(-load.namespaces * partition.value // most)
        change = f"Spread the counters over {plain(namespaces)} namespaces (--namespaces)"
    yield Refusal(
        code="ROLLUP_PARTITION",
        what="--counters",
        why=f"{plain(load.counters)} counters with cardinality {cardinality} make partitions of "
        f"{shown(partition.value, 'B')} ({_why(formulas, 'rollup_partition_bytes')}), and one may "
        f"have {shown(most, 'B')}",
        change=change,
    )


def _embedded(load: Load) -> Embedded:
    sheet = Sheet()
    formulas = Formulas(load, sheet)
    read_us = constants.EMBEDDED_READ_CALL_US.on(sheet)
    add_call_us = constants.EMBEDDED_ADD_CALL_US.on(sheet)
    if load.reads_the_tail:
        read_us = read_us + add_call_us
    read_us = read_us / formulas.read_batch + constants.READ_ITEM_US.on(sheet)
    add_us = add_call_us / formulas.batch + constants.EMBEDDED_ADD_ITEM_US.on(sheet)
    cores = (formulas.adds * add_us + formulas.reads * read_us) / US_PER_S
    bytes_ = NOTHING
    if not load.counts_in_cache:
        formulas.workers()
        if formulas.history_rows:
            rate = constants.EMBEDDED_HISTORY_ROWS_PER_S.on(sheet)
            cores = cores + formulas.history_rate / rate
        retention = sheet.given("retention_s", "s", load.retention_s, "of the log")
        event = (
            sizes.EVENT_FIXED_BYTES.on(sheet)
            + constants.EMBEDDED_SEGMENT_BYTES.on(sheet) / formulas.batch
            + formulas.name
        )
        bytes_ = formulas.adds * retention * event + formulas.rollup_bytes()
        if (history := formulas.history_bytes()) is not None:
            bytes_ = bytes_ + history
    core = sheet.named("embedded_cores", "cores", cores, "that the process uses")
    disk = sheet.named("embedded_disk_bytes", "B", bytes_, "of its database file")
    limits = (
        ("counters", formulas.counters, constants.EMBEDDED_COUNTERS_MAX),
        ("disk", disk, constants.EMBEDDED_DISK_BYTES_MAX),
    )
    whys = [
        f"{name} {each.filled}, where {shown(most.value, most.unit)} is the most"
        for name, each, most in limits
        if each.value > most.value
    ]
    if core.value > formulas.usable.value:
        whys.insert(0, f"{core.filled}, where {formulas.usable.filled} of one may be used")
    return Embedded(enough=not whys, why="; ".join(whys), lines=sheet.lines)


def _notes(load: Load, lines: Mapping[str, Line]) -> Iterator[str]:
    if load.batch > 1 and load.adds_per_s > 0:
        alone = Formulas(replace(load, batch=1), Sheet())
        servers = alone.servers().value
        if servers > lines["servers"].value:
            yield (
                f"adds come in batches of {plain(load.batch)}: one by one they need "
                f"{plain(servers)} servers"
            )
    if load.replication < 3:
        copies = "one copy" if load.replication == 1 else f"{load.replication} copies"
        yield f"with {copies} no node may be away: take --replication 3"
    recommended = recommended_cardinality(load.counters / load.namespaces)
    if load.cardinality is not None and load.cardinality is not recommended:
        yield (
            f"the namespace has cardinality {load.cardinality}, and {recommended} is for so many "
            "counters; it is fixed, and larger or smaller partitions only cost time"
        )
