"""The simulated store knows every statement that the adapters can run, and no other."""

from counter.storage.cassandra.session import queries
from tests.simulation.statements import AGREEMENTS, READS, READS_OF_MANY, WRITES


def test_every_statement_is_simulated() -> None:
    by_kind = {"read": {*READS, *READS_OF_MANY}, "write": set(WRITES), "agree": set(AGREEMENTS)}
    written: dict[str, set[str]] = {kind: set() for kind in by_kind}
    for query in queries("any"):
        written[query.kind].add(query.name)
    assert by_kind == written
