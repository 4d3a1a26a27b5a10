"""The SDK installs and works without the server's dependencies, as a user would install it."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import importlib.util
import tally
from tally import Add, CounterClient, CounterError, OutcomeUnknown, SyncCounterClient

for name in ("msgspec", "xxhash", "structlog", "pydantic", "typer", "rich", "cachetools"):
    assert importlib.util.find_spec(name) is None, f"{name} is installed"
assert all(hasattr(tally, name) for name in tally.__all__)
with SyncCounterClient("127.0.0.1:1", namespace="plays") as client:
    token = client.new_token()
    try:
        client.add("title-42", token=token, timeout_s=0.3)
    except OutcomeUnknown as error:
        assert error.token == token
    else:
        raise AssertionError("there is nothing to connect to")
print(tally.__version__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    ended = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 0, f"{command}\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


# It may have to fetch packages.
@pytest.mark.timeout(600)
def test_the_sdk_works_without_the_servers_dependencies(tmp_path: Path) -> None:
    run("uv", "build", "--wheel", "--out-dir", tmp_path / "dist", cwd=ROOT)
    (wheel,) = (tmp_path / "dist").glob("tally-*.whl")
    run("uv", "venv", tmp_path / "venv", cwd=tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    run("uv", "pip", "install", "--python", python, wheel, cwd=tmp_path)
    # Outside the checkout, so that only the installed package can be imported.
    version = run(python, "-c", SCRIPT, cwd=tmp_path).strip()
    assert wheel.name.startswith(f"tally-{version}-")
