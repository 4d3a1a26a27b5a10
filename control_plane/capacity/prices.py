"""What a fleet costs: a small YAML file of prices, and the cost of a plan.

currency: EUR
server: {per_month: 30}
worker: {per_month: 30}
node: {per_month: 250}
disk_gb: {per_month: 0.1}
memory_gb: {per_hour: 0.005}
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from control_plane.capacity.constants import Constant
from control_plane.capacity.plan import Plan
from control_plane.capacity.quantities import Quantity, Sheet, total
from control_plane.files.loader import content_of
from control_plane.files.messages import nearest
from control_plane.files.mistakes import START, Mistake, mistake, quoted, shown
from control_plane.files.yaml_tree import Fields, Hints, Node, Scalar, Unreadable, read

# What has a price, and what there is of it in a plan.
_PRICED = {
    "server": "servers",
    "worker": "workers",
    "node": "nodes",
    "disk_gb": "disk_bytes",
    "memory_gb": "memcached_bytes",
}
_TERMS = ("per_month", "per_hour")
_BYTES_PER_GB = 1_000_000_000
_CURRENCY = re.compile(r"[A-Z]{3}")
_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_EXAMPLE_FILE = "configs/prices.yaml is an example to start from"
_HINTS = Hints(
    empty=_EXAMPLE_FILE,
    too_large=f"is this a file of prices? {_EXAMPLE_FILE}",
    too_many_values=f"is this a file of prices? {_EXAMPLE_FILE}",
    too_deep="nothing is deeper than per_month and per_hour",
    second_document="a file of prices is one document: remove the line '---' and what follows",
)
HOURS_PER_MONTH = Constant(
    name="hours_per_month", unit="h", value=730, meaning="a twelfth of a year", source="derived"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    amount: float
    per_hour: bool  # otherwise per month


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    currency: str
    of: Mapping[str, Price]


def load_prices(path: Path) -> Prices | list[Mistake]:
    """The prices of a file, or all of its mistakes."""
    if not os.path.exists(path):  # unlike Path.exists it takes any path
        return [mistake(str(path), START, "there is no such file", _EXAMPLE_FILE)]
    content = content_of(path)
    if isinstance(content, Mistake):
        return [content]
    return parse_prices(str(path), content)


def parse_prices(path: str, content: bytes) -> Prices | list[Mistake]:
    fields, mistakes = read(path, content, _HINTS)
    if fields is None:
        return mistakes
    reading = _Reading(path)
    currency = reading.currency(fields)
    prices = {name: reading.price(name, fields) for name in _PRICED}
    reading.refuse_unknown(fields, ("currency", *_PRICED), "")
    found = sorted(mistakes + reading.mistakes)
    given = {name: price for name, price in prices.items() if price is not None}
    if found or currency is None or len(given) < len(prices):
        assert found, "what is missing has a mistake"
        return found
    return Prices(currency=currency, of=given)


class _Reading:
    def __init__(self, path: str) -> None:
        self.mistakes: list[Mistake] = []
        self._path = path

    def _refuse(self, node: Node, field: str, message: str, hint: str) -> None:
        if not isinstance(node, Unreadable):  # that has its mistake already
            self.mistakes.append(mistake(self._path, node.at, message, hint, field=field))

    def currency(self, fields: Fields) -> str | None:
        hint = "write 'currency: EUR', three capital letters"
        node = fields.values.get("currency")
        if node is None:
            self._refuse(fields, "currency", "is required", hint)
        elif not isinstance(node, Scalar) or not _CURRENCY.fullmatch(node.text):
            text = quoted(node.text) if isinstance(node, Scalar) else "this"
            self._refuse(node, "currency", f"{text} is not a currency", hint)
        else:
            return node.text
        return None

    def price(self, name: str, fields: Fields) -> Price | None:
        hint = f"write '{name}: {{per_month: 30}}' or '{name}: {{per_hour: 0.04}}'"
        node = fields.values.get(name)
        if node is None:
            self._refuse(fields, name, "is required", hint)
            return None
        if not isinstance(node, Fields):
            text = quoted(node.text) if isinstance(node, Scalar) else "a list"
            self._refuse(node, name, f"{text} does not say per what time", hint)
            return None
        self.refuse_unknown(node, _TERMS, name)
        terms = [term for term in _TERMS if term in node.values]
        if len(terms) == 2:
            self._refuse(node, name, "has two prices", "give per_month or per_hour, not both")
        elif not terms and not set(node.values) - set(_TERMS):
            self._refuse(node, name, "has no price", hint)
        elif terms:
            amount = self._amount(node.values[terms[0]], f"{name}.{terms[0]}")
            if amount is not None:
                return Price(amount=amount, per_hour=terms[0] == "per_hour")
        return None

    def _amount(self, node: Node, field: str) -> float | None:
        hint = "write a number like 30 or 0.045, in digits"
        if not isinstance(node, Scalar):
            is_what = "a mapping" if isinstance(node, Fields) else "a list"
            self._refuse(node, field, f"is {is_what}, not a number", hint)
        elif node.is_null:
            self._refuse(node, field, "has no value", hint)
        elif not node.plain and _AMOUNT.fullmatch(node.text):
            self._refuse(node, field, f'"{node.text}" is text, not a number', "remove the quotes")
        elif node.text.startswith("-") and _AMOUNT.fullmatch(node.text[1:]):
            self._refuse(node, field, f"{quoted(node.text)} is less than nothing", hint)
        elif not node.plain or not _AMOUNT.fullmatch(node.text):
            self._refuse(node, field, f"{quoted(node.text)} is not a price", hint)
        else:
            return float(Fraction(node.text))
        return None

    def refuse_unknown(self, fields: Fields, known: tuple[str, ...], section: str) -> None:
        for name, at in fields.keys.items():
            if name in known:
                continue
            meant = nearest(name, known)
            hint = f"did you mean {meant}?" if meant else f"the fields are {', '.join(known)}"
            if name.isdecimal():  # what follows the comma in {per_month: 0,5}
                hint = "write decimals with a point, like 0.5"
            field = ".".join(filter(None, (section, shown(name))))
            self.mistakes.append(
                mistake(self._path, at, "there is no such field", hint, field=field)
            )


def priced(plan: Plan, prices: Prices) -> Plan:
    """The plan with what it costs in a month."""
    assert not plan.refusals, "a load that is refused has no cost"
    sheet = Sheet(plan.lines)
    costs: list[Quantity] = []
    for name, amount_of in _PRICED.items():
        if amount_of not in plan.lines:
            continue  # best_effort has no workers
        price = prices.of[name]
        term = "hour" if price.per_hour else "month"
        per_month = sheet.given(
            f"{name}_per_{term}", prices.currency, price.amount, f"of the file, a {term}"
        )
        if price.per_hour:
            per_month = per_month * HOURS_PER_MONTH.on(sheet)
        amount = sheet[amount_of]
        if amount_of.endswith("_bytes"):
            amount = amount / sheet.constant(
                "bytes_per_gb", "B", _BYTES_PER_GB, "prices are of these", "decimal"
            )
        unit = f"{prices.currency}/month"
        cost = sheet.named(f"{name}_cost", unit, amount * per_month, f"{amount_of}, in a month")
        costs.append(cost)
    sheet.named("cost", f"{prices.currency}/month", total(*costs), "all of it, in a month")
    return replace(plan, lines=sheet.lines)
