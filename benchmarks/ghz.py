"""ghz, a load generator in Go: one run of it against one server, and what it reported.

Each AddCount has a token of its own and the time at which ghz made the request, so that Tally
counts every one; the empty handler gets the same requests. ghz fills them in from a template,
which costs it some processor time of the machine that it shares with the server: the same for
both. A run whose calls did not all succeed is an error, not a rate.
"""

import asyncio
import json
import subprocess
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.requests import counter_name
from benchmarks.servers import NAMESPACE, Server
from benchmarks.tools import find_program

CONNECTIONS = 10
IN_FLIGHT = 50
_COUNTERS = 1_000
HOT_COUNTERS = 100
_PROTO = Path(__file__).parent.parent / "proto"
_SERVICE = "counter.v1.CounterService"
_NS_PER_MS = 1_000_000
# Beyond the run itself: to connect, and for the last calls.
_ENDS_WITHIN_S = 60.0


@dataclass(frozen=True, kw_only=True)
class GhzRun:
    """What ghz reported, and what the server used meanwhile."""

    calls: int
    calls_per_s: float
    p50_ms: float
    p99_ms: float
    cpu_s: float = 0.0  # of the server

    @property
    def cpu_us_per_call(self) -> float:
        return self.cpu_s / self.calls * 1_000_000

    def explained(self) -> dict[str, float]:
        return {
            "calls_per_s": self.calls_per_s,
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
            "server_cpu_us_per_call": self.cpu_us_per_call,
        }


def merged(runs: list[GhzRun]) -> GhzRun:
    """Several runs as one; its percentiles are the runs' own, weighted by their calls."""
    calls = sum(run.calls for run in runs)
    return GhzRun(
        calls=calls,
        calls_per_s=calls / sum(run.calls / run.calls_per_s for run in runs),
        p50_ms=sum(run.p50_ms * run.calls for run in runs) / calls,
        p99_ms=sum(run.p99_ms * run.calls for run in runs) / calls,
        cpu_s=sum(run.cpu_s for run in runs),
    )


def add_flags() -> list[str]:
    """AddCount over 1,000 counters, each with a token that no other run has."""
    request = {
        "namespace": NAMESPACE,
        "counter_name": f"title-{{{{printf `%07d` (mod .RequestNumber {_COUNTERS})}}}}",
        "delta": 1,
        "idempotency_token": {
            "token": f"{uuid.uuid4().hex}-{{{{.RequestNumber}}}}",
            "generation_time": "{{.Timestamp}}",
        },
    }
    return ["--call", f"{_SERVICE}/AddCount", "--data", json.dumps(request)]


def get_flags() -> list[str]:
    """GetCount over 100 counters, in turn."""
    requests = [
        {"namespace": NAMESPACE, "counter_name": counter_name(number)}
        for number in range(HOT_COUNTERS)
    ]
    return [
        *("--call", f"{_SERVICE}/GetCount", "--data", json.dumps(requests)),
        *("--disable-template-functions", "--disable-template-data"),
    ]


async def run_ghz(
    server: Server,
    flags: list[str],
    *,
    seconds: float,
    connections: int = CONNECTIONS,
    in_flight: int = IN_FLIGHT,
) -> GhzRun:
    command = [
        find_program("ghz"),
        *("--insecure", "--proto", str(_PROTO / "counter/v1/counter_service.proto")),
        *("--import-paths", str(_PROTO)),
        *("--connections", str(connections), "--concurrency", str(in_flight)),
        *("--duration", f"{seconds:g}s", "--duration-stop", "wait", "--format", "json"),
        *flags,
        server.address,
    ]
    cpu_before_s = server.cpu_s()
    # In a thread and not by the event loop, which would fork, and gRPC complains about forks.
    ran = await asyncio.to_thread(_run, command, seconds + _ENDS_WITHIN_S)
    if ran.returncode != 0:
        said = ran.stderr.strip()[-2_000:]
        raise RuntimeError(f"ghz ended with code {ran.returncode}: {said}")
    return parse(ran.stdout, cpu_s=server.cpu_s() - cpu_before_s)


def _run(command: Sequence[str], within_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=within_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"ghz did not end within {within_s:.0f} s: does the server still answer?"
        ) from None


def parse(output: str, *, cpu_s: float) -> GhzRun:
    """Of ghz's report in JSON; a RuntimeError unless every call succeeded."""
    report: dict[str, Any] = json.loads(output)
    outcomes: dict[str, int] = report["statusCodeDistribution"] or {}
    if set(outcomes) != {"OK"}:
        errors = report.get("errorDistribution") or {}
        first = next(iter(errors), "no error was reported")
        raise RuntimeError(f"not all calls of ghz succeeded: {outcomes or 'none'}; {first}")
    latencies = {each["percentage"]: each["latency"] for each in report["latencyDistribution"]}
    return GhzRun(
        calls=report["count"],
        calls_per_s=report["rps"],
        p50_ms=latencies[50] / _NS_PER_MS,
        p99_ms=latencies[99] / _NS_PER_MS,
        cpu_s=cpu_s,
    )
