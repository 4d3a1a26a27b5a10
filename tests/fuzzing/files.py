"""Targets: files that people write, and files that were written for them.

They are read, or every mistake is told with its place. Nothing else comes of any bytes.
"""

import io
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from control_plane.capacity.prices import Prices, parse_prices
from control_plane.files.loader import load_files
from control_plane.files.mistakes import Mistake
from tally.commands.batch_file import BadLine, BatchFile, Row
from tally.commands.token_log import TokenLog
from tally.config.loading import load
from tally.config.settings import Config, ConfigError
from tally.output import Failure
from tally.verify.check import check
from tally.verify.history import HistoryMistake, document_of, read_history, write_history
from tests.fuzzing.target import Target

YAML_WORDS = (
    b"&a ",
    b"*a",
    b"!!binary ",
    b"<<: ",
    b"? ",
    b"- ",
    b"[",
    b"{",
    b"}",
    b": ",
    b"\n",
    b"\t",
    b"'",
    b'"',
    b"|",
    b">-",
    b"%YAML 1.1\n",
    b"---\n",
    b"...\n",
    b"# ",
    b"\\uD800",
    b"\\UFFFFFFFF",
    b"\xef\xbb\xbf",
    b"0x10",
    b"1e999",
    b"9" * 50,
    b"999999999999d",
    b"null",
    b"~",
    b"yes",
)


def _check_mistakes(mistakes: Iterable[Mistake], path: str, data: bytes) -> None:
    """Each has its place in the file, and says on one line what is wrong."""
    lines = data.count(b"\n") + data.count(b"\r") + data.count(b"\xc2\x85") + 1
    lines += data.count(b"\xe2\x80\xa8") + data.count(b"\xe2\x80\xa9")
    for each in mistakes:
        assert each.path == path, each
        assert 1 <= each.line <= lines + 1, each
        assert each.column >= 1, each
        assert each.message, each
        assert "\n" not in str(each), each


def _namespace_file(data: bytes) -> None:
    loaded = load_files({"plays.yaml": data})
    assert bool(loaded.definitions) != bool(loaded.mistakes), loaded
    _check_mistakes(loaded.mistakes, "plays.yaml", data)


def _fleet_config(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "tally.yaml")
        path.write_bytes(data)
        found: Config | ConfigError
        try:
            found = load(path)
        except ConfigError as error:
            found = error
        mistakes = found.warnings if isinstance(found, Config) else found.mistakes
        assert mistakes or isinstance(found, Config)
        _check_mistakes(mistakes, str(path), data)


def _prices(data: bytes) -> None:
    found = parse_prices("prices.yaml", data)
    if not isinstance(found, Prices):
        assert found
        _check_mistakes(found, "prices.yaml", data)


def _batch_file(data: bytes) -> None:
    """Rows that can be sent, or lines with what is wrong with them."""
    for name in ("adds.csv", "adds.jsonl", "-"):
        with suppress(Failure):
            for each in BatchFile(io.BytesIO(data), name=name):
                assert each.line >= 1
                if isinstance(each, BadLine):
                    assert each.problem
                    continue
                assert isinstance(each, Row)
                assert each.counter.encode()
                assert -(2**63) <= each.delta < 2**63
                if each.token is not None:
                    assert each.token.token.encode()
                    assert 0 <= each.token.generation_time_ns < 2**63


def _token_log(data: bytes) -> None:
    """The tokens of an import that is taken up again, or a failure that says why not."""
    with tempfile.TemporaryDirectory() as directory, suppress(Failure):
        path = Path(directory, "tokens.csv")
        path.write_bytes(data)
        with TokenLog(path) as log:
            for line in (1, 2, 3):
                log.earlier(Row(line=line, counter="a", delta=1, token=None))


def _call_history(data: bytes) -> None:
    stream, written = io.BytesIO(data), io.BytesIO()
    try:
        calls = list(read_history(stream))
    except HistoryMistake:
        return
    report = check(calls)
    assert all(str(each) for each in report.violations)
    write_history(calls, written)
    written.seek(0)
    again = list(read_history(written))
    assert list(map(document_of, again)) == list(map(document_of, calls))


TARGETS = [
    Target(
        "namespace_files",
        _namespace_file,
        "control_plane.files.loader:read",
        (*YAML_WORDS, b"history: ", b"cache: ", b"limits: ", b"names: ", b"step: 1m"),
        bytes_max=16_384,
    ),
    Target(
        "fleet_configs",
        _fleet_config,
        "tally.config.loading:read",
        (*YAML_WORDS, b"tls: ", b"ca_file: ", b"password_file: ", b"~nobody/", b"../", b"\\0"),
    ),
    Target(
        "prices",
        _prices,
        "control_plane.capacity.prices:read",
        (*YAML_WORDS, b"per_month: ", b"per_hour: "),
    ),
    Target(
        "batch_files",
        _batch_file,
        "tally.commands.batch_file:parse_delta",
        (b'{"counter":"a","delta":', b'"', b",", b"\n", b"9" * 4_400, b"\\ud800", b"[", b"\x00"),
        bytes_max=16_384,
    ),
    Target(
        "token_logs",
        _token_log,
        "tally.commands.token_log:parse_time_ns",
        (b"counter,delta,token,generation_time,line\n", b",", b'"', b"\n", b"\xff"),
    ),
    Target(
        "call_histories",
        _call_history,
        "tally.verify.history:_check_whole",
        (
            b'"delta":',
            b"null",
            b"true",
            b"1e400",
            b"9" * 4_000,
            b"[" * 200,
            b"\n",
            b"NaN",
            b"\\ud800",
        ),
        bytes_max=16_384,
    ),
]
