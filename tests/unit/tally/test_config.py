import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control_plane.files.mistakes import Position
from counter.errors import SetupError
from counter.settings import Platform
from counter.storage.cassandra.settings import ClusterSettings, TlsSettings
from counter.storage.memcached import MemcachedSettings
from tally.config import Config, ConfigError, ProgramConfig, ServerConfig, load
from tally.config.messages import all_settings
from tally.config.model import ConfigFile

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "configs" / "fleet.yaml"
BAD = ROOT / "tests" / "bad_configs"
CASES = sorted(BAD.glob("*.yaml"))
LEAST = "cassandra:\n  contact_points: [127.0.0.1]\n  data_center: datacenter1\n"


def config_of(folder: Path, text: str) -> Config:
    (folder / "fleet.yaml").write_text(text)
    return load(folder / "fleet.yaml")


def mistakes_of(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        config_of(folder, text)
    return refused.value.message.splitlines()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_mistake_is_reported_exactly(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad file per mistake, each with its exact report beside it as NAME.expected."""
    monkeypatch.chdir(BAD)
    with pytest.raises(ConfigError) as refused:
        load(Path(case.name))
    expected = case.with_suffix(".expected").read_text(encoding="utf-8")
    assert refused.value.message + "\n" == expected


def test_every_expected_report_has_its_case() -> None:
    assert {each.stem for each in BAD.glob("*.expected")} == {each.stem for each in CASES}
    assert len(CASES) > 80


def test_what_is_required_is_enough(tmp_path: Path) -> None:
    config = config_of(tmp_path, LEAST)
    assert config.cassandra == ClusterSettings(
        contact_points=("127.0.0.1",), data_center="datacenter1"
    )
    assert config.platform == Platform(window_ms=5_000, shards=16, lanes=4)
    assert (config.memcached, config.replication, config.warnings) == (None, None, ())
    assert config.server == ServerConfig(
        listen="127.0.0.1:50051", metrics=None, processes=1, connection_age_ms=300_000
    )
    assert config.worker == ProgramConfig(listen="127.0.0.1:50052", metrics=None)
    assert config.control_plane == ProgramConfig(listen="127.0.0.1:50053", metrics=None)
    assert config.namespaces is None
    assert config.control_planes == ("127.0.0.1:50053",)


@pytest.mark.parametrize(
    ("section", "addresses"),
    [
        ("{listen: 10.0.0.5:7}", ("10.0.0.5:7",)),
        ("{listen: 0.0.0.0:7}", ()),
        ("{listen: '[::]:7'}", ()),
        ("{listen: 127.0.0.1:0}", ()),
        (
            "{listen: 0.0.0.0:7, addresses: [a.internal:1, b.internal:2]}",
            ("a.internal:1", "b.internal:2"),
        ),
    ],
)
def test_where_control_planes_are_heard(
    tmp_path: Path, section: str, addresses: tuple[str, ...]
) -> None:
    assert config_of(tmp_path, f"{LEAST}control_plane: {section}\n").control_planes == addresses


def test_every_setting_arrives(tmp_path: Path) -> None:
    for name in ("ca.pem", "client.pem", "client.key"):
        (tmp_path / name).write_text("PEM")
    (tmp_path / "secret").write_text(" p@ss word\n")
    (tmp_path / "secret").chmod(0o640)
    config = config_of(
        tmp_path,
        """\
region: eu-west-1
platform: {window: 2s, shards: 8, lanes: 2, accept_limit: 3s, max_clock_skew: 1s, log_retention: 2h}
cassandra:
  contact_points: [node-1.internal, 10.0.0.2, "::1"]
  port: 9142
  data_center: dc_1
  keyspace: counts
  replication: {dc_1: 3, dc-2: 2}
  username: tally
  password_file: secret
  tls: {ca_file: ca.pem, certificate_file: client.pem, key_file: client.key, check_hostname: no}
  request_timeout: 500ms
  requests_in_flight_max: 64
memcached: {servers: ["cache-1:11211", "[::1]:11212"], timeout: 5ms}
server: {listen: "[::]:1", metrics: 0.0.0.0:2, processes: 64, connection_age: 90s}
worker: {listen: "localhost:3", metrics: 0.0.0.0:4, passes_in_parallel: 2}
control_plane: {listen: 0.0.0.0:5, metrics: 0.0.0.0:6, namespaces: /etc/tally/namespaces}
""",
    )
    assert config.platform == Platform(
        region="eu-west-1",
        window_ms=2_000,
        shards=8,
        lanes=2,
        accept_limit_ms=3_000,
        max_clock_skew_ms=1_000,
        log_retention_s=7_200,
    )
    assert config.cassandra == ClusterSettings(
        contact_points=("node-1.internal", "10.0.0.2", "::1"),
        port=9_142,
        data_center="dc_1",
        keyspace="counts",
        username="tally",
        password="p@ss word",
        tls=TlsSettings(
            ca_file=tmp_path / "ca.pem",
            certificate_file=tmp_path / "client.pem",
            key_file=tmp_path / "client.key",
            check_hostname=False,
        ),
        request_timeout_ms=500,
        requests_in_flight_max=64,
    )
    assert config.replication == {"dc_1": 3, "dc-2": 2}
    assert config.memcached == MemcachedSettings(
        servers=("cache-1:11211", "[::1]:11212"), prefix="counts.eu-west-1", timeout_ms=5
    )
    assert config.server == ServerConfig(
        listen="[::]:1", metrics="0.0.0.0:2", processes=64, connection_age_ms=90_000
    )
    assert config.worker == ProgramConfig(listen="localhost:3", metrics="0.0.0.0:4")
    assert config.passes_in_parallel == 2
    assert config.control_plane == ProgramConfig(listen="0.0.0.0:5", metrics="0.0.0.0:6")
    assert config.namespaces == Path("/etc/tally/namespaces")
    assert config.warnings == ()


def test_the_example_shows_every_setting_with_its_default() -> None:
    config = load(EXAMPLE)
    assert config.namespaces is not None
    assert config.namespaces.resolve() == ROOT / "configs" / "namespaces"
    text = EXAMPLE.read_text()
    for name in all_settings():
        assert f"{name.rpartition('.')[2]}:" in text, f"the example does not show {name}"
    least = ConfigFile.model_validate(
        {"cassandra": {"contact_points": ["127.0.0.1"], "data_center": "datacenter1"}}
    )
    assert config.platform == Platform(window_ms=least.platform.window, shards=16, lanes=4)
    assert config.cassandra == ClusterSettings(
        contact_points=("127.0.0.1",), data_center="datacenter1"
    )
    assert config.passes_in_parallel == least.worker.passes_in_parallel
    assert config.server == ServerConfig(listen="127.0.0.1:50051", metrics="127.0.0.1:9464")


def test_relative_paths_start_from_the_files_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "fleet.yaml").write_text(LEAST + "control_plane: {namespaces: ../names}\n")
    assert load(Path("etc/fleet.yaml")).namespaces == Path("etc/../names")


def test_a_password_that_everybody_can_read_is_warned_about(tmp_path: Path) -> None:
    text = LEAST + "  username: tally\n  password_file: secret\n"
    (tmp_path / "secret").write_text("hush\n")
    (tmp_path / "secret").chmod(0o644)
    (warning,) = config_of(tmp_path, text).warnings
    assert (warning.field, warning.line, warning.column) == ("cassandra.password_file", 5, 18)
    assert "hush" not in str(warning)
    (tmp_path / "secret").chmod(0o600)
    assert config_of(tmp_path, text).warnings == ()


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    config = config_of(tmp_path, LEAST + "  username: tally\n  password_file: secret\n")
    assert config.cassandra.password == "hush"
    assert "hush" not in repr(config)


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"\xff\xfe", "is not UTF-8"), (b" \n", "is empty"), (b"x" * 5_000, "more than 4096 bytes")],
)
def test_password_files_that_hold_no_password(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "secret").write_bytes(content)
    (line,) = mistakes_of(tmp_path, LEAST + "  username: tally\n  password_file: secret\n")
    assert f"fleet.yaml:5:18: cassandra.password_file: secret {message}" in line.replace("has ", "")


def test_files_that_are_no_config(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "nowhere.yaml", "there is no such file"),
        (tmp_path, "not a regular file"),
    ):
        with pytest.raises(ConfigError) as refused:
            load(path)
        assert refused.value.message.startswith(f"{path}:1:1: {message}")
    os.mkfifo(tmp_path / "pipe.yaml")  # opening it would wait for ever
    with pytest.raises(ConfigError, match="not a regular file"):
        load(tmp_path / "pipe.yaml")


class TestLaterRefusals:
    """What turns out to be wrong when a store is asked is told at its place in the file."""

    TEXT = LEAST + "  keyspace: counts\nplatform:\n  window: 2s\n"

    def test_of_a_setting_that_is_there(self, tmp_path: Path) -> None:
        refusal = config_of(tmp_path, self.TEXT).refusal("platform.window", "is wrong", "mend it")
        assert refusal.message == f"{tmp_path}/fleet.yaml:6:11: platform.window: is wrong (mend it)"

    def test_of_a_setting_that_is_left_out(self, tmp_path: Path) -> None:
        config = config_of(tmp_path, self.TEXT)
        place = config.refusal("platform.shards", "", "").mistakes[0]
        assert Position(place.line, place.column) == (6, 3)
        place = config.refusal("memcached.servers", "", "").mistakes[0]
        assert Position(place.line, place.column) == (1, 1)

    @pytest.mark.parametrize(
        ("message", "place"),
        [
            ("cassandra.keyspace: counts has no schema", ":4:13"),
            ("nobody at x: check cassandra.data_center and cassandra.keyspace", ":3:16"),
            ("check cassandra.keyspace and cassandra.tls", ":4:13"),
            ("check cassandra.tls, says the platform of a server", ":2:3"),
            ("something else", ":2:3"),
        ],
    )
    def test_of_a_store(self, tmp_path: Path, message: str, place: str) -> None:
        config = config_of(tmp_path, self.TEXT)
        assert config.refusal_of(SetupError(message), "cassandra").message == (
            f"{config.path}{place}: {message}"
        )

    def test_of_a_store_that_names_the_config_file(self, tmp_path: Path) -> None:
        config = config_of(tmp_path, self.TEXT)
        refusal = config.refusal_of(
            SetupError("run 'tally schema apply --config FILE'"), "cassandra"
        )
        assert f"'tally schema apply --config {config.path}'" in refusal.message


def test_schema_is_in_the_words_of_the_file() -> None:
    schema = ConfigFile.model_json_schema()
    assert schema["required"] == ["cassandra"]
    for section in (schema, *schema["$defs"].values()):
        assert section["additionalProperties"] is False
        for name, each in section["properties"].items():
            assert each.get("description") or "$ref" in each, name
    window = schema["$defs"]["PlatformSection"]["properties"]["window"]
    assert (window["type"], window["default"]) == ("string", "5s")


_LINES = EXAMPLE.read_text().replace("  # ", "  ").splitlines(keepends=True)
_SIGNS = [*"[]{}:,-?&*!|>'\"%@`#~\t\n \\\r\0\x85", "---\n", "<<", "\\ud800", "!!int", '"\\ud800"']
_WORDS = ["cassandra:\n", "  port: ", "5s", "0x", "  tls: {", "1.5", "off\n", "null", "999999999"]
_PIECES = st.sampled_from([*_LINES, *_SIGNS, *_WORDS])


@settings(deadline=None, max_examples=300)
@given(
    before=st.lists(_PIECES, max_size=5),
    keep=st.sets(st.sampled_from(range(len(_LINES)))),
    values=st.lists(_PIECES, max_size=5),
)
def test_any_content_gives_settings_or_mistakes(
    tmp_path_factory: pytest.TempPathFactory, before: list[str], keep: set[int], values: list[str]
) -> None:
    lines = [line for number, line in enumerate(_LINES) if number not in keep]
    for number, value in enumerate(values):
        at = (number * 7919) % max(1, len(lines))
        lines[at:at] = [value]
    text = "".join([*before, *lines])
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        load(file)
    except ConfigError as refused:
        for line in refused.message.splitlines():
            assert line.startswith(f"{file}:")
            line.encode()  # can be printed
