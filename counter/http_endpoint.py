"""Plain HTTP beside the calls: /metrics for Prometheus, /healthz for whoever checks health."""

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple

import structlog
from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server

from counter.errors import SetupError

HEALTH_PATH = "/healthz"
_PORT_MAX = 65_535

log = structlog.get_logger()


class Health(NamedTuple):
    serves: bool
    words: str  # for people


class HttpEndpoint:
    """Serves from its creation to the end of its `with`, on threads of its own.

    An address that cannot be had is a SetupError that names the setting. `health` is asked on
    those threads: it must not wait.
    """

    def __init__(
        self,
        listen: str,
        *,
        setting: str,
        registry: CollectorRegistry,
        health: Callable[[], Health],
    ) -> None:
        host, port = _host_and_port(listen, setting)
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise SetupError(
                f"cannot serve metrics on {listen}: {error.strerror or error}. "
                f"Give another address with {setting}"
            ) from error
        self._server.set_app(_with_health(make_wsgi_app(registry), health))
        self.port: int = self._server.server_port
        self.address = f"{listen.rpartition(':')[0]}:{self.port}"
        log.info("serving metrics", action="metrics_served", address=self.address)

    def __enter__(self) -> "HttpEndpoint":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _with_health(app: Callable[..., Any], health: Callable[[], Health]) -> Callable[..., Any]:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"] != HEALTH_PATH:
            answered: Iterable[bytes] = app(environ, start_response)
            return answered
        serves, words = health()
        status = "200 OK" if serves else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8")])
        return [f"{words}\n".encode()]

    return answer


def _host_and_port(listen: str, setting: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > _PORT_MAX:
        raise SetupError(f"{setting} {listen}: write it as HOST:PORT, such as 127.0.0.1:9464")
    return host.strip("[]"), int(port)
