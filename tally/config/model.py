"""The fields of a fleet's config file, and what they mean.

The loader validates with this model, and editors can: `ConfigFile.model_json_schema()`. What each
field means to an operator is in docs/fleet-config.md.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from control_plane.files import durations
from control_plane.files.mistakes import quoted
from control_plane.files.values import own_error
from tally.config.values import (
    HOSTS_MAX,
    AcceptLimit,
    CacheTimeout,
    ClockSkew,
    ConnectionAge,
    Copies,
    DataCenter,
    FilePath,
    Host,
    KeyPrefix,
    Keyspace,
    Lanes,
    ListenAddress,
    MetricsAddress,
    Passes,
    Port,
    Processes,
    Region,
    RequestsInFlight,
    RequestTimeout,
    Retention,
    ServerAddress,
    Shards,
    WindowLength,
)


def _written(milliseconds: int) -> Any:
    return {"default": durations.format_ms(milliseconds)}


def _time(description: str, default_ms: int, example: str) -> Any:
    return Field(
        default=default_ms,
        description=description,
        examples=[example],
        json_schema_extra=_written(default_ms),
    )


def _text(description: str, example: str, **rest: Any) -> Any:
    return Field(description=description, examples=[example], **rest)


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class PlatformSection(Section):
    """What all processes on one store must agree on."""

    window: WindowLength = _time(
        "Length of a window. Fixed by the first start on a keyspace.", 5_000, "5s"
    )
    shards: Shards = Field(
        default=16,
        description="Into how many shards counters are cut. Fixed by the first start.",
        examples=["16"],
    )
    lanes: Lanes = Field(
        default=4,
        description="Over how many partitions the log of a window is spread. Fixed by the first "
        "start.",
        examples=["4"],
    )
    accept_limit: AcceptLimit = _time(
        "How late an event may come, and how far ahead a caller's clock may be.", 5_000, "5s"
    )
    max_clock_skew: ClockSkew = _time(
        "How far the clocks of our own processes and of the store may differ.", 500, "500ms"
    )
    log_retention: Retention = _time(
        "How long a token's outcome can be told; whole seconds.", 86_400_000, "1d"
    )

    @field_validator("log_retention")
    @classmethod
    def _whole_seconds(cls, retention_ms: int) -> int:
        if retention_ms % 1_000:
            raise own_error(f"'{retention_ms}ms' is not whole seconds", "write it in s, m, h or d")
        return retention_ms


class TlsSection(Section):
    """Encryption between Tally and Cassandra."""

    ca_file: FilePath = _text(
        "PEM file with the certificates of whoever signed Cassandra's.", "ca.pem"
    )
    certificate_file: FilePath | None = _text(
        "PEM file with this client's certificate, if Cassandra asks for one.",
        "client.pem",
        default=None,
    )
    key_file: FilePath | None = _text(
        "PEM file with the key of certificate_file.", "client.key", default=None
    )
    check_hostname: bool = Field(
        default=True,
        description="Whether a node's certificate must name the address that it is called by.",
        examples=["true"],
    )


class CassandraSection(Section):
    """Where events, rollups, decisions and namespaces are kept."""

    contact_points: list[Host] = Field(
        description="Host names or addresses of some nodes; the others are found through them.",
        examples=["[10.0.0.1, 10.0.0.2]"],
        min_length=1,
        max_length=HOSTS_MAX,
    )
    port: Port = Field(
        default=9042, description="The port of all nodes, for clients.", examples=["9042"]
    )
    data_center: DataCenter = _text(
        "The data centre that is this region. Only its nodes are called.", "datacenter1"
    )
    keyspace: Keyspace = _text("The keyspace that is Tally's own.", "tally", default="tally")
    replication: dict[DataCenter, Copies] | None = Field(
        default=None,
        description="How many copies each data centre keeps. For `tally schema apply` only.",
        examples=["{datacenter1: 3}"],
        min_length=1,
    )
    username: str | None = _text(
        "Whom to log in as, with password_file.", "tally", default=None, min_length=1
    )
    password_file: FilePath | None = _text(
        "File that holds the password and nothing else.", "cassandra.password", default=None
    )
    tls: TlsSection | None = Field(
        default=None,
        description="Encrypt the connections. Left out: they are not encrypted.",
        examples=["{ca_file: ca.pem}"],
    )
    request_timeout: RequestTimeout = _time(
        "How long one request to Cassandra may take.", 2_000, "2s"
    )
    requests_in_flight_max: RequestsInFlight = Field(
        default=256,
        description="How many requests a process has under way at once; more of them wait.",
        examples=["256"],
    )

    @field_validator("replication")
    @classmethod
    def _here_too(
        cls, copies: dict[str, int] | None, info: ValidationInfo
    ) -> dict[str, int] | None:
        here = info.data.get("data_center")
        if copies is not None and here is not None and here not in copies:
            message = f"has no copies in {quoted(here)}, which is data_center"
            raise own_error(message, f"write '{{{here}: 3}}', with one entry for each data centre")
        return copies


class MemcachedSection(Section):
    """The cache that all servers share, and the home of best_effort counters."""

    servers: list[ServerAddress] = Field(
        description="Each as HOST:PORT. All processes need the same list, in any order.",
        examples=["[10.0.0.1:11211, 10.0.0.2:11211]"],
        min_length=1,
        max_length=HOSTS_MAX,
    )
    prefix: KeyPrefix | None = _text(
        "What all keys start with. Left out: KEYSPACE.REGION.", "tally", default=None
    )
    timeout: CacheTimeout = _time("How long one call to memcached may take.", 20, "20ms")

    @field_validator("servers")
    @classmethod
    def _each_once(cls, servers: list[str]) -> list[str]:
        for server in servers:
            if servers.count(server) > 1:
                raise own_error(f"{quoted(server)} is there twice", "remove one of the two")
        return servers


def _listen(address: str) -> Any:
    return _text("Where to serve. Port 0: a free one.", address, default=address)


def _metrics(address: str) -> Any:
    return _text("Where Prometheus finds metrics. Left out: nowhere.", address, default=None)


class ServerSection(Section):
    """`tally server`: takes calls."""

    listen: ListenAddress = _listen("127.0.0.1:50051")
    metrics: MetricsAddress | None = _metrics("127.0.0.1:9464")
    processes: Processes = Field(
        default=1,
        description="How many processes take calls, all at `listen`.",
        examples=["2"],
    )
    connection_age: ConnectionAge = _time(
        "For how long a caller's connection takes new calls, before it is asked to connect anew.",
        300_000,
        "5m",
    )


class WorkerSection(Section):
    """`tally worker`: closes windows and folds."""

    listen: ListenAddress = _listen("127.0.0.1:50052")
    metrics: MetricsAddress | None = _metrics("127.0.0.1:9465")
    passes_in_parallel: Passes = Field(
        default=4,
        description="How many shards are folded at once when they are behind.",
        examples=["4"],
    )


class ControlPlaneSection(Section):
    """`tally control-plane`: decides which namespaces there are."""

    listen: ListenAddress = _listen("127.0.0.1:50053")
    metrics: MetricsAddress | None = _metrics("127.0.0.1:9466")
    addresses: list[ServerAddress] | None = Field(
        default=None,
        description="Where servers and workers listen for new versions. Left out: at `listen`.",
        examples=["[10.0.0.5:50053, 10.0.0.6:50053]"],
        min_length=1,
        max_length=HOSTS_MAX,
    )
    namespaces: FilePath | None = _text(
        "Folder with one YAML file per namespace; each change of it is applied. Left out: none "
        "is watched, and namespaces change by `tally apply` only.",
        "namespaces",
        default=None,
    )


class ConfigFile(Section):
    """The config file of a fleet: all programs can share one."""

    region: Region = _text("The region in all keys.", "local", default="local")
    platform: PlatformSection = Field(
        default_factory=PlatformSection,
        description="What all processes on one store must agree on.",
        examples=["{window: 5s, shards: 16}"],
    )
    cassandra: CassandraSection = Field(
        description="Where events, rollups, decisions and namespaces are kept.",
        examples=["{contact_points: [10.0.0.1], data_center: datacenter1}"],
    )
    memcached: MemcachedSection | None = Field(
        default=None,
        description="The cache that all servers share. Left out: none, and no best_effort.",
        examples=["{servers: [127.0.0.1:11211]}"],
    )
    server: ServerSection = Field(
        default_factory=ServerSection,
        description="Settings of `tally server`.",
        examples=["{listen: 127.0.0.1:50051}"],
    )
    worker: WorkerSection = Field(
        default_factory=WorkerSection,
        description="Settings of `tally worker`.",
        examples=["{listen: 127.0.0.1:50052}"],
    )
    control_plane: ControlPlaneSection = Field(
        default_factory=ControlPlaneSection,
        description="Settings of `tally control-plane`.",
        examples=["{namespaces: namespaces}"],
    )
