"""Reads a fleet's config file: its settings, or all of its mistakes at once."""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import ValidationError

from control_plane.files.loader import content_of
from control_plane.files.mistakes import START, Mistake, Position, mistake, shown
from control_plane.files.yaml_tree import Fields, Hints, Items, Node, Unreadable, read
from counter.errors import SetupError
from counter.settings import Platform
from counter.storage.cassandra.settings import ClusterSettings, TlsSettings
from counter.storage.memcached.servers import MemcachedSettings
from tally.config.messages import explain
from tally.config.model import (
    CassandraSection,
    ConfigFile,
    ControlPlaneSection,
    MemcachedSection,
    TlsSection,
)
from tally.config.settings import (
    Config,
    ConfigError,
    ProgramConfig,
    ServerConfig,
    position_of,
)

SECRET_BYTES_MAX = 4_096

_HINTS = Hints(
    empty="configs/fleet.yaml is an example to start from",
    too_large="is this a config file? Shorten it",
    too_many_values="a config file has some dozens of settings",
    too_deep="nothing is deeper than cassandra, tls, ca_file",
    second_document="a config file is one document: remove the line '---' and what follows",
)
# Settings that mean something only together.
_PAIRS = (
    ("cassandra.username", "cassandra.password_file"),
    ("cassandra.tls.certificate_file", "cassandra.tls.key_file"),
)


def load(path: Path) -> Config:
    """Raises ConfigError with every mistake. Relative paths in it start from the file's folder."""
    if not os.path.exists(path):  # unlike Path.exists it takes any path
        hint = "configs/fleet.yaml is an example to start from"
        raise ConfigError((mistake(str(path), START, "there is no such file", hint),))
    content = content_of(path)
    if isinstance(content, Mistake):
        raise ConfigError((content,))
    fields, mistakes = read(str(path), content, _HINTS)
    if fields is None:
        raise ConfigError(tuple(mistakes))
    file, wrong = _validate(str(path), fields)
    if file is None or mistakes:
        raise ConfigError(tuple(sorted(mistakes + wrong)))
    return _Assembly(path, file, dict(_positions(fields, ""))).config()


def _validate(path: str, fields: Fields) -> tuple[ConfigFile | None, list[Mistake]]:
    try:
        return ConfigFile.model_validate(fields.value()), []
    except ValidationError as invalid:
        found: list[Mistake] = []
        for error in invalid.errors(include_url=False, include_input=False):
            names = [each for each in error["loc"] if each != "[key]"]
            node, at = _find(fields, names, is_key=error["type"] == "extra_forbidden")
            if not isinstance(node, Unreadable):
                message, hint = explain(names, error, node)
                setting = ".".join(shown(each) for each in names if isinstance(each, str))
                found.append(mistake(path, at, message, hint, field=setting))
        return None, found


def _find(fields: Fields, names: Sequence[str | int], *, is_key: bool) -> tuple[Node, Position]:
    """The node that an error is about: the innermost one that is there, if it is missing."""
    node: Node = fields
    at = fields.at
    for name in names:
        if isinstance(node, Items) and isinstance(name, int):
            node = node.items[name]
            at = node.at
        elif isinstance(node, Fields) and name in node.values:
            at = node.keys[str(name)] if is_key else node.values[str(name)].at
            node = node.values[str(name)]
        else:
            break
    return node, at


def _positions(fields: Fields, prefix: str) -> Iterator[tuple[str, Position]]:
    for name, node in fields.values.items():
        yield f"{prefix}{name}", node.at
        if isinstance(node, Fields):
            yield from _positions(node, f"{prefix}{name}.")


def _reached_at(section: ControlPlaneSection) -> tuple[str, ...]:
    """Where other processes find control planes: nowhere if `listen` is no place to call."""
    if section.addresses is not None:
        return tuple(section.addresses)
    host, _, port = section.listen.rpartition(":")
    everywhere = ("0.0.0.0", "[::]", "::", "")
    return () if port == "0" or host in everywhere else (section.listen,)


class _Assembly:
    """Makes settings of a valid file: what is left to check is how they fit, and other files."""

    def __init__(self, path: Path, file: ConfigFile, positions: dict[str, Position]) -> None:
        self._path = path
        self._file = file
        self._positions = positions
        self._mistakes: list[Mistake] = []
        self._warnings: list[Mistake] = []

    def config(self) -> Config:
        file = self._file
        for one, other in _PAIRS:
            for given, missing in ((one, other), (other, one)):
                if given in self._positions and missing not in self._positions:
                    self._refuse(given, f"is given without {missing}", "give both, or neither")
        platform = self._platform()
        cassandra = self._cassandra(file.cassandra)
        if self._mistakes or platform is None:
            raise ConfigError(tuple(sorted(self._mistakes)))
        return Config(
            path=self._path,
            platform=platform,
            cassandra=cassandra,
            replication=file.cassandra.replication,
            memcached=None if file.memcached is None else self._memcached(file.memcached),
            server=ServerConfig(
                listen=file.server.listen,
                metrics=file.server.metrics,
                processes=file.server.processes,
                connection_age_ms=file.server.connection_age,
            ),
            worker=ProgramConfig(listen=file.worker.listen, metrics=file.worker.metrics),
            passes_in_parallel=file.worker.passes_in_parallel,
            control_plane=ProgramConfig(
                listen=file.control_plane.listen, metrics=file.control_plane.metrics
            ),
            control_planes=_reached_at(file.control_plane),
            namespaces=(
                None
                if file.control_plane.namespaces is None
                else self._beside(file.control_plane.namespaces)
            ),
            positions=self._positions,
            warnings=tuple(self._warnings),
        )

    def _platform(self) -> Platform | None:
        section = self._file.platform
        try:
            return Platform(
                region=self._file.region,
                window_ms=section.window,
                shards=section.shards,
                lanes=section.lanes,
                accept_limit_ms=section.accept_limit,
                max_clock_skew_ms=section.max_clock_skew,
                log_retention_s=section.log_retention // 1_000,
            )
        except SetupError as error:
            self._refuse("platform.log_retention", error.message, "")
            return None

    def _cassandra(self, section: CassandraSection) -> ClusterSettings:
        password: str | None = None
        if section.password_file is not None:
            password = self._secret("cassandra.password_file", section.password_file)
        return ClusterSettings(
            contact_points=tuple(section.contact_points),
            port=section.port,
            data_center=section.data_center,
            keyspace=section.keyspace,
            username=section.username,
            password=password,
            tls=None if section.tls is None else self._tls(section.tls),
            request_timeout_ms=section.request_timeout,
            requests_in_flight_max=section.requests_in_flight_max,
        )

    def _memcached(self, section: MemcachedSection) -> MemcachedSettings:
        # Regions share the ids of namespaces, and so may fleets: their keys must differ.
        prefix = section.prefix or f"{self._file.cassandra.keyspace}.{self._file.region}"
        return MemcachedSettings(
            servers=tuple(section.servers), prefix=prefix, timeout_ms=section.timeout
        )

    def _tls(self, section: TlsSection) -> TlsSettings:
        files: dict[str, Path | None] = {}
        for name in ("ca_file", "certificate_file", "key_file"):
            written: str | None = getattr(section, name)
            files[name] = None if written is None else self._beside(written)
            if written is not None:
                self._content(f"cassandra.tls.{name}", written)
        ca_file = files["ca_file"]
        assert ca_file is not None
        return TlsSettings(
            ca_file=ca_file,
            certificate_file=files["certificate_file"],
            key_file=files["key_file"],
            check_hostname=section.check_hostname,
        )

    def _secret(self, setting: str, written: str) -> str:
        content = self._content(setting, written)
        if content is None:
            return ""
        if len(content) > SECRET_BYTES_MAX:
            message = f"{shown(written)} has more than {SECRET_BYTES_MAX} bytes"
            self._refuse(setting, message, "it must hold the password and nothing else")
            return ""
        try:
            secret = content.decode().strip()
        except UnicodeDecodeError:
            self._refuse(setting, f"{shown(written)} is not UTF-8", "save it as UTF-8")
            return ""
        if not secret:
            self._refuse(setting, f"{shown(written)} is empty", "put the password in it")
        if self._beside(written).stat().st_mode & stat.S_IROTH:
            self._warn(setting, f"{shown(written)} can be read by everybody", "chmod o-r")
        return secret

    def _content(self, setting: str, written: str) -> bytes | None:
        """Of a file that a setting names; None, with a mistake noted, if it cannot be read."""
        file = self._beside(written)
        if not os.path.exists(file):
            self._refuse(setting, f"there is no file {shown(str(file))}", "correct the path")
            return None
        content = content_of(file)
        if isinstance(content, Mistake):
            self._refuse(setting, f"{shown(str(file))}: {content.message}", content.hint)
            return None
        return content

    def _beside(self, written: str) -> Path:
        """A path as the file means it: from its own folder."""
        path = Path(written)
        with suppress(RuntimeError):  # ~somebody whom the system does not know stays as it is
            path = path.expanduser()
        return self._path.parent / path

    def _refuse(self, setting: str, message: str, hint: str) -> None:
        at = position_of(self._positions, setting)
        self._mistakes.append(mistake(str(self._path), at, message, hint, field=setting))

    def _warn(self, setting: str, message: str, hint: str) -> None:
        at = position_of(self._positions, setting)
        self._warnings.append(mistake(str(self._path), at, message, hint, field=setting))
