"""What a config file amounts to: settings that the programs take, and where each was written."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from control_plane.files.mistakes import Mistake, Position, mistake
from counter.errors import SetupError
from counter.settings import Platform
from counter.storage.cassandra.settings import ClusterSettings
from counter.storage.memcached.servers import MemcachedSettings
from tally.config.messages import all_settings


class ConfigError(SetupError):
    """The config file cannot be used; the message has one line per mistake."""

    def __init__(self, mistakes: tuple[Mistake, ...]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = mistakes


@dataclass(frozen=True, kw_only=True)
class ProgramConfig:
    listen: str
    metrics: str | None  # None: nowhere


@dataclass(frozen=True, kw_only=True)
class ServerConfig(ProgramConfig):
    processes: int = 1
    connection_age_ms: int = 300_000


@dataclass(frozen=True, kw_only=True)
class Config:
    path: Path
    platform: Platform
    cassandra: ClusterSettings
    replication: Mapping[str, int] | None  # copies by data centre
    memcached: MemcachedSettings | None
    server: ServerConfig
    worker: ProgramConfig
    passes_in_parallel: int
    control_plane: ProgramConfig
    # Where control planes are listened to for new versions; empty: nowhere, the store is asked.
    control_planes: tuple[str, ...]
    namespaces: Path | None  # the watched folder; None: there is none
    # Of the settings that are in the file, by their full names, like `cassandra.port`.
    positions: Mapping[str, Position] = field(default_factory=dict)
    # What deserves a look and does not keep a program from starting.
    warnings: tuple[Mistake, ...] = ()

    def refusal(self, setting: str, message: str, hint: str) -> ConfigError:
        """For what turns out to be wrong only later: as if the loader had found it."""
        at = position_of(self.positions, setting)
        return ConfigError((mistake(str(self.path), at, message, hint, field=setting),))

    def refusal_of(self, error: SetupError, setting: str) -> SetupError:
        """A store's refusal, with the place of the setting that it names, else of `setting`.

        The stores know the names of their settings, and not where those were written.
        """
        message = error.message.replace("--config FILE", f"--config {self.path}")
        named = [
            (message.find(name), -len(name), name)
            for each in all_settings()
            for name in (each, each.rpartition(".")[0])
            if "." in name and name in message
        ]
        if named:
            *_, setting = min(named)  # the first one; of a section and its setting, the setting
        line, column = position_of(self.positions, setting)
        return SetupError(f"{self.path}:{line}:{column}: {message}")


def position_of(positions: Mapping[str, Position], setting: str) -> Position:
    """Of the setting's value; where it is left out, of the innermost section that is there."""
    while setting and setting not in positions:
        setting = setting.rpartition(".")[0]
    return positions.get(setting, Position(1, 1))
