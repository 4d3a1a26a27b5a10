from dataclasses import replace
from pathlib import Path

import pytest

from control_plane.capacity.load import Load
from control_plane.capacity.plan import plan
from control_plane.capacity.prices import Price, Prices, load_prices, parse_prices, priced
from counter.namespaces import Strategy

ROOT = Path(__file__).parents[3]
BAD = ROOT / "tests" / "bad_prices"
CASES = sorted(BAD.glob("*.yaml"))
MEDIUM = Load(adds_per_s=50_000, reads_per_s=100_000, counters=2_000_000)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_mistake_is_reported_exactly(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bad file per mistake, each with its exact report beside it as NAME.expected."""
    monkeypatch.chdir(BAD)
    mistakes = load_prices(Path(case.name))
    assert isinstance(mistakes, list)
    report = "".join(f"{each}\n" for each in mistakes)
    assert report == case.with_suffix(".expected").read_text(encoding="utf-8")


def test_every_expected_report_has_its_case() -> None:
    assert {each.stem for each in BAD.glob("*.expected")} == {each.stem for each in CASES}
    assert len(CASES) > 20


def test_a_file_that_is_not_there() -> None:
    (mistake,) = load_prices(Path("nowhere.yaml"))  # type: ignore[misc]
    assert "there is no such file" in str(mistake)
    assert "configs/prices.yaml" in str(mistake)


def test_the_example_is_right_and_says_that_it_is_no_offer() -> None:
    file = ROOT / "configs" / "prices.yaml"
    prices = load_prices(file)
    assert isinstance(prices, Prices)
    assert set(prices.of) == {"server", "worker", "node", "disk_gb", "memory_gb"}
    assert "PLACEHOLDERS" in file.read_text()


def prices_of(text: str) -> Prices:
    prices = parse_prices("prices.yaml", text.encode())
    assert isinstance(prices, Prices), prices
    return prices


PRICES = """\
currency: CHF
server: {per_hour: 0.04}
worker: {per_month: 25}
node: {per_month: 300}
disk_gb: {per_month: 0.1}
memory_gb: {per_month: 0}
"""


def test_prices_arrive() -> None:
    prices = prices_of(PRICES)
    assert prices.currency == "CHF"
    assert prices.of["server"] == Price(amount=0.04, per_hour=True)
    assert prices.of["disk_gb"] == Price(amount=0.1, per_hour=False)


def test_what_a_plan_costs() -> None:
    made = plan(MEDIUM)
    with_cost = priced(made, prices_of(PRICES))
    value = with_cost.value
    assert value("server_cost") == pytest.approx(value("servers") * 0.04 * 730)
    assert value("worker_cost") == value("workers") * 25
    assert value("disk_gb_cost") == pytest.approx(value("disk_bytes") / 1e9 * 0.1)
    parts = ("server", "worker", "node", "disk_gb", "memory_gb")
    assert value("cost") == pytest.approx(sum(value(f"{each}_cost") for each in parts))
    assert with_cost.lines["cost"].unit == "CHF/month"
    assert "hours_per_month" in with_cost.lines["server_cost"].formula
    assert "cost" not in made.lines


def test_best_effort_has_no_workers_to_pay_for() -> None:
    load = replace(MEDIUM, strategy=Strategy.BEST_EFFORT)
    made = priced(plan(load), prices_of(PRICES))
    assert "worker_cost" not in made.lines
    assert made.value("cost") > 0
