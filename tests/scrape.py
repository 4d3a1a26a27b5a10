"""Metrics as Prometheus gets them."""

import urllib.request

from prometheus_client.parser import text_string_to_metric_families


class Scrape:
    """One answer of the endpoint."""

    def __init__(self, address: str) -> None:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            self.text: str = answer.read().decode()
        self.families = {
            family.name: family for family in text_string_to_metric_families(self.text)
        }

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series of a sample that have these labels."""
        return sum(
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def values(self, name: str) -> list[float]:
        return [sample.value for sample in self.families[name].samples]

    def names(self) -> set[str]:
        """As the page has them: counters with their `_total`."""
        return {
            f"{name}_total" if family.type == "counter" else name
            for name, family in self.families.items()
            if not name.startswith("process_")
        }
