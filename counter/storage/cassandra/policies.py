"""Which requests are sent again by the driver, and where to.

Everything that Tally writes is safe to repeat, so a request may go to another node once. A write
that timed out is not sent again here: its outcome is unknown, and the caller, who has a deadline,
decides.
"""

from typing import Any

from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, ExecutionProfile
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    NoSpeculativeExecutionPolicy,
    RetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import tuple_factory

# A node that takes this long is not waited for alone: the next replica is asked as well.
SPECULATE_AFTER_S = 0.1

Decision = tuple[int, int | None]
_GIVE_UP: Decision = (RetryPolicy.RETHROW, None)


class OnceElsewhere(RetryPolicy):  # type: ignore[misc]
    def on_read_timeout(
        self, query: Any, consistency: int, *, retry_num: int, **facts: Any
    ) -> Decision:
        return (self.RETRY, consistency) if retry_num == 0 else _GIVE_UP

    def on_write_timeout(
        self, query: Any, consistency: int, *, retry_num: int, **facts: Any
    ) -> Decision:
        return _GIVE_UP

    def on_unavailable(
        self, query: Any, consistency: int, *, retry_num: int, **facts: Any
    ) -> Decision:
        return (self.RETRY_NEXT_HOST, consistency) if retry_num == 0 else _GIVE_UP

    def on_request_error(
        self, query: Any, consistency: int, *, retry_num: int, **facts: Any
    ) -> Decision:
        return (self.RETRY_NEXT_HOST, consistency) if retry_num == 0 else _GIVE_UP


def execution_profiles(data_center: str, request_timeout_s: float) -> dict[Any, ExecutionProfile]:
    """By kind of statement, as queries.cql explains the kinds; the default is for the schema."""

    def profile(*, speculative: bool) -> ExecutionProfile:
        return ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(data_center)),
            retry_policy=OnceElsewhere(),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
            request_timeout=request_timeout_s,
            row_factory=tuple_factory,
            speculative_execution_policy=(
                ConstantSpeculativeExecutionPolicy(delay=SPECULATE_AFTER_S, max_attempts=1)
                if speculative
                else NoSpeculativeExecutionPolicy()
            ),
        )

    return {
        "read": profile(speculative=True),
        "write": profile(speculative=False),
        "agree": profile(speculative=False),
        EXEC_PROFILE_DEFAULT: profile(speculative=False),
    }
