"""Where the time of an add goes: microseconds of processor time for each add, by stage.

The stages are the SDK's, the server's and the worker's own functions, called in this process one
after the other, on a real SQLite file. What is left of the whole when the stages are taken off is
shown as `rest`: futures, tasks, the event loop and what lies between the stages. The transport is
left out, but for the SDK's, which is measured against a handler that only parses.

Each stage runs many times and the least counts: what else runs on the machine can only add to it.
Processor time is that of all threads: the store's writer is in it, and waiting for a disk is not.
"""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from benchmarks.figures import Figure
from benchmarks.hot_path.folding import fold_stages
from benchmarks.hot_path.handlers import handler_costs
from benchmarks.hot_path.sdk_adds import sdk_stages
from benchmarks.hot_path.server_adds import batch_stages, stream_stages
from benchmarks.hot_path.stages import Stages
from benchmarks.progress import Progress
from tally.process import tune_garbage_collection


async def measure(
    home: Path, shapes: Sequence[int], *, progress: Progress
) -> AsyncIterator[list[Figure]]:
    """`shapes`: over how many counters adds are spread."""
    progress.say("the SDK's side of an add")
    yield [_figure("SDK: await client.add, 2,000 tasks", await sdk_stages(home / "sdk"), "add")]
    tune_garbage_collection()  # as `tally serve` does
    for name, stages in (
        ("server: StreamAddCount, columns of 1,000", stream_stages),
        ("server: BatchAddCount, 1,000 items", batch_stages),
        ("fold", fold_stages),
    ):
        for counters in shapes:
            what = f"{name}, {_counters(counters)}"
            progress.say(what)
            found = await stages(home / f"{stages.__name__}-{counters}", counters)
            yield [_figure(what, found, "add")]
    progress.say("handlers")
    yield [
        Figure(name=f"server: {name}", value=us, unit=f"us/{per}")
        for (name, per), us in (await handler_costs(home / "handlers")).items()
    ]


def _figure(name: str, stages: Stages, per: str) -> Figure:
    return Figure(name=name, value=stages.whole_us, unit=f"us/{per}", explains=stages.by_name())


def _counters(number: int) -> str:
    return "1 counter" if number == 1 else f"{number:,} counters"
