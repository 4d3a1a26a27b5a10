"""Between the SDK's values and the messages of NamespaceService."""

from collections.abc import Iterable, Mapping

from clients.errors import InvalidRequest
from clients.namespace_values import (
    Action,
    ApplyResult,
    Consequence,
    FieldChange,
    HistoryStep,
    Mistake,
    Namespace,
    NamespaceChange,
    NamespaceLimits,
    Namespaces,
    NamespaceTraffic,
    Origin,
    Plan,
    Process,
    Processes,
    Version,
)
from clients.translate import STRATEGIES, ms_of, optional_ns
from clients.values import Cardinality
from counter.v1 import namespace_service_pb2 as pb

_CARDINALITIES: dict[int, Cardinality] = {
    pb.CARDINALITY_LOW: Cardinality.LOW,
    pb.CARDINALITY_MEDIUM: Cardinality.MEDIUM,
    pb.CARDINALITY_HIGH: Cardinality.HIGH,
}
_CONSEQUENCES: dict[int, Consequence] = {
    pb.CONSEQUENCE_HARMLESS: Consequence.HARMLESS,
    pb.CONSEQUENCE_COSTS: Consequence.COSTS,
    pb.CONSEQUENCE_DATA_LOSS: Consequence.DATA_LOSS,
    pb.CONSEQUENCE_IMPOSSIBLE: Consequence.IMPOSSIBLE,
}
_ACTIONS: dict[int, Action] = {
    pb.NamespaceChange.ACTION_CREATE: Action.CREATE,
    pb.NamespaceChange.ACTION_CHANGE: Action.CHANGE,
    pb.NamespaceChange.ACTION_DELETE: Action.DELETE,
    pb.NamespaceChange.ACTION_RESTORE: Action.RESTORE,
}
_ORIGINS: dict[int, Origin] = {
    pb.Version.ORIGIN_FOLDER: Origin.FOLDER,
    pb.Version.ORIGIN_APPLIED: Origin.APPLIED,
    pb.Version.ORIGIN_ROLLED_BACK: Origin.ROLLED_BACK,
    pb.Version.ORIGIN_CUT_OVER: Origin.CUT_OVER,
}
_INT64_MAX = 2**63 - 1


def check_version(version: int, field: str = "version") -> int:
    """A version that a message can hold; the platform says itself which there are."""
    if not isinstance(version, int):
        raise TypeError(f"{field} must be an int, not {version!r}")
    if not 0 <= version <= _INT64_MAX:
        raise InvalidRequest(
            f"{version} is no version of the namespaces: they count from 1",
            reason="VERSION_MALFORMED",
            field=field,
        )
    return version


def file_messages(files: Mapping[str, str]) -> list[pb.NamespaceFile]:
    try:
        return [pb.NamespaceFile(path=path, content=content) for path, content in files.items()]
    except ValueError as error:  # what cannot be Unicode cannot be sent
        raise InvalidRequest(
            f"the files cannot be sent: {error}", reason="NAMESPACES_INVALID", field="files"
        ) from error


def namespaces(message: pb.ListNamespacesResponse) -> Namespaces:
    return Namespaces(
        version=message.version,
        applied_at_ns=optional_ns(message, "applied_at"),
        namespaces=tuple(namespace(each) for each in message.namespaces),
    )


def watched_namespaces(message: pb.WatchNamespacesResponse) -> Namespaces:
    about = version(message.version)
    return Namespaces(
        version=about.version,
        applied_at_ns=about.applied_at_ns,
        namespaces=tuple(namespace(each) for each in message.namespaces),
        about=about,
    )


def namespace(message: pb.Namespace) -> Namespace:
    dedupes = message.HasField("dedupe_ttl")
    rolls = message.HasField("rolling_window")
    return Namespace(
        name=message.name,
        id=message.id,
        description=message.description,
        owner=message.owner,
        strategy=STRATEGIES.get(message.strategy),
        cardinality=_CARDINALITIES.get(message.cardinality),
        max_delta=message.max_delta,
        cache_ttl_ms=ms_of(message.cache.ttl),
        cache_local_ttl_ms=ms_of(message.cache.local_ttl),
        dedupe_ttl_ms=ms_of(message.dedupe_ttl) if dedupes else None,
        history=tuple(
            HistoryStep(step_ms=ms_of(each.step), retention_ms=ms_of(each.retention))
            for each in message.history
        ),
        rolling_window_ms=ms_of(message.rolling_window.length) if rolls else None,
        limits=_limits(message.limits),
        shadow=STRATEGIES.get(message.shadow),
    )


def mistake(message: pb.Mistake) -> Mistake:
    return Mistake(
        path=message.path,
        line=message.line,
        column=message.column,
        field=message.field,
        message=message.message,
        hint=message.hint,
    )


def plan(message: pb.PlanNamespacesResponse) -> Plan:
    return Plan(
        base_version=message.base_version,
        mistakes=tuple(mistake(each) for each in message.mistakes),
        changes=changes(message.changes),
        consequence=_CONSEQUENCES.get(message.consequence),
    )


def changes(messages: Iterable[pb.NamespaceChange]) -> tuple[NamespaceChange, ...]:
    return tuple(
        NamespaceChange(
            namespace=each.namespace,
            action=_ACTIONS.get(each.action),
            consequence=_CONSEQUENCES.get(each.consequence),
            explanation=each.explanation,
            fields=tuple(_field_change(field) for field in each.fields),
            path=each.path,
        )
        for each in messages
    )


def apply_result(
    message: pb.ApplyNamespacesResponse | pb.RollbackNamespacesResponse,
) -> ApplyResult:
    return ApplyResult(version=version(message.version), changes=changes(message.changes))


def version(message: pb.Version) -> Version:
    return Version(
        version=message.version,
        applied_at_ns=optional_ns(message, "applied_at"),
        origin=_ORIGINS.get(message.origin),
        author=message.author,
        reason=message.reason,
        content_hash=message.content_hash,
        restores=message.restores or None,
        namespaces=message.namespaces,
        created=message.created,
        changed=message.changed,
        deleted=message.deleted,
    )


def processes(message: pb.ListProcessesResponse) -> Processes:
    return Processes(
        version=message.version,
        processes=tuple(
            Process(
                process=each.process,
                program=each.program,
                version=each.version,
                refused_version=each.refused_version or None,
                problem=each.problem,
                traffic=tuple(_traffic(traffic) for traffic in each.traffic),
            )
            for each in message.processes
        ),
    )


def _limits(message: pb.NamespaceLimits) -> NamespaceLimits:
    return NamespaceLimits(
        adds_per_s=message.adds_per_s if message.HasField("adds_per_s") else None,
        reads_per_s=message.reads_per_s if message.HasField("reads_per_s") else None,
        counters=message.counters if message.HasField("counters") else None,
        batch_items=message.batch_items if message.HasField("batch_items") else None,
        names=message.names if message.HasField("names") else None,
    )


def _field_change(message: pb.FieldChange) -> FieldChange:
    return FieldChange(
        field=message.field,
        before=message.before,
        after=message.after,
        consequence=_CONSEQUENCES.get(message.consequence),
        explanation=message.explanation,
        hint=message.hint,
        line=message.line or None,
        column=message.column or None,
    )


def _traffic(message: pb.NamespaceTraffic) -> NamespaceTraffic:
    return NamespaceTraffic(
        namespace=message.namespace,
        adds_per_s=message.adds_per_s,
        reads_per_s=message.reads_per_s,
        limited_per_s=message.limited_per_s,
        counters=message.counters if message.HasField("counters") else None,
    )
