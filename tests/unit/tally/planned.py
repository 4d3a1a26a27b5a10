"""What a control plane answers about changes, and what a terminal shows of it."""

import re
from typing import Any

from counter.v1 import namespace_service_pb2 as pb

ESCAPE = "\x1b["
NOTE = ("-m", "more history", "--author", "oncall")
LONG = "a count may be answered from the shared cache for 10s instead of 5s, and says so"


def without_styles(text: str) -> str:
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", text)


def add_change(plan: pb.PlanNamespacesResponse, consequence: Any) -> pb.NamespaceChange:
    """A change of `cache.ttl` that has this consequence."""
    change = plan.changes.add(
        namespace="plays",
        action=pb.NamespaceChange.ACTION_CHANGE,
        consequence=consequence,
        path="namespaces/plays.yaml",
    )
    change.fields.add(
        field="cache.ttl",
        before="5s",
        after="10s",
        consequence=consequence,
        explanation=LONG,
        hint="do something else",
        line=7,
        column=3,
    )
    plan.consequence = max(plan.consequence, consequence)
    return change


def whole_plan(plan: pb.PlanNamespacesResponse) -> None:
    """One change of each kind."""
    new = plan.changes.add(
        namespace="likes",
        action=pb.NamespaceChange.ACTION_CREATE,
        consequence=pb.CONSEQUENCE_HARMLESS,
        explanation="its counters start at 0",
        path="namespaces/likes.yaml",
    )
    new.fields.add(field="strategy", after="accurate", consequence=pb.CONSEQUENCE_HARMLESS, line=2)
    add_change(plan, pb.CONSEQUENCE_COSTS).fields.add(
        field="limits.adds_per_s", after="1000", consequence=pb.CONSEQUENCE_HARMLESS, line=9
    )
    plan.changes.add(
        namespace="old",
        action=pb.NamespaceChange.ACTION_DELETE,
        consequence=pb.CONSEQUENCE_DATA_LOSS,
        explanation="its counts are out of reach",
    )
    plan.changes.add(
        namespace="views",
        action=pb.NamespaceChange.ACTION_RESTORE,
        consequence=pb.CONSEQUENCE_HARMLESS,
        explanation="is there again, with its counts",
    )
    plan.consequence = pb.CONSEQUENCE_DATA_LOSS


def fleet(*versions: int, refused: int = 0) -> pb.ListProcessesResponse:
    answer = pb.ListProcessesResponse(version=8)
    for number, version in enumerate(versions):
        answer.processes.add(process=f"host {number}", program="server", version=version)
    if refused:
        answer.processes.add(
            process="host x",
            program="worker",
            version=7,
            refused_version=refused,
            problem="the windows are too long",
        )
    return answer
