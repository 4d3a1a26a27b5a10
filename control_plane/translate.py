"""Between protobuf and the control plane's own values."""

from collections.abc import Mapping

from google.protobuf.duration_pb2 import Duration

from control_plane.files.loader import Source
from control_plane.files.mistakes import Mistake
from control_plane.planning.plan import Consequence, NamespaceChange, Plan
from counter.namespaces import NO_LIMITS, Namespace, Snapshot, VersionInfo
from counter.presence import ProcessReport
from counter.rpc.values import duration_of, timestamp
from counter.v1 import counter_service_pb2 as counter_pb
from counter.v1 import namespace_service_pb2 as pb

NO_SOURCES: Mapping[str, Source] = {}


def namespaces_message(snapshot: Snapshot) -> list[pb.Namespace]:
    return [namespace_message(each) for _, each in sorted(snapshot.namespaces.items())]


def namespace_message(each: Namespace) -> pb.Namespace:
    dedupe_ttl: Duration | None = None
    if each.dedupe_ttl_ms is not None:
        dedupe_ttl = duration_of(each.dedupe_ttl_ms)
    rolling_window: pb.RollingWindowSettings | None = None
    if each.rolling_window_ms is not None:
        rolling_window = pb.RollingWindowSettings(length=duration_of(each.rolling_window_ms))
    limits: pb.NamespaceLimits | None = None
    if each.limits != NO_LIMITS:
        limits = pb.NamespaceLimits(
            adds_per_s=each.limits.adds_per_s,
            reads_per_s=each.limits.reads_per_s,
            counters=each.limits.counters,
            batch_items=each.limits.batch_items,
            names=each.limits.names,
        )
    return pb.Namespace(
        name=each.name,
        id=each.id,
        description=each.description,
        owner=each.owner,
        strategy=counter_pb.Strategy.Value(f"STRATEGY_{each.strategy.name}"),
        cardinality=pb.Cardinality.Value(f"CARDINALITY_{each.cardinality.name}"),
        max_delta=each.max_delta,
        cache=pb.CacheSettings(
            ttl=duration_of(each.cache_ttl_ms), local_ttl=duration_of(each.cache_local_ttl_ms)
        ),
        dedupe_ttl=dedupe_ttl,
        history=[
            pb.HistoryStep(step=duration_of(step.step_ms), retention=duration_of(step.retention_ms))
            for step in each.history
        ],
        rolling_window=rolling_window,
        limits=limits,
        shadow=(
            counter_pb.STRATEGY_UNSPECIFIED
            if each.shadow is None
            else counter_pb.Strategy.Value(f"STRATEGY_{each.shadow.name}")
        ),
    )


def mistake_message(each: Mistake) -> pb.Mistake:
    return pb.Mistake(
        path=each.path,
        line=each.line,
        column=each.column,
        field=each.field,
        message=each.message,
        hint=each.hint,
    )


def version_message(info: VersionInfo) -> pb.Version:
    about = info.about
    return pb.Version(
        version=info.version,
        applied_at=timestamp(info.applied_at_ns),
        origin=pb.Version.Origin.Value(f"ORIGIN_{about.origin.name}"),
        author=about.author,
        reason=about.reason,
        content_hash=info.content_hash,
        restores=about.restores,
        namespaces=info.namespaces,
        created=about.created,
        changed=about.changed,
        deleted=about.deleted,
    )


def consequence_value(consequence: Consequence | None) -> pb.Consequence.ValueType:
    if consequence is None:
        return pb.CONSEQUENCE_UNSPECIFIED
    return pb.Consequence.Value(f"CONSEQUENCE_{consequence.name}")


def changes_message(
    planned: Plan, sources: Mapping[str, Source] = NO_SOURCES
) -> list[pb.NamespaceChange]:
    return [_change(each, sources.get(each.namespace)) for each in planned.changes]


def _change(change: NamespaceChange, source: Source | None) -> pb.NamespaceChange:
    message = pb.NamespaceChange(
        namespace=change.namespace,
        action=pb.NamespaceChange.Action.Value(f"ACTION_{change.action.name}"),
        consequence=consequence_value(change.consequence),
        explanation=change.explanation,
        path="" if source is None else source.path,
    )
    for each in change.fields:
        field = message.fields.add(
            field=each.field,
            before=each.before,
            after=each.after,
            consequence=consequence_value(each.consequence),
            explanation=each.explanation,
            hint=each.hint,
        )
        if source is not None and (at := source.find(each.field)) is not None:
            field.line, field.column = at
    return message


def process_message(process: str, report: ProcessReport | None) -> pb.Process:
    if report is None:
        return pb.Process(process=process, problem="what it says of itself cannot be read")
    return pb.Process(
        process=process,
        program=report.program,
        version=report.version,
        refused_version=report.refused_version,
        problem=report.problem,
        traffic=[
            pb.NamespaceTraffic(
                namespace=each.namespace,
                adds_per_s=each.adds_per_s,
                reads_per_s=each.reads_per_s,
                limited_per_s=each.limited_per_s,
                counters=each.counters,
            )
            for each in report.traffic
        ],
    )
