"""The transport of a real server, beside what RFC 9113 and RFC 7541 ask of it: h2spec."""

import subprocess
from pathlib import Path
from xml.etree import ElementTree

from tests.calls import Calls, fresh_counter
from tests.processes import TallyProcess

ROOT = Path(__file__).parents[2]
H2SPEC = ROOT / ".tools" / "bin" / "h2spec"
CASES = 146


def test_it_passes_h2spec(tally: TallyProcess, calls: Calls, tmp_path: Path) -> None:
    assert H2SPEC.exists(), "run `make .tools/bin/h2spec` first; `make test` does"
    host, _, port = tally.address.rpartition(":")
    report = tmp_path / "h2spec.xml"
    run = subprocess.run(
        [H2SPEC, "--strict", "-h", host, "-p", port, "-o", "10", "--junit-report", report],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert report.exists(), run.stdout + run.stderr
    cases = list(ElementTree.parse(report).iter("testcase"))
    # Those that fail, or are skipped, say so inside.
    assert [f"{each.get('package')} {each.get('classname')}" for each in cases if len(each)] == []
    assert run.returncode == 0, run.stdout
    assert len(cases) == CASES
    # Whatever was done to other connections, callers go on.
    counter = fresh_counter()
    calls.add("plays", counter, 3)
    assert calls.accurate("plays", counter) == 3
