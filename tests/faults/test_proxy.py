"""The broken network itself: each fault is what it says, and is counted."""

import socket
import socketserver
import threading
from collections.abc import Iterator

import pytest

from tests.calls import eventually
from tests.faults.proxy import Proxy, Way, where

ANSWERED_WITHIN_S = 10.0
SILENCE_S = 0.3


class Shouting(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        for line in self.rfile:
            self.server.heard.append(line)  # type: ignore[attr-defined]
            self.wfile.write(line.upper())


class Target(socketserver.ThreadingTCPServer):
    """Answers each line with the same in capital letters, and remembers it."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Shouting)
        self.heard: list[bytes] = []


@pytest.fixture
def target() -> Iterator[Target]:
    with Target() as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def proxy(target: Target) -> Iterator[Proxy]:
    proxy = Proxy(target.server_address)
    yield proxy
    proxy.close()


def connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(where(proxy.address), timeout=ANSWERED_WITHIN_S)


def ask(caller: socket.socket, line: bytes) -> bytes:
    caller.sendall(line + b"\n")
    return answer(caller)


def ask_once(proxy: Proxy, line: bytes) -> bytes:
    with connect(proxy) as caller:
        return ask(caller, line)


def answer(caller: socket.socket) -> bytes:
    said = b""
    while not said.endswith(b"\n"):
        part = caller.recv(1)
        if not part:
            return said
        said += part
    return said.strip()


def assert_silent(caller: socket.socket) -> None:
    caller.settimeout(SILENCE_S)
    with pytest.raises(TimeoutError):
        caller.recv(100)
    caller.settimeout(ANSWERED_WITHIN_S)


def heard(target: Target, line: bytes) -> None:
    eventually(lambda: target.heard, lambda lines: line + b"\n" in lines)


def test_everything_goes_through_and_ends(proxy: Proxy, target: Target) -> None:
    with connect(proxy) as caller:
        assert ask(caller, b"one") == b"ONE"
        caller.shutdown(socket.SHUT_WR)
        assert answer(caller) == b""
    assert proxy.seen == {"connections": 1}


def test_a_cut_resets_what_is_open_and_what_comes(proxy: Proxy) -> None:
    with connect(proxy) as caller:
        assert ask(caller, b"one") == b"ONE"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            answer(caller)
    with pytest.raises(ConnectionError):
        ask_once(proxy, b"two")
    assert proxy.seen["cut"] == 2
    proxy.heal()
    with connect(proxy) as caller:
        assert ask(caller, b"three") == b"THREE"


def test_dropped_responses_leave_the_request_done(proxy: Proxy, target: Target) -> None:
    with connect(proxy) as caller:
        assert ask(caller, b"one") == b"ONE"
        proxy.drop(Way.RESPONSES)
        caller.sendall(b"two\n")
        heard(target, b"two")
        assert_silent(caller)
        assert proxy.seen["drop responses"] == len(b"TWO\n")
        assert proxy.seen["drop requests"] == 0
        proxy.heal()  # what is missing would put the rest out of order
        with pytest.raises(ConnectionResetError):
            answer(caller)


def test_a_black_hole_takes_connections_and_says_nothing(proxy: Proxy, target: Target) -> None:
    proxy.drop()
    with connect(proxy) as caller:
        caller.sendall(b"one\n")
        assert_silent(caller)
    assert target.heard == []
    assert proxy.seen["drop requests"] == len(b"one\n")


def test_what_is_held_arrives_later_and_in_order(proxy: Proxy, target: Target) -> None:
    with connect(proxy) as caller:
        assert ask(caller, b"one") == b"ONE"
        proxy.hold(Way.REQUESTS)
        caller.sendall(b"two\n")
        caller.sendall(b"three\n")
        assert_silent(caller)
        assert target.heard == [b"one\n"]
        assert proxy.seen["hold requests"] == len(b"two\nthree\n")
        proxy.heal()
        assert answer(caller) == b"TWO"
        assert answer(caller) == b"THREE"


@pytest.mark.parametrize("abruptly", [True, False])
def test_what_is_held_arrives_also_without_its_sender(
    proxy: Proxy, target: Target, abruptly: bool
) -> None:
    with connect(proxy) as caller:
        proxy.hold(Way.REQUESTS)
        caller.sendall(b"one\n")
        eventually(lambda: proxy.seen["hold"], bool)
        if abruptly:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert target.heard == []
    proxy.heal()
    heard(target, b"one")


def test_what_is_delayed_arrives_at_its_time(proxy: Proxy, target: Target) -> None:
    with connect(proxy) as caller:
        proxy.delay(2 * SILENCE_S, Way.RESPONSES)
        caller.sendall(b"one\n")
        assert_silent(caller)
        assert target.heard == [b"one\n"]
        assert answer(caller) == b"ONE"
        assert proxy.seen["delay responses"] == len(b"ONE\n")


def test_a_target_that_is_not_there(target: Target) -> None:
    target.server_close()
    proxy = Proxy(target.server_address)
    with pytest.raises(ConnectionError):
        ask_once(proxy, b"one")
    proxy.close()
