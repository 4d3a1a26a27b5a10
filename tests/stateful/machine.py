"""The public API, driven at random and held against a model: see `base` and `model`."""

from dataclasses import replace

from tests.stateful.administering import Administering
from tests.stateful.definitions import Live, Settings
from tests.stateful.messages import Add, Sent
from tests.stateful.past import Past
from tests.stateful.reading import Reading
from tests.stateful.running import Running
from tests.stateful.writing import Writing


class CounterMachine(Writing, Reading, Past, Running, Administering):
    def check_in_the_end(self) -> None:
        """Everything lands, is closed and folded. Then all servers, ways and stores agree, every
        token has its outcome, and what was deleted is there again with all that it counted."""
        self.installation.log.next = self.stumble = None
        self.land()
        self.windows_end(0)
        self.flush_shared_cache()
        self._check_live()
        missing = {
            namespace_id
            for namespace_id, _ in self.counters
            if namespace_id not in {live.id for live in self.versions.current.values()}
        }
        for namespace_id in sorted(missing):
            version, _ = self.versions.name_of(namespace_id)
            self.restore(version)
            self._check_live()

    def _check_live(self) -> None:
        self.apply({name: _unlimited(live) for name, live in self.versions.current.items()})
        self.follow()
        # Past what servers keep in memory.
        self.clock.advance_ms(10_000)
        for name, live in self.versions.current.items():
            counters = [each for namespace_id, each in self.counters if namespace_id == live.id]
            if counters:
                self._check_counters(name, live, counters)
        self.audit_all()

    def _check_counters(self, name: str, live: Live, counters: list[str]) -> None:
        self.read_everywhere(live, name, counters)
        for counter in counters:
            self.count_at(0, name, counter, self.clock.now_ns())
            self.history(1, name, counter, 30, None)
            for identity in sorted(self.counter(live, counter).identities()):
                add = Add(counter, 1, identity.token, identity.time_ns)
                self.token_status(1, Sent(name, add))
                self.count_at(0, name, counter, identity.time_ns)
        self.list_counters(0, name, "", 2)
        for minutes in (None, 3):
            self.top_counters(1, name, "", minutes)


def _unlimited(live: Live) -> Settings:
    return replace(
        live.settings,
        adds_per_s=None,
        reads_per_s=None,
        counters=None,
        batch_items=None,
        plain_names=False,
    )
