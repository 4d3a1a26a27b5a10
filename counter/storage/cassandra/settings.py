"""How to reach a Cassandra cluster."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class TlsSettings:
    ca_file: Path  # who may have signed the nodes' certificates
    certificate_file: Path | None = None  # ours, where the cluster asks for one
    key_file: Path | None = None
    check_hostname: bool = True


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    contact_points: tuple[str, ...]
    data_center: str  # one region is one data centre: no other is ever asked
    port: int = 9042
    keyspace: str = "tally"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: TlsSettings | None = None
    request_timeout_ms: int = 2_000
    requests_in_flight_max: int = 256

    @property
    def where(self) -> str:
        """For people: what was called."""
        return f"Cassandra at {', '.join(self.contact_points)} port {self.port}"
