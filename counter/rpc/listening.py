"""Where a server listens that is told a host and a port."""

import errno
import socket

_WILDCARDS = ("0.0.0.0", "::")
_LOCALHOST = ("127.0.0.1", "::1")  # both, whatever the machine's own files say

Address = tuple[socket.AddressFamily, tuple[object, ...]]


def addresses_of(host: str, port: int) -> list[Address]:
    """A name may stand for several. All addresses of the machine are taken at once, of both
    kinds."""
    if host in _WILDCARDS and socket.has_dualstack_ipv6():
        return [(socket.AF_INET6, ("::", port))]
    names = _LOCALHOST if host == "localhost" else (host,)
    found = [
        (family, address)
        for name in names
        for family, _, _, _, address in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    ]
    return list(dict.fromkeys(found))


def host_and_port(listen: str) -> tuple[str, int]:
    """Of HOST:PORT, where an address of IPv6 stands in brackets."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def why_not_listening(listen: str, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        why = "is it taken by another process?"
    else:
        why = f"{error.strerror or error}."
    return f"cannot listen on {listen}: {why} Give another address with --listen"
