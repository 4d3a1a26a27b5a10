"""Fleet programs and their config file: what is refused, what is awaited, in any order."""

import contextlib
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from tests.backends import memcached_server
from tests.calls import Calls, eventually, fresh_counter, refusal, token
from tests.cassandra_store import settings
from tests.processes import ProgramProcess, free_port, run_tally, write_namespaces

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
FAST = "window: 500ms, shards: 4, accept_limit: 1s, max_clock_skew: 300ms"
Start = Callable[..., ProgramProcess]


def fresh_keyspace() -> str:
    return f"config_{secrets.token_hex(6)}"


def write_config(
    home: Path,
    *,
    keyspace: str,
    memcached: Sequence[str] = (),
    platform: str = FAST,
    contact_points: str = "",
    port: int = 0,
    data_center: str = "",
    more: str = "",
    name: str = "fleet.yaml",
) -> Path:
    """A config file on the run's node, line by line, with namespaces beside it. `more` is put
    last, in the section `cassandra`."""
    node = settings()
    write_namespaces(home / "namespaces")
    servers = f"servers: [{', '.join(memcached)}], timeout: 500ms"
    lines = [
        f"platform: {{{platform}}}",
        f"memcached: {{{servers}}}" if memcached else "# no memcached",
        "cassandra:",
        f"  contact_points: [{contact_points or ', '.join(node.contact_points)}]",
        f"  port: {port or node.port}",
        f"  data_center: {data_center or node.data_center}",
        f"  keyspace: {keyspace}",
        f"  replication: {{{data_center or node.data_center}: 1}}",
        "  request_timeout: 10s",
        more,
        "control_plane: {namespaces: namespaces}",
    ]
    file = home / name
    file.write_text("\n".join(lines) + "\n")
    return file


def apply_schema(config: Path) -> None:
    applied = run_tally("schema", "apply", "--config", str(config))
    assert applied.returncode == 0, applied.stderr


@pytest.fixture(scope="module")
def keyspace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One that has the schema, and the layout of FAST."""
    name = fresh_keyspace()
    home = tmp_path_factory.mktemp("schema")
    config = write_config(home, keyspace=name)
    apply_schema(config)
    worker = ProgramProcess(home / "worker.log", "worker", "--config", str(config)).start()
    assert worker.stop() == 0
    return name


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts programs, and ends those that are left."""
    started: list[ProgramProcess] = []

    def start(name: str, config: Path, *flags: str, wait: bool = True) -> ProgramProcess:
        log = config.parent / f"{name}-{len(started)}.log"
        program = ProgramProcess(log, name, "--config", str(config), *flags)
        started.append(program)
        return program.start(wait=wait)

    yield start
    for program in started:
        program.end()


def refused(program: str, config: Path, *flags: str) -> str:
    """The one line that a program says before it ends by itself."""
    ended = run_tally(program, "--config", str(config), "--listen", "127.0.0.1:0", *flags)
    assert ended.returncode == 1, ended.stderr
    assert "Traceback" not in ended.stderr
    (line,) = [each for each in ended.stderr.splitlines() if each.startswith("tally: ")]
    return line


def said(config: Path, line: str) -> tuple[str, str]:
    """The place in the file and the rest of a refusal."""
    place, _, rest = line.removeprefix(f"tally: {config}:").partition(": ")
    return place, rest


class TestRefused:
    def test_an_unknown_host(self, tmp_path: Path, keyspace: str) -> None:
        config = write_config(tmp_path, keyspace=keyspace, contact_points="nobody.invalid")
        place, rest = said(config, refused("worker", config))
        assert place == "4:19"
        assert rest.startswith("cassandra.contact_points: 'nobody.invalid' is not a known host")

    def test_a_data_centre_that_the_cluster_does_not_have(
        self, tmp_path: Path, keyspace: str
    ) -> None:
        config = write_config(tmp_path, keyspace=keyspace, data_center="elsewhere")
        place, rest = said(config, refused("server", config))
        assert place == "6:16"
        assert rest.startswith("cassandra.data_center: there is no 'elsewhere'")
        assert settings().data_center in rest

    def test_a_keyspace_without_the_schema(self, tmp_path: Path) -> None:
        config = write_config(tmp_path, keyspace=fresh_keyspace())
        place, rest = said(config, refused("control-plane", config))
        assert place == "7:13"
        assert rest.startswith("cassandra.keyspace: ")
        assert f"tally schema apply --config {config}" in rest

    @pytest.mark.parametrize(
        ("program", "platform", "place", "told"),
        [
            (
                *("server", "window: 1s, shards: 4", "1:20"),
                "platform.window: keyspace {} was created with 500ms, not 1s",
            ),
            (
                *("worker", "window: 500ms, shards: 8", "1:35"),
                "platform.shards: keyspace {} was created with 4, not 8",
            ),
            (
                *("worker", "window: 500ms, shards: 4, lanes: 2", "1:45"),
                "platform.lanes: keyspace {} was created with 4, not 2",
            ),
        ],
    )
    def test_another_layout_than_the_keyspaces(
        self, tmp_path: Path, keyspace: str, program: str, platform: str, place: str, told: str
    ) -> None:
        config = write_config(tmp_path, keyspace=keyspace, platform=platform)
        at, rest = said(config, refused(program, config))
        assert at == place
        assert rest.startswith(told.format(keyspace))

    def test_certificates_that_are_none(self, tmp_path: Path, keyspace: str) -> None:
        (tmp_path / "ca.pem").write_text("not a certificate")
        tls = "  tls: {ca_file: ca.pem}"
        config = write_config(tmp_path, keyspace=keyspace, more=tls)
        place, rest = said(config, refused("server", config))
        assert place == "10:18"
        assert rest.startswith("cassandra.tls.ca_file: ")

    def test_best_effort_without_memcached(self, tmp_path: Path, start: Start) -> None:
        with_memcached = write_config(
            tmp_path, keyspace=fresh_keyspace(), memcached=[memcached_server().address]
        )
        apply_schema(with_memcached)
        without = tmp_path / "without.yaml"
        without.write_text(with_memcached.read_text().replace("memcached:", "# memcached:"))
        # A control plane without memcached does not apply such namespaces at all ...
        line = refused("control-plane", without)
        assert "namespaces cannot be used" in line
        # ... and a server without it does not take over those of another.
        start("control-plane", with_memcached)
        line = refused("server", without)
        assert "memcached: namespace hits: strategy best_effort needs" in line

    def test_something_else_than_memcached(self, tmp_path: Path, keyspace: str) -> None:
        with _listening(lambda connection: connection.sendall(b"HTTP/1.1 400\r\n\r\n")) as address:
            config = write_config(tmp_path, keyspace=keyspace, memcached=[address])
            line = refused("worker", config)
        assert said(config, line)[0] == "2:22"
        assert address in line

    def test_addresses_that_are_taken(self, tmp_path: Path, keyspace: str) -> None:
        config = write_config(tmp_path, keyspace=keyspace)
        with _listening(lambda connection: None) as address:
            line = refused("server", config, "--listen", address)
            assert f"cannot listen on {address}" in line
            assert "--listen" in line
            line = refused("server", config, "--metrics", address)
            assert f"cannot serve metrics on {address}" in line
            assert "--metrics" in line


def test_schema_commands(tmp_path: Path) -> None:
    config = write_config(tmp_path, keyspace=fresh_keyspace())
    status = ("schema", "status", "--config", str(config))
    before = run_tally(*status)
    assert before.returncode == 1
    assert "has no schema" in before.stdout
    assert f"tally schema apply --config {config}" in before.stdout
    applied = run_tally("schema", "apply", "--config", str(config))
    assert applied.returncode == 0, applied.stderr
    assert "migration 1" in applied.stdout
    again = run_tally("schema", "apply", "--config", str(config))
    assert (again.returncode, "nothing to do" in again.stdout) == (0, True)
    assert run_tally(*status).returncode == 0
    away = write_config(tmp_path, keyspace="any", port=free_port(), name="away.yaml")
    unreachable = run_tally("schema", "status", "--config", str(away))
    assert unreachable.returncode == 3
    assert unreachable.stderr.count("\n") == 1


def test_a_server_waits_for_namespaces_and_goes_on_without_a_control_plane(
    tmp_path: Path, start: Start
) -> None:
    config = write_config(
        tmp_path, keyspace=fresh_keyspace(), memcached=[memcached_server().address]
    )
    apply_schema(config)
    server = start("server", config, wait=False)
    eventually(server.log.read_text, lambda log: "namespaces_awaited" in log)
    server.wait_health("", NOT_SERVING)
    with Calls(server.address) as calls:
        seen = refusal(lambda: calls.add("plays", "a", 1))
        assert (seen.reason, seen.retry_after_s) == ("NOT_READY", 1)
        assert "no namespaces are applied yet" in seen.message
        worker = start("worker", config)
        control_plane = start("control-plane", config)
        server.wait_ready()
        counter = fresh_counter()
        for namespace in ("plays", "quotas", "hits"):
            calls.add(namespace, counter, 2, token())
            eventually(
                lambda namespace=namespace: calls.get(namespace, counter).count,  # type: ignore[misc]
                lambda count: count == 2,
            )

        (tmp_path / "namespaces" / "likes.yaml").write_text(
            "namespace: likes\nstrategy: accurate\n"
        )
        eventually(server.log.read_text, lambda log: "version=2" in log)
        calls.add("likes", counter, 1, token())

        control_plane.kill()
        calls.add("likes", counter, 1, token())
        assert server.stop() == 0
        server.start()
    with Calls(server.address) as calls:
        assert calls.get("likes", counter).count == 2
        assert calls.get("hits", counter).count == 2
        assert refusal(lambda: calls.add("nobody", counter, 1)).reason == "NAMESPACE_UNKNOWN"
    assert worker.stop() == 0
    assert server.stop() == 0


def test_programs_that_start_before_their_store(
    tmp_path: Path, keyspace: str, start: Start
) -> None:
    port, memcached = free_port(), [memcached_server().address]
    config = write_config(tmp_path, keyspace=keyspace, memcached=memcached, port=port)
    programs = [
        start(program, config, wait=False) for program in ("server", "worker", "control-plane")
    ]
    for program in programs:
        eventually(program.log.read_text, lambda log: "action=store_awaited" in log)
        program.wait_health("", NOT_SERVING)
    node = settings()
    with _forwarding(port, node.contact_points[0], node.port):
        for program in programs:
            program.wait_ready()
        for program in programs:
            assert program.stop() == 0


def test_a_program_that_waits_can_be_stopped(tmp_path: Path, start: Start) -> None:
    config = write_config(tmp_path, keyspace="any", port=free_port())
    waiting = start("worker", config, wait=False)
    eventually(waiting.log.read_text, lambda log: "action=store_awaited" in log)
    assert waiting.stop(signal.SIGINT) == 0
    log = waiting.log.read_text()
    assert log.count("store_awaited") <= 2  # one line, said again after 10 s at the earliest
    assert "Traceback" not in log


@contextlib.contextmanager
def _listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something that takes connections and answers each of them once."""

    def take() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=take, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextlib.contextmanager
def _forwarding(port: int, to_host: str, to_port: int) -> Iterator[None]:
    """Makes another server reachable on a port of this machine."""

    def carry(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def take() -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = listener.accept()
                there = socket.create_connection((to_host, to_port))
                opened.extend((here, there))
                for pair in ((here, there), (there, here)):
                    threading.Thread(target=carry, args=pair, daemon=True).start()

    opened: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", port)) as listener:
        threading.Thread(target=take, daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)
    for each in opened:
        each.close()
