"""Who calls: how a call is made, retried elsewhere, and written down."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from counter.clock import NS_PER_S
from counter.rpc.values import timestamp
from counter.v1 import counter_service_pb2 as pb
from tally.verify.history import Call, CallKind, Outcome
from tests.simulation.calls import Network
from tests.simulation.programs import Server
from tests.simulation.scenario import Scenario
from tests.simulation.served import Noted, Served
from tests.simulation.witness import Witness

CounterName = tuple[str, str]  # its namespace, and its own
Token = tuple[str, int]  # and its time


class Caller:
    def __init__(
        self,
        name: str,
        scenario: Scenario,
        servers: Sequence[Server],
        network: Network,
        witness: Witness,
        history: list[Noted],
        *,
        patience_s: float | None = None,
    ) -> None:
        """`patience_s`: how long it waits for an answer; None: sometimes more, sometimes less."""
        self.name = name
        self.scenario = scenario
        self.servers = servers
        self.network = network
        self.witness = witness
        self.history = history
        self._patience_s = patience_s
        self.chance = Random(f"{scenario.seed} {name}")

    async def call(
        self, method: str, request: Any, served: Served, server: Server | None = None
    ) -> Any:
        """At any server, or at the one that is named."""
        chosen = server or self.any_server()
        return await self.network.call(chosen, method, request, self.timeout_s(), served)

    def any_server(self) -> Server:
        return self.chance.choice(self.servers)

    def timeout_s(self) -> float:
        return self._patience_s or self.chance.choice((0.3, 1.0, 5.0))

    def count(self, what: str) -> None:
        self.witness.counted[what] += 1

    def note(
        self,
        kind: CallKind,
        counter: CounterName,
        invoked_ns: int,
        served: Served,
        outcome: Outcome = Outcome.OK,
        *,
        is_answered: bool = True,
        **fields: Any,
    ) -> Call:
        call = Call(
            client=self.name,
            call=kind,
            namespace=counter[0],
            counter=counter[1],
            invoked_ns=invoked_ns,
            completed_ns=self.now_ns() if is_answered else None,
            outcome=outcome,
            **fields,
        )
        self.history.append(Noted(call, served))
        self.witness.trace(self.name, f"{kind.value} {outcome.value} {call.count}")
        return call

    def now_ns(self) -> int:
        """Of the one clock that all callers share."""
        return int(asyncio.get_running_loop().time() * NS_PER_S)


def token_message(token: Token) -> pb.IdempotencyToken:
    return pb.IdempotencyToken(token=token[0], generation_time=timestamp(token[1]))
