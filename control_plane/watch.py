"""Tells when a directory has changed and come to rest.

The operating system's notices wake us at once; they are only a wake-up. What decides is a
fingerprint of the files, taken again after each notice and every few seconds anyway: so a lost
notice, a network file system, a link whose target changed or a directory that was moved away and
put back are all seen, and notices about nothing (an editor's swap file) are not.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import structlog
from watchfiles import awatch

from control_plane.files.loader import is_namespace_file

# How long files must stay unchanged before they are read: a write in steps, or an editor's
# write-and-rename, is one change.
SETTLE_MS = 200
SETTLE_ROUNDS_MAX = 25
POLL_MS = 2_000
NOTICE_STEP_MS = 100

Fingerprint = tuple[tuple[str, int, int, int], ...]

_log = structlog.get_logger()


def fingerprint(directory: Path) -> Fingerprint:
    """Changes whenever a namespace file does; empty where there is nothing to read."""
    found: list[tuple[str, int, int, int]] = []
    with contextlib.suppress(OSError):
        for name in sorted(filter(is_namespace_file, os.listdir(directory))):
            with contextlib.suppress(OSError):
                status = (directory / name).stat()
                # ctime, because it cannot be set back and sees permissions too.
                found.append((name, status.st_ino, status.st_ctime_ns, status.st_size))
    return tuple(found)


async def changes(
    directory: Path, stop: asyncio.Event, *, poll_ms: int = POLL_MS, settle_ms: int = SETTLE_MS
) -> AsyncGenerator[None, None]:
    """Yields once at the start, then after each change, until `stop` is set."""
    known = await _settled(directory, settle_ms)
    yield
    async for _ in _wake_ups(directory, stop, poll_ms):
        if await asyncio.to_thread(fingerprint, directory) == known:
            continue
        known = await _settled(directory, settle_ms)
        yield


async def _settled(directory: Path, settle_ms: int) -> Fingerprint:
    before = await asyncio.to_thread(fingerprint, directory)
    for _ in range(SETTLE_ROUNDS_MAX):
        await asyncio.sleep(settle_ms / 1_000)
        now = await asyncio.to_thread(fingerprint, directory)
        if now == before:
            break
        before = now
    return before


async def _wake_ups(
    directory: Path, stop: asyncio.Event, poll_ms: int
) -> AsyncGenerator[None, None]:
    """After each notice, and at least every `poll_ms`."""
    problem = ""
    while not stop.is_set():
        watched = _inode(directory)
        notices = awatch(
            directory,
            watch_filter=None,
            recursive=False,
            step=NOTICE_STEP_MS,
            stop_event=cast(asyncio.Event, _Stop(stop)),
            rust_timeout=poll_ms,
            yield_on_timeout=True,
        )
        try:
            async with contextlib.aclosing(notices):
                async for _ in notices:
                    yield
                    if _inode(directory) != watched:
                        break  # another directory has this name now: watch that one
        except (OSError, RuntimeError) as error:
            # No directory, or no notices to be had (their number is limited): polling goes on.
            if str(error) != problem:
                problem = str(error)
                _log.warning("no file notices", action="namespaces_polled", cause=problem)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), poll_ms / 1_000)
            yield


class _Stop:
    """`stop` for awatch, which sets the event that it is given when it is cancelled."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._cancelled = False

    def is_set(self) -> bool:
        return self._cancelled or self._stop.is_set()

    def set(self) -> None:
        self._cancelled = True


def _inode(directory: Path) -> int | None:
    try:
        return directory.stat().st_ino
    except OSError:
        return None
