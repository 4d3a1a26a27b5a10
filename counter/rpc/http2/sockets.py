"""Sockets of a server: where it listens, and what its connections are set to."""

import asyncio
import errno
import socket
from contextlib import suppress
from typing import Any

from counter.rpc.listening import addresses_of, host_and_port

# A peer that vanished without a word: after so long without a sign of life the kernel lets go.
_SILENT_S_MAX, _PROBE_EVERY_S, _PROBES = 60, 10, 6
_UNHEARD_MS_MAX = (_SILENT_S_MAX + _PROBE_EVERY_S * _PROBES) * 1_000


def bound(listen: str, *, share_port: bool) -> list[socket.socket]:
    """All addresses that this machine has of it, on one port. Raises OSError if that is taken, or
    if there is none."""
    sockets: list[socket.socket] = []
    port = 0
    try:
        for family, address in addresses_of(*host_and_port(listen)):
            sock = _bound(family, address, port, share_port=share_port)
            if sock is not None:
                sockets.append(sock)
                port = sock.getsockname()[1]
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    if not sockets:
        raise OSError(errno.EADDRNOTAVAIL, f"no address of this machine is {listen}")
    return sockets


def _bound(
    family: socket.AddressFamily, address: tuple[Any, ...], port: int, *, share_port: bool
) -> socket.socket | None:
    """None if this machine has no such address. `port`: where the addresses before it listen."""
    sock = None
    try:
        sock = socket.socket(family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(address[0] != "::"))
        sock.bind((address[0], address[1] or port, *address[2:]))
    except OSError as error:
        if sock is not None:
            sock.close()
        if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
            return None
        raise
    return sock


def prepared(transport: asyncio.Transport) -> str:
    """Sets a connection's socket up; the peer's name, as gRPC has it."""
    sock = transport.get_extra_info("socket")
    with suppress(OSError):  # of a peer that is gone already
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", _SILENT_S_MAX),
            ("TCP_KEEPINTVL", _PROBE_EVERY_S),
            ("TCP_KEEPCNT", _PROBES),
            ("TCP_USER_TIMEOUT", _UNHEARD_MS_MAX),
        ):
            if hasattr(socket, option):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    address = transport.get_extra_info("peername")
    if not address:
        return "unknown"
    host, port = address[0].removeprefix("::ffff:"), address[1]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
