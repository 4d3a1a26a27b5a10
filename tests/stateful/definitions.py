"""Namespaces as the tests write them, and the versions in which they follow one another."""

from dataclasses import dataclass, replace
from typing import NamedTuple

from hypothesis import strategies as st

NAMES = ("plays", "quotas")
STEP_MS = 60_000
ROLLING_MS = 60_000
# No name of the tests has another form than one of these.
PLAIN_NAMES = "[a-z]+"


@dataclass(frozen=True, kw_only=True)
class Settings:
    strategy: str = "eventual"
    max_delta: int = 1_000_000
    history: bool = True
    cache: str = "{ttl: 1h, local_ttl: 1s}"
    adds_per_s: int | None = None
    reads_per_s: int | None = None
    counters: int | None = None
    batch_items: int | None = None
    plain_names: bool = False
    cardinality: str = "medium"  # fixed while a namespace lives

    @property
    def is_cached(self) -> bool:
        return "0s" not in self.cache

    def yaml(self, name: str) -> str:
        lines = [
            f"namespace: {name}",
            f"strategy: {self.strategy}",
            f"cardinality: {self.cardinality}",
            f"max_delta: {self.max_delta}",
            f"cache: {self.cache}",
        ]
        if self.strategy == "rolling_window":
            lines.append(f"rolling_window: {{length: {ROLLING_MS}ms}}")
        if self.history:
            lines.append(f"history: [{{step: {STEP_MS}ms, retention: 7d}}]")
        limits = {
            "adds_per_s": self.adds_per_s,
            "reads_per_s": self.reads_per_s,
            "counters": self.counters,
            "batch_items": self.batch_items,
            "names": f"'{PLAIN_NAMES}'" if self.plain_names else None,
        }
        written = [f"{key}: {value}" for key, value in limits.items() if value is not None]
        if written:
            lines.append(f"limits: {{{', '.join(written)}}}")
        return "\n".join(lines) + "\n"


FIRST = {
    "plays": Settings(),
    "quotas": Settings(max_delta=2**53, cardinality="low"),
}

# Others than the defaults are the exception, so that most calls get through.
SETTINGS = st.builds(
    Settings,
    strategy=st.sampled_from(["eventual", "accurate", "rolling_window"]),
    max_delta=st.sampled_from([1_000_000, 2**53, 10]),
    history=st.sampled_from([True, True, False]),
    cache=st.sampled_from(["{ttl: 1h, local_ttl: 1s}", "{}", "{ttl: 0s, local_ttl: 0s}"]),
    adds_per_s=st.sampled_from([None, None, None, 2]),
    reads_per_s=st.sampled_from([None, None, None, 2]),
    counters=st.sampled_from([None, None, None, 1]),
    batch_items=st.sampled_from([None, None, None, 2]),
    plain_names=st.sampled_from([False, False, False, True]),
)


class Live(NamedTuple):
    """A namespace of one version."""

    id: int
    settings: Settings


Version = dict[str, Live]


class Versions:
    """The line of versions: a name that stays keeps its id, and no id is ever given twice."""

    def __init__(self) -> None:
        self.all: list[Version] = [{}]  # by number; 0: before the first
        self._ids: set[int] = set()
        # Ids whose history was off at some time, so that not all of their past is known.
        self.without_history: set[int] = set()

    @property
    def last(self) -> int:
        return len(self.all) - 1

    @property
    def current(self) -> Version:
        return self.all[-1]

    def add(self, number: int, wanted: dict[str, Settings], ids: dict[str, int]) -> None:
        """What an apply of `wanted` has led to; `ids` are those that the platform says."""
        version = {name: Live(ids[name], settings) for name, settings in wanted.items()}
        assert set(ids) == set(wanted)
        if version == self.current:
            assert number == self.last, "a version that changes nothing"
            return
        assert number == self.last + 1
        for name, live in version.items():
            known = self.current.get(name)
            if known is not None:
                assert live.id == known.id, f"{name} has lost its id, and its counts with it"
            else:
                assert live.id not in self._ids, f"{name} got an id that was given before"
        self._append(version)

    def restore(self, number: int, earlier: int, ids: dict[str, int]) -> None:
        """What a rollback has led to."""
        version = self.all[earlier]
        assert {name: live.id for name, live in version.items()} == ids
        if version == self.current:
            assert number == self.last, "a version that changes nothing"
            return
        assert number == self.last + 1
        self._append(version)

    def name_of(self, namespace_id: int) -> tuple[int, str]:
        """The last version that has the id, and under which name."""
        return max(
            (number, name)
            for number, version in enumerate(self.all)
            for name, live in version.items()
            if live.id == namespace_id
        )

    def changed(self, name: str, settings: Settings | None) -> dict[str, Settings]:
        """The current version with one namespace changed, created or, with None, deleted."""
        wanted = {each: live.settings for each, live in self.current.items()}
        known = wanted.pop(name, None)
        if settings is not None:
            kept = known.cardinality if known is not None else settings.cardinality
            wanted[name] = replace(settings, cardinality=kept)
        return wanted

    def _append(self, version: Version) -> None:
        self.all.append(dict(version))
        self._ids |= {live.id for live in version.values()}
        self.without_history |= {live.id for live in version.values() if not live.settings.history}
