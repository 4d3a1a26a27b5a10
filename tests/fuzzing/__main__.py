"""Fuzzing that is guided by coverage: each target for some time, with what it kept as a start.

    python -m tests.fuzzing --seconds 60 [--target NAME ...]

It needs atheris (`uv sync --group fuzz`). Each target runs in a process of its own, because a
fuzzer that has found something ends its process. What is found is written to `.fuzz`, with what to
do about it; so is what reached something new, to go on from in the next run.
"""

import argparse
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from tests.fuzzing.target import Target

WORK = Path(".fuzz")
# Beyond it an input is taken for one that never ends, or that fills the memory.
SECONDS_PER_INPUT_MAX = 20
MEMORY_MB_MAX = 2_048
# What is looked into for coverage, besides the parsers that are not our own.
INSTRUMENTED = [
    "clients",
    "control_plane",
    "counter",
    "counter_server",
    "rollup_worker",
    "tally",
    "ruamel",
]
_STATISTIC = re.compile(r"^stat::(\w+):\s+(\d+)$", re.MULTILINE)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--target", action="append", help="by default all of them")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options, rest = parser.parse_known_args()
    if options.child:
        return _fuzz(options.child, rest)
    from tests.fuzzing.targets import TARGETS

    unknown = set(options.target or ()) - set(TARGETS)
    if unknown:
        parser.error(f"no such target: {', '.join(sorted(unknown))}. {', '.join(TARGETS)}")
    failed = [
        name for name in options.target or TARGETS if not _run(TARGETS[name], options.seconds)
    ]
    print(f"found something: {', '.join(failed)}" if failed else "found nothing")
    return 1 if failed else 0


def _run(target: Target, seconds: int) -> bool:
    """Whether all went well."""
    work = WORK / target.name
    work.mkdir(parents=True, exist_ok=True)
    words = WORK / f"{target.name}.words"
    # An empty file of words is a mistake to the fuzzer.
    words.write_text("".join(f'"{_escaped(each)}"\n' for each in target.words or (b"\x00",)))
    arguments = [
        f"-max_total_time={seconds}",
        f"-timeout={SECONDS_PER_INPUT_MAX}",
        f"-rss_limit_mb={MEMORY_MB_MAX}",
        f"-max_len={target.bytes_max}",
        f"-dict={words}",
        f"-artifact_prefix={WORK}/{target.name}-",
        "-print_final_stats=1",
        str(work),
        str(target.seeds()[0].parent),
    ]
    child = f"{target.check.__module__}:{target.name}"
    command = [sys.executable, "-m", "tests.fuzzing", "--child", child, *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode(errors="replace")
    statistics = dict(_STATISTIC.findall(said))
    inputs = statistics.get("number_of_executed_units", "?")
    print(f"{target.name}: {inputs} inputs, {len(list(work.iterdir()))} reached something new")
    if done.returncode == 0:
        return True
    print(said[-4_000:])
    print(f"Keep the input that failed in tests/fuzzing/corpus/{target.name}, and correct the code")
    return False


def _fuzz(child: str, arguments: list[str]) -> int:
    """Only what the target needs is imported here: looking into it takes its time."""
    import atheris  # type: ignore[import-not-found]  # in a dependency group of its own

    module, _, name = child.partition(":")
    with atheris.instrument_imports(include=INSTRUMENTED):
        targets: list[Target] = import_module(module).TARGETS
    import structlog

    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    [target] = [each for each in targets if each.name == name]
    atheris.Setup([sys.argv[0], *arguments], target.check)
    atheris.Fuzz()
    return os.EX_OK


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{each:02x}" for each in word)


if __name__ == "__main__":
    sys.exit(main())
