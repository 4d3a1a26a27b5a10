from counter.namespaces import Snapshot, VersionInfo


class MemoryNamespaceStore:
    def __init__(self) -> None:
        self._versions: list[Snapshot] = []

    async def latest(self) -> Snapshot | None:
        return self._versions[-1] if self._versions else None

    async def get(self, version: int) -> Snapshot | None:
        return self._versions[version - 1] if 0 < version <= len(self._versions) else None

    async def put(self, snapshot: Snapshot) -> bool:
        if snapshot.version != len(self._versions) + 1:
            return False
        self._versions.append(snapshot)
        return True

    async def versions(self, *, before: int | None, limit: int) -> list[VersionInfo]:
        earlier = self._versions[: None if before is None else max(0, before - 1)]
        return [each.info for each in earlier[: -limit - 1 : -1]]
