"""One port for several processes, and for nobody else.

With SO_REUSEPORT the kernel lets any process of the same user listen on a taken port, and gives it
a part of the connections: a second server, started by mistake, would go unnoticed. So the
supervisor takes the port first, as a single server would, and keeps it by a socket that never
answers. Whoever comes without SO_REUSEPORT is refused from then on, and each supervisor comes so.

Linux alone spreads connections over such processes, so it is needed anyway. There,
- a socket that listens, or has no SO_REUSEADDR, lets nobody without SO_REUSEPORT have the port;
- what is left of earlier connections (TIME_WAIT) is in nobody's way who has SO_REUSEADDR;
- a socket that was bound to a port by its number keeps it when it stops to listen.
"""

import errno
import socket
import sys
from contextlib import ExitStack
from types import TracebackType

from counter.errors import SetupError
from counter.rpc.listening import addresses_of, host_and_port, why_not_listening

# For port 0: somebody else may take what was just found.
_ATTEMPTS = 20


class SharedPort:
    """Held from its creation to the end of its `with`; `listen` is where processes serve."""

    def __init__(self, listen: str) -> None:
        if not sys.platform.startswith("linux"):
            raise SetupError(
                "several processes on one port need Linux: set --processes 1, or start servers on "
                "ports of their own"
            )
        self._held = ExitStack()
        try:
            self.port = self._take(*host_and_port(listen))
        except OSError as error:
            self._held.close()
            raise SetupError(why_not_listening(listen, error)) from error
        self.listen = f"{listen.rpartition(':')[0]}:{self.port}"

    def _take(self, host: str, port: int) -> int:
        if port:
            self._hold_all(host, port)
            return port
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._take_free(host)
            except OSError as error:
                self._held.close()
                if error.errno != errno.EADDRINUSE:
                    raise
        return self._take_free(host)

    def _take_free(self, host: str) -> int:
        family, address = addresses_of(host, 0)[0]
        with socket.socket(family) as probe:
            probe.bind(address)
            port: int = probe.getsockname()[1]
        self._hold_all(host, port)
        return port

    def _hold_all(self, host: str, port: int) -> None:
        """A name may stand for several addresses; those that this machine lacks do not count."""
        lacking: OSError | None = None
        held = 0
        for family, address in addresses_of(host, port):
            try:
                self._held.enter_context(_hold(family, address))
                held += 1
            except OSError as error:
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                lacking = error
        if not held and lacking is not None:
            raise lacking

    def __enter__(self) -> "SharedPort":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.close()


def _hold(family: socket.AddressFamily, address: tuple[object, ...]) -> socket.socket:
    """Takes an address as a single server would, and has it closed to others ever since."""
    held = socket.socket(family)
    try:
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(address)
        held.listen(1)  # refused if another one listens
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        held.shutdown(socket.SHUT_RDWR)  # connections are for the processes
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        held.close()
        raise
    return held
