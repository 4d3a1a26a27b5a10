"""Ports that nobody uses, for servers that others must find."""

import errno
import random
import socket
from collections.abc import Sequence

from counter.errors import SetupError

# Below the range from which systems take the local ports of outgoing connections: a port that is
# free now is not taken by a passing connection before its server has started.
FIRST_PORT = 20_000
LAST_PORT = 32_000
TRIES_MAX = 200


def is_free(address: str, port: int) -> bool:
    """Whether no server listens there now."""
    with socket.socket() as probe:
        # As servers do: what is left of closed connections does not matter.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
    return True


def require_free(listens: Sequence[tuple[str, int]]) -> None:
    """Servers that find their port taken say so late and not clearly, and another one answers."""
    for address, port in listens:
        if not is_free(address, port):
            raise SetupError(f"{address}:{port} is taken by another program. End that first")


def addresses_are_there(addresses: Sequence[str]) -> None:
    """Linux has all of 127.0.0.0/8; elsewhere each address but the first must be added first."""
    for address in addresses:
        with socket.socket() as probe:
            try:
                probe.bind((address, 0))
            except OSError as error:
                raise SetupError(
                    f"this machine has no address {address}, which the ring needs. "
                    f"On macOS, add it with: sudo ifconfig lo0 alias {address} up"
                ) from error


def free_port(addresses: Sequence[str] = ("127.0.0.1",)) -> int:
    """A port that is free on all of these addresses.

    Chosen at random, so that two test runs that start at the same moment do not meet.
    """
    chooser = random.SystemRandom()
    for _ in range(TRIES_MAX):
        port = chooser.randint(FIRST_PORT, LAST_PORT)
        if all(is_free(address, port) for address in addresses):
            return port
    raise OSError(f"no free port between {FIRST_PORT} and {LAST_PORT} on {', '.join(addresses)}")
