"""One bad file (or folder) per mistake, each with its exact report beside it as NAME.expected."""

from pathlib import Path

import pytest

from control_plane.files.loader import load_directory, load_files
from control_plane.planning.check import report

CASES_DIRECTORY = Path(__file__).parents[2] / "bad_namespaces"
CASES = sorted(each for each in CASES_DIRECTORY.iterdir() if each.suffix != ".expected")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_mistake_is_reported_exactly(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES_DIRECTORY)
    expected = case.with_suffix(".expected")
    assert expected.is_file(), f"{case.name} has no {expected.name}"
    if case.is_dir():
        loaded = load_directory(case.name)
    else:
        loaded = load_files({case.name: case.read_bytes()})
    assert loaded.mistakes
    assert report(loaded.mistakes) + "\n" == expected.read_text(encoding="utf-8")
    wrong_paths = {each.path for each in loaded.mistakes}
    assert wrong_paths.isdisjoint(loaded.sources[each.name].path for each in loaded.definitions), (
        "a file with a mistake gave a definition"
    )


def test_every_expected_report_has_its_case() -> None:
    reports = {each.stem for each in CASES_DIRECTORY.glob("*.expected")}
    assert reports == {each.stem for each in CASES}
    assert len(CASES) > 140


def test_all_cases_in_one_directory_are_all_reported(tmp_path: Path) -> None:
    """Mistakes of one file hide none of another."""
    lines: list[str] = []
    for case in CASES:
        if case.is_file():
            (tmp_path / case.name).write_bytes(case.read_bytes())
            expected = case.with_suffix(".expected").read_text(encoding="utf-8")
            lines += [f"{tmp_path}/{line}" for line in expected.splitlines()]
    assert set(report(load_directory(tmp_path).mistakes).splitlines()) == set(lines)
