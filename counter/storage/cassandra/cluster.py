"""Connecting: what is wrong with the settings is told apart from a cluster that is not there yet.

A wrong setting is a SetupError that names it: waiting would not help. Nodes that do not answer are
StoreUnavailable: they may be starting, and the caller tries again.
"""

import socket
import ssl

from cassandra import AuthenticationFailed
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import Cluster, NoHostAvailable, Session
from cassandra.policies import ConstantReconnectionPolicy

from counter.errors import SetupError, StoreUnavailable
from counter.storage.cassandra.policies import execution_profiles
from counter.storage.cassandra.settings import ClusterSettings, TlsSettings

_PROTOCOL_VERSION = 5
_CONNECT_TIMEOUT_S = 5.0
_RECONNECT_S = 1.0
# The driver writes a large request in pieces. Without this the kernel keeps the last one back until
# the node has confirmed the others, which it does up to 40 ms later.
_SEND_AT_ONCE = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]


def open_cluster(settings: ClusterSettings) -> tuple[Cluster, Session]:
    """Blocks until connected. The session has no keyspace yet."""
    _require_known_hosts(settings)
    cluster = Cluster(
        contact_points=list(settings.contact_points),
        port=settings.port,
        protocol_version=_PROTOCOL_VERSION,
        execution_profiles=execution_profiles(
            settings.data_center, settings.request_timeout_ms / 1_000
        ),
        auth_provider=_credentials(settings),
        ssl_context=None if settings.tls is None else _tls_context(settings.tls),
        connect_timeout=_CONNECT_TIMEOUT_S,
        reconnection_policy=ConstantReconnectionPolicy(_RECONNECT_S, max_attempts=None),
        idle_heartbeat_interval=5,
        idle_heartbeat_timeout=5,
        sockopts=_SEND_AT_ONCE,
    )
    try:
        return cluster, cluster.connect()
    except Exception as error:
        known = {host.datacenter for host in cluster.metadata.all_hosts()} - {None}
        cluster.shutdown()
        raise _refusal(settings, error, known) from error


def _require_known_hosts(settings: ClusterSettings) -> None:
    for host in settings.contact_points:
        try:
            socket.getaddrinfo(host, settings.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise SetupError(
                f"cassandra.contact_points: {host!r} is not a known host ({error.strerror}). "
                "Write names or addresses of nodes, without the port"
            ) from error


def _credentials(settings: ClusterSettings) -> PlainTextAuthProvider | None:
    if settings.username is None:
        return None
    return PlainTextAuthProvider(settings.username, settings.password or "")


def _tls_context(tls: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.check_hostname
    try:
        context.load_verify_locations(tls.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SetupError(f"cassandra.tls.ca_file: cannot use {tls.ca_file}: {error}") from error
    if tls.certificate_file is not None:
        try:
            context.load_cert_chain(tls.certificate_file, tls.key_file)
        except (OSError, ssl.SSLError) as error:
            raise SetupError(
                f"cassandra.tls.certificate_file: cannot use {tls.certificate_file}: {error}"
            ) from error
    return context


def _refusal(
    settings: ClusterSettings, error: Exception, data_centers: set[str]
) -> SetupError | StoreUnavailable:
    """What to say when no session came about."""
    causes = _causes(error)
    if any(isinstance(each, AuthenticationFailed) for each in causes):
        if settings.username is None:
            return SetupError(
                f"{settings.where} asks for a password: "
                "set cassandra.username and cassandra.password_file"
            )
        return SetupError(
            f"{settings.where} refuses user {settings.username!r}: "
            "check cassandra.username and cassandra.password_file"
        )
    tls = next((each for each in reversed(causes) if _is_refused_tls(each)), None)
    if tls is not None:
        why = str(tls).rpartition("Last error: ")[2]
        return SetupError(f"{settings.where}: no TLS connection, check cassandra.tls ({why})")
    if data_centers and settings.data_center not in data_centers:
        return SetupError(
            f"cassandra.data_center: there is no {settings.data_center!r} in this cluster, "
            f"it has {', '.join(sorted(data_centers))}"
        )
    return StoreUnavailable(f"{settings.where} does not answer: {causes[-1]}")


def _is_refused_tls(error: BaseException) -> bool:
    """Whether one side did not take the other's certificates, or does not speak TLS at all.

    The driver makes a plain OSError of what the ssl module raised, and keeps only its text. A
    connection that ended within the handshake may be a node that is just stopping.
    """
    text = str(error)
    return "_ssl.c:" in text and "EOF occurred" not in text


def _causes(error: Exception) -> list[BaseException]:
    """The error and what it comes from: the driver wraps one per node."""
    causes: list[BaseException] = [error]
    if isinstance(error, NoHostAvailable) and isinstance(error.errors, dict):
        causes += error.errors.values()
    for each in list(causes):
        while (each := each.__cause__ or each.__context__) is not None:  # type: ignore[assignment]
            causes.append(each)
    return causes
