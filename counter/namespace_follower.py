"""Follows the namespaces of a store, for every program that serves them.

The store is the truth, and it is asked every second: a program needs no control plane to start, to
go on or to come back, only one that has applied namespaces at some time before. A control plane
that is there only shortens the wait: `wake` has the store asked at once.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import structlog

from counter.errors import InvalidRequest, SetupError, TallyError
from counter.namespaces import Snapshot
from counter.storage.ports import NamespaceStore

POLL_S = 1.0
LOOK_BACK_MAX = 100

log = structlog.get_logger()


class NamespaceFollower:
    """Takes each new version as a whole (I10); one that cannot be served changes nothing."""

    def __init__(
        self,
        store: NamespaceStore,
        *,
        check: Callable[[Snapshot], None],
        switch: Callable[[Snapshot], None],
    ) -> None:
        """`check` raises SetupError or InvalidRequest for a snapshot that cannot be served."""
        self._store = store
        self._check = check
        self._switch = switch
        self._failing = False
        self._woken = asyncio.Event()
        self.current: Snapshot | None = None
        # A later version that cannot be served here, and why.
        self.refused_version = 0
        self.problem = ""

    async def look(self) -> None:
        """Takes the latest version, if it is new.

        One that `check` refuses is logged and skipped. If nothing is current yet, which is at a
        program's start, the latest of the versions before it that can be served is taken, as if
        the program had gone on; without any the refusal is raised. Raises StoreUnavailable too.
        """
        latest = await self._latest_after(max(self.version, self.refused_version))
        if latest is None:
            return
        try:
            self._check(latest)
        except (SetupError, InvalidRequest) as refusal:
            if self.current is None and not await self._take_earlier(latest):
                raise
            self.refused_version, self.problem = latest.version, refusal.message
            log.error(
                "the new namespaces cannot be served here: keeping the ones before",
                action="namespaces_refused",
                version=latest.version,
                kept=self.version,
                problem=refusal.message,
            )
        else:
            self._take_over(latest)

    async def _latest_after(self, version: int) -> Snapshot | None:
        """The latest version if it is later: only then is the whole of it read."""
        infos = await self._store.versions(before=None, limit=1)
        if not infos or infos[0].version <= version:
            return None
        return await self._store.get(infos[0].version)

    async def _take_earlier(self, refused: Snapshot) -> bool:
        earliest = max(0, refused.version - LOOK_BACK_MAX - 1)
        for version in range(refused.version - 1, earliest, -1):
            earlier = await self._store.get(version)
            if earlier is None:
                return False
            with suppress(SetupError, InvalidRequest):
                self._check(earlier)
                self._take_over(earlier)
                return True
        return False

    def _take_over(self, snapshot: Snapshot) -> None:
        self.take(snapshot)
        log.info(
            "namespaces taken over",
            action="namespaces_taken",
            version=snapshot.version,
            namespaces=len(snapshot.namespaces),
        )

    def take(self, snapshot: Snapshot) -> None:
        """Switches to a snapshot that is stored and checked, unless a later one is current."""
        if snapshot.version <= self.version:
            return
        self._switch(snapshot)
        self.current = snapshot
        self.refused_version, self.problem = 0, ""

    @property
    def version(self) -> int:
        return 0 if self.current is None else self.current.version

    def wake(self) -> None:
        """Has the store asked at once: somebody says that there is a new version."""
        self._woken.set()

    async def run(self) -> None:
        """Looks for ever. What is current stays so while the store is away."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), POLL_S)
            self._woken.clear()
            try:
                await self.look()
            except TallyError as error:
                if not self._failing:
                    self._failing = True
                    log.warning(
                        "the namespaces cannot be read: keeping those that are there",
                        action="namespaces_unreadable",
                        problem=error.message,
                    )
            else:
                if self._failing:
                    self._failing = False
                    log.info("the namespaces can be read again", action="namespaces_readable")
