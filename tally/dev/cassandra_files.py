"""What one Cassandra node reads when it starts: its settings, and the command line of its Java."""

import json
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Literal

from tally.dev.requirements import Java

TEMPLATES = Path(__file__).parent
HEAP_START_MB = 64
_PAUSE_MS = 50  # what the collector aims at; Cassandra's own files say 300, for larger heaps
MAIN_CLASS = "org.apache.cassandra.service.CassandraDaemon"
# The user that a new cluster with password authentication has.
FIRST_USER = "cassandra"
FIRST_PASSWORD = "cassandra"

Authenticator = Literal["AllowAllAuthenticator", "PasswordAuthenticator"]
CommitlogSync = Literal["batch", "periodic"]

# Cassandra reaches into these parts of Java's library.
_EXPORTS = (
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.compiler/com.sun.tools.javac.file",
    "jdk.unsupported/sun.misc",
)
_OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.util",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.compiler/com.sun.tools.javac",
    "jdk.management/com.sun.management.internal",
)


@dataclass(frozen=True, kw_only=True)
class NodeTls:
    """With what a node encrypts its clients' connections; see `tally.dev.certificates`."""

    keystore: Path  # PKCS12: the node's key and certificate
    password: str
    certificate: Path  # PEM, what clients trust


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    home: Path  # everything of the node is in here
    address: str = "127.0.0.1"
    seeds: tuple[str, ...] = ("127.0.0.1",)
    native_port: int = 9042  # for clients
    storage_port: int = 7000  # for the other nodes; all nodes of a ring have the same two ports
    cluster_name: str = "tally"
    data_center: str = "datacenter1"
    rack: str = "rack1"
    # Where the node stands in the ring. None: somewhere, which is right for a lone node.
    token: int | None = None
    authenticator: Authenticator = "AllowAllAuthenticator"
    tls: NodeTls | None = None
    # What is acknowledged is in the commit log, and readable after kill -9 of all nodes at once.
    # With "periodic" the last 100 ms are not: Cassandra marks what is valid only that often.
    commitlog_sync: CommitlogSync = "batch"
    # Without it nothing survives the loss of power, but every kill of a process: for tests.
    fsync: bool = True
    # Java as on a server, for benchmarks: all its heap from the start, the collector that Cassandra
    # comes with, and the optimizing compiler. That doubles what a start costs; after some 100,000
    # requests a request costs half as much.
    like_a_server: bool = False
    heap_mb: int = 512

    @property
    def uses_passwords(self) -> bool:
        return self.authenticator == "PasswordAuthenticator"


def write_files(settings: NodeSettings) -> None:
    """Writes the node's settings, replacing those of an earlier start."""
    configuration = settings.home / "conf"
    for directory in (configuration, settings.home / "tmp"):
        directory.mkdir(parents=True, exist_ok=True)
    (configuration / "cassandra.yaml").write_text(_yaml(settings))
    (configuration / "cassandra-rackdc.properties").write_text(
        f"dc={settings.data_center}\nrack={settings.rack}\n"
    )
    (configuration / "logback.xml").write_text((TEMPLATES / "logback.xml").read_text())


def _yaml(settings: NodeSettings) -> str:
    # JSON is YAML: names with spaces or colons in them need no thought.
    fields = {
        "cluster_name": json.dumps(settings.cluster_name),
        "initial_token": "" if settings.token is None else f"initial_token: {settings.token}",
        "address": settings.address,
        "storage_port": str(settings.storage_port),
        "native_port": str(settings.native_port),
        "seeds": json.dumps(",".join(settings.seeds)),
        "home": json.dumps(str(settings.home))[1:-1],
        "commitlog_sync": settings.commitlog_sync,
        "commitlog_sync_period": (
            "commitlog_sync_period: 1000ms" if settings.commitlog_sync == "periodic" else ""
        ),
        "authenticator": settings.authenticator,
        "authorizer": "CassandraAuthorizer" if settings.uses_passwords else "AllowAllAuthorizer",
        "client_encryption": _client_encryption(settings.tls),
        "memtable_mb": str(max(32, settings.heap_mb // 4)),
    }
    return Template((TEMPLATES / "cassandra.yaml").read_text()).substitute(fields)


def _client_encryption(tls: NodeTls | None) -> str:
    options: dict[str, object] = {"enabled": False}
    if tls is not None:
        options = {
            "enabled": True,
            "optional": False,
            "require_client_auth": False,
            "keystore": str(tls.keystore),
            "keystore_password": tls.password,
            "store_type": "PKCS12",
        }
    return f"client_encryption_options: {json.dumps(options)}"


def java_command(java: Java, jars: Path, settings: NodeSettings) -> list[str]:
    """The node's command line. It contains `marker(settings.home)`."""
    home = settings.home
    properties = {
        "cassandra.config": (home / "conf" / "cassandra.yaml").as_uri(),
        "cassandra-rackdc.properties": (home / "conf" / "cassandra-rackdc.properties").as_uri(),
        "logback.configurationFile": str(home / "conf" / "logback.xml"),
        "cassandra.logdir": str(home / "logs"),
        "java.io.tmpdir": str(home / "tmp"),
        "cassandra-foreground": "yes",
        # A ring on one machine has no slow network to wait for.
        "cassandra.ring_delay_ms": "2000",
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.shutdown_announce_in_ms": "200",
        # The first user is there when the node takes connections, not ten seconds later.
        "cassandra.superuser_setup_delay_ms": "0",
        # As it would measure it for a second at each start.
        "cassandra.memtable.row_overhead_size": "180",
        "cassandra.skip_sync": "false" if settings.fsync else "true",
        "cassandra.libjemalloc": "-",
        "io.netty.tryReflectionSetAccessible": "true",
        "io.netty.allocator.useCacheForAllThreads": "true",
        "io.netty.allocator.maxOrder": "11",
        "jdk.attach.allowAttachSelf": "true",
    }
    if java.version >= 17:
        properties["java.security.manager"] = "allow"
    return [
        java.path,
        marker(home),
        f"-Xmx{settings.heap_mb}m",
        "-Xss256k",
        *_heap_and_compiler(settings),
        "-XX:-UsePerfData",
        "-XX:+ExitOnOutOfMemoryError",
        *(f"--add-exports={each}=ALL-UNNAMED" for each in _EXPORTS),
        *(f"--add-opens={each}=ALL-UNNAMED" for each in _OPENS),
        *(f"-D{name}={value}" for name, value in properties.items()),
        "-cp",
        f"{jars}/*",
        MAIN_CLASS,
    ]


def _heap_and_compiler(settings: NodeSettings) -> list[str]:
    if settings.like_a_server:
        return [f"-Xms{settings.heap_mb}m", "-XX:+UseG1GC", f"-XX:MaxGCPauseMillis={_PAUSE_MS}"]
    return [
        # Started by root, Cassandra locks the memory that it has at its start: so it starts small.
        f"-Xms{HEAP_START_MB}m",
        # On two cores the simplest collector costs the least, in memory and in start time.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
    ]


def marker(home: Path) -> str:
    """What tells a node's process from all others."""
    return f"-Dcassandra.storagedir={home}"
