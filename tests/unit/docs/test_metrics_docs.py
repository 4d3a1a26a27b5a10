"""docs/metrics.md says what the code has: each metric with its type, its labels and their values,
and nothing else."""

import re
from pathlib import Path

from counter import metrics

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "metrics.md").read_text()
PACKAGES = ("counter", "counter_server", "rollup_worker", "control_plane", "tally")
METRIC = re.compile(r"^\| `(tally_\w+)` \| (\w+) \| (.*?) ?\| (.+) \|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
# Explained once for all metrics, in a table of their own.
MANY_VALUES = {"rpc", "code", "reason", "shard", "process", "store", "statement"}


def rows() -> dict[str, tuple[str, str, str]]:
    found = METRIC.findall(PAGE)
    assert len(found) == len({name for name, *_ in found}), "a metric is explained twice"
    return {name: (kind, labels, meaning) for name, kind, labels, meaning in found}


def labels_in(cell: str) -> dict[str, set[str]]:
    """Labels with the values that the cell lists: "`a`: `x`, `y`; `b`"."""
    labels: dict[str, set[str]] = {}
    for part in filter(None, cell.split(";")):
        names, colon, values = part.partition(":")
        for name in CODE.findall(names):
            labels[name] = set(CODE.findall(values)) if colon else set()
    return labels


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_every_metric_is_explained_and_no_other() -> None:
    assert set(rows()) == {metric.name for metric in metrics.ALL}


def test_every_metric_has_the_type_and_the_labels_that_the_page_says() -> None:
    table = rows()
    for metric in metrics.ALL:
        kind, cell, meaning = table[metric.name]
        assert kind == metric.kind, metric.name
        assert meaning.strip(), metric.name
        said = labels_in(cell)
        assert list(said) == list(metric.labels), metric.name
        for label, values in said.items():
            if label not in MANY_VALUES:
                assert values == metric.labels[label], f"{metric.name}: {label}"


def test_labels_with_many_values_are_explained() -> None:
    table = section("Labels with many values")
    said = {
        name for cell in re.findall(r"^\| (`.+?) \|", table, re.M) for name in CODE.findall(cell)
    }
    assert said >= MANY_VALUES
    used = {label for metric in metrics.ALL for label in metric.labels}
    assert used >= MANY_VALUES


def test_every_statement_of_every_store_is_listed() -> None:
    table = section("Labels with many values").partition("| store |")[2]
    said = {
        store: set(CODE.findall(cell))
        for store, cell in re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.MULTILINE)
    }
    assert said == {store: set(names) for store, names in metrics.STATEMENTS.items()}


def test_every_query_asks_for_metrics_that_there_are() -> None:
    known = {metric.name for metric in metrics.ALL}
    for metric in metrics.ALL:
        if metric.kind == "histogram":
            known |= {f"{metric.name}_{suffix}" for suffix in ("bucket", "count", "sum")}
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    for page in pages:
        mentioned = set(re.findall(r"\btally_[a-z_]+\b", page.read_text()))
        assert mentioned - known == set(), page.name
    assert (
        len(re.findall(r"^\| .* \| `.*\btally_.*` ?.*\|", section("What to alert on"), re.M)) > 10
    )


def test_every_metric_is_used() -> None:
    sources = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    definitions = ROOT / "counter" / "metrics.py"
    code = "\n".join(file.read_text() for file in sources if file != definitions)
    names = {name: value for name, value in vars(metrics).items() if value in metrics.ALL}
    assert len(names) == len(metrics.ALL)
    assert {name for name in names if not re.search(rf"\b{name}\b", code)} == set()
