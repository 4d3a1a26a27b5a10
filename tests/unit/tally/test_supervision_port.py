"""The port that processes share, on a real machine: who may have it, and who may not."""

import socket
import sys

import pytest

from counter.errors import SetupError
from counter.rpc.server import RpcServer
from tally.supervision.port import SharedPort

HOSTS = ["127.0.0.1", "localhost", "0.0.0.0", "[::1]", "[::]"]


def listen(port: int, *options: int, host: str = "127.0.0.1") -> socket.socket:
    """As another program would."""
    other = socket.socket()
    try:
        for option in options:
            other.setsockopt(socket.SOL_SOCKET, option, 1)
        other.bind((host, port))
        other.listen()
    except OSError:
        other.close()
        raise
    return other


@pytest.mark.parametrize("host", HOSTS)
async def test_processes_share_it(host: str) -> None:
    with SharedPort(f"{host}:0") as port:
        assert port.listen == f"{host}:{port.port}"
        processes = [RpcServer(share_port=True) for _ in range(2)]
        try:
            for each in processes:
                assert await each.start(port.listen, ()) == port.port
        finally:
            for each in processes:
                await each.stop(0)


@pytest.mark.parametrize("host", HOSTS)
async def test_a_server_by_mistake_is_refused(host: str) -> None:
    refused = pytest.raises(SetupError, match=r"cannot listen on .*taken.*--listen")

    async def refuses_all() -> None:
        with refused:
            SharedPort(port.listen)
        alone = RpcServer()
        with refused:
            await alone.start(port.listen, ())
        await alone.stop(0)

    with SharedPort(f"{host}:0") as port:
        await refuses_all()  # also while no process has it
        process = RpcServer(share_port=True)
        await process.start(port.listen, ())
        await refuses_all()
        await process.stop(0)


@pytest.mark.parametrize("options", [(), (socket.SO_REUSEADDR,)])
def test_a_stranger_is_refused(options: tuple[int, ...]) -> None:
    with SharedPort("127.0.0.1:0") as port:
        with pytest.raises(OSError, match="in use"):
            listen(port.port, *options)
        process = listen(port.port, socket.SO_REUSEADDR, socket.SO_REUSEPORT)
        with process, pytest.raises(OSError, match="in use"):
            listen(port.port, *options)


@pytest.mark.parametrize(
    "options", [(), (socket.SO_REUSEADDR,), (socket.SO_REUSEADDR, socket.SO_REUSEPORT)]
)
def test_a_taken_port_is_refused_however_it_was_taken(options: tuple[int, ...]) -> None:
    with listen(0, *options) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(SetupError, match=f"cannot listen on {address}: is it taken"):
            SharedPort(address)


def test_nobody_is_connected_to_the_socket_that_holds_it() -> None:
    with SharedPort("127.0.0.1:0") as port, pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.port), timeout=5).close()


def test_the_end_frees_it_also_with_connections_left_over() -> None:
    with (
        SharedPort("127.0.0.1:0") as port,
        listen(port.port, socket.SO_REUSEADDR, socket.SO_REUSEPORT) as process,
    ):
        caller = socket.create_connection(("127.0.0.1", port.port), timeout=5)
        taken, _ = process.accept()
        taken.close()  # first, so that this end is the one that waits (TIME_WAIT)
        caller.close()
    with SharedPort(port.listen) as again:
        assert again.port == port.port


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("192.0.2.1:0", "Cannot assign requested address"),
        ("no-such-host.invalid:5", "cannot listen on no-such-host.invalid:5"),
    ],
)
def test_an_address_that_is_not_here_is_refused(address: str, why: str) -> None:
    with pytest.raises(SetupError, match=why) as refused:
        SharedPort(address)
    assert refused.value.message.endswith("Give another address with --listen")


def test_other_systems_are_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SetupError, match="need Linux: set --processes 1"):
        SharedPort("127.0.0.1:0")
