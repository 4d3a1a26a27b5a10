"""Namespaces changed under load: exact counts, whole versions, and a fleet that agrees in the end.

On a fleet of two servers, a worker and two control planes. Namespaces under load are deleted and
brought back; then two admins apply and roll back against each other, with wrong files in between,
while somebody spoils the watched folder and a control plane is killed and started again.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from counter.v1 import counter_service_pb2 as counter_pb
from counter.v1 import namespace_service_pb2 as pb
from counter.v1.namespace_service_pb2_grpc import NamespaceServiceStub
from tests.admins import (
    BASE,
    Admin,
    Batches,
    all_run,
    apply,
    assert_whole,
    rollback,
)
from tests.calls import Calls, Refusal, eventually, fresh_counter, refusal, refusal_of, token
from tests.fleet import CONVERGENCE_S, LATE_S, Fleet
from tests.load import Load, open_channel, under_load
from tests.processes import ProgramProcess, run_tally, write_namespaces

VERSIONS_LEAST = 200


@asynccontextmanager
async def running(home: Path) -> AsyncIterator[Fleet]:
    fleet = Fleet.on_one_node(home)
    write_namespaces(fleet.namespaces, BASE)
    try:
        await fleet.apply_schema()
        yield fleet
    finally:
        fleet.end()


async def spoil(folder: Path, stop: asyncio.Event) -> int:
    """Half-written, wrong and missing files, each put back as it was."""
    plays, spoilt = folder / "plays.yaml", 0
    while not stop.is_set():
        for content in ("namespace: plays\nstrat", "", "namespace: plays\nstrategy: Eventual\n"):
            plays.write_text(content)
            await asyncio.sleep(0.4)
        plays.unlink()
        await asyncio.sleep(0.4)
        plays.write_text(BASE["plays"])
        await asyncio.sleep(0.4)
        spoilt += 1
    return spoilt


def plays_are_gone(address: str) -> bool:
    with Calls(address) as calls:
        try:
            calls.add("plays", fresh_counter(), 1, token())
        except grpc.RpcError as error:
            return refusal_of(error).reason == "NAMESPACE_UNKNOWN"
    return False


async def deleted_and_brought_back(
    stub: NamespaceServiceStub, servers: Sequence[ProgramProcess], load: Load
) -> int:
    """What is under load is deleted, callers notice, and a rollback brings it back.

    Whoever rolls back further, to the version without them, and then applies them anew, would have
    them start at 0: answers with the first version from which on nobody can.
    """
    before = (await stub.ListNamespaces(pb.ListNamespacesRequest())).version
    kept = {name: text for name, text in BASE.items() if name not in ("plays", "quotas")}
    await apply(stub, kept)
    for server in servers:
        await asyncio.to_thread(eventually, lambda at=server.address: plays_are_gone(at), bool)
    back = await rollback(stub, before)
    await load.acknowledged(200)
    return back.version


@pytest.mark.timeout(300)
async def test_hundreds_of_changes_under_load(tmp_path: Path) -> None:
    async with running(tmp_path) as fleet:
        servers = [fleet.add("server"), fleet.add("server")]
        worker = fleet.add("worker")
        planes = [fleet.add("control-plane"), fleet.add("control-plane")]
        await fleet.start(*servers, worker, *planes)
        stop, done = asyncio.Event(), Counter[str]()
        batches = Batches(servers[0].address)
        async with (
            under_load(*(each.address for each in servers), late_s=LATE_S) as load,
            open_channel(planes[0].address) as channel,
        ):
            stub = NamespaceServiceStub(channel)
            await load.acknowledged(200)
            since = await deleted_and_brought_back(stub, servers, load)
            admins = [
                Admin(f"admin {at}", plane.address, done, since=since)
                for at, plane in enumerate(planes)
            ]
            working = [
                asyncio.create_task(each)
                for each in (
                    *(each.run(stop) for each in admins),
                    *(assert_whole(each.address, stop, done) for each in planes),
                    batches.run(stop),
                )
            ]
            spoiling = asyncio.create_task(spoil(fleet.namespaces, stop))
            while done["applied"] + done["rolled back"] < VERSIONS_LEAST:
                await load.acknowledged(50)
                for each in working:
                    assert not each.done(), each.result()
                planes[1].kill()
                await load.acknowledged(50)
                await fleet.start(planes[1])
            stop.set()
            await asyncio.gather(*working)
            assert await spoiling > 0
            # Each of these happened, or this was no test.
            for kind in ("rolled back", "VERSION_CONFLICT", "NAMESPACES_INVALID", "away", "whole"):
                assert done[kind] > 0, (kind, done)
            assert done["CHANGE_IMPOSSIBLE"] > 0
            assert batches.taken > 0
            assert batches.refused > 0
            last = await apply(stub, BASE)
            await all_run(stub, last.version, len([*servers, worker, *planes]))
            await load.acknowledged(100)
            await load.stop()
            await asyncio.sleep(CONVERGENCE_S)  # I2: nobody reads or writes meanwhile
            await load.check(worker=worker.address)
        least, most = batches.counts
        with Calls(servers[1].address) as calls:
            for counter in ("c0", "c199"):
                assert least <= calls.get("probe", counter).count <= most
        assert last.version > VERSIONS_LEAST


@pytest.mark.timeout(300)
async def test_a_fleet_without_its_control_plane(tmp_path: Path) -> None:
    """It serves on, restarts with the last version, and follows as soon as there is one again."""
    async with running(tmp_path) as fleet:
        server, worker = fleet.add("server"), fleet.add("worker")
        plane = fleet.add("control-plane")
        await fleet.start(server, worker, plane)
        async with open_channel(plane.address) as channel:
            stub = NamespaceServiceStub(channel)
            small = BASE | {"plays": BASE["plays"] + "max_delta: 5\n"}
            applied = await apply(stub, small)
            await all_run(stub, applied.version, 3)
        counter = fresh_counter()
        plane.kill()
        with Calls(server.address) as calls:
            calls.add("plays", counter, 5, token())
            server.kill()
            worker.kill()
            await fleet.start(server, worker)
            calls.add("plays", counter, 5, token())
            said = refusal(lambda: calls.add("plays", counter, 6, token()))
            assert said.reason == "DELTA_TOO_LARGE", "the last version is served"
            assert calls.get("plays", counter, max_staleness_s=0).count == 10
            # The folder has not changed since: what was applied by command stays.
            await fleet.start(plane)
            async with open_channel(plane.address) as channel:
                stub = NamespaceServiceStub(channel)
                await all_run(stub, applied.version, 3)
                back = await rollback(stub, 1)
                await all_run(stub, back.version, 3)
            calls.add("plays", counter, 6, token())
            assert calls.get("plays", counter, max_staleness_s=0).count == 16


async def test_a_change_comes_by_the_stream(tmp_path: Path) -> None:
    """Ten versions, one after the other, each run by every process before the next is made."""
    async with running(tmp_path) as fleet:
        server, plane = fleet.add("server"), fleet.add("control-plane")
        await fleet.start(server, plane)
        async with open_channel(plane.address) as channel:
            stub = NamespaceServiceStub(channel)
            reached_s = []
            for largest in range(5, 15):
                applied = await apply(
                    stub, BASE | {"plays": BASE["plays"] + f"max_delta: {largest}\n"}
                )
                began_s = asyncio.get_running_loop().time()
                await all_run(stub, applied.version, 2)
                reached_s.append(asyncio.get_running_loop().time() - began_s)
            print("each version was run everywhere, and that was told, after", sorted(reached_s))
        assert "watch_broken" not in server.log.read_text()


def refused_by_its_limit(calls: Calls, counter: str) -> Refusal:
    """Adds until a limit says no."""
    items = [counter_pb.AddCountItem(counter_name=counter, delta=1) for _ in range(100)]
    request = counter_pb.BatchAddCountRequest(namespace="limited", items=items)
    for _ in range(1_000):
        try:
            calls.counters.BatchAddCount(request, timeout=10)
        except grpc.RpcError as error:
            return refusal_of(error)
    raise AssertionError("never refused")


async def test_a_limit_is_one_of_the_whole_fleet(tmp_path: Path) -> None:
    limited = "namespace: limited\nstrategy: accurate\nlimits: {adds_per_s: 50}\n"
    async with running(tmp_path) as fleet:
        servers, plane = [fleet.add("server"), fleet.add("server")], fleet.add("control-plane")
        await fleet.start(*servers, plane)
        async with open_channel(plane.address) as channel:
            stub = NamespaceServiceStub(channel)
            applied = await apply(stub, BASE | {"limited": limited})
            await all_run(stub, applied.version, 3)
            counter = fresh_counter()
            for server in servers:
                with Calls(server.address) as calls:
                    said = await asyncio.to_thread(
                        eventually,
                        lambda calls=calls: refused_by_its_limit(calls, counter),
                        lambda said: "25 on each of 2 servers" in said.message,
                    )
                    assert (said.code, said.reason) == (
                        grpc.StatusCode.RESOURCE_EXHAUSTED,
                        "ADDS_LIMITED",
                    )
                    assert said.retry_after_s is not None
            traffic = [
                each
                for process in (await stub.ListProcesses(pb.ListProcessesRequest())).processes
                for each in process.traffic
                if each.namespace == "limited"
            ]
            assert len(traffic) == 2
            assert servers[0].stop() == 0
            with Calls(servers[1].address) as calls:
                await asyncio.to_thread(
                    eventually,
                    lambda: refused_by_its_limit(calls, counter),
                    lambda said: "on each of" not in said.message,
                )


async def add_until_cut_over(
    calls: Calls, counter: str, plane: ProgramProcess, server: ProgramProcess
) -> int:
    """Adds 1 again and again while `tally cutover` is at work; how often."""
    cutting = asyncio.create_task(
        asyncio.to_thread(
            run_tally,
            *("cutover", "hits", "--carry-over", "--yes", "-m", "must be exact"),
            *("--server", plane.address, "--counter-server", server.address),
        )
    )
    added = 0
    while not cutting.done():
        await asyncio.to_thread(calls.add, "hits", counter, 1, token())
        added += 1
    done = await cutting
    assert done.returncode == 0, done.stdout + done.stderr
    return added


async def test_a_shadow_phase_on_a_fleet(tmp_path: Path) -> None:
    """Both servers count into memcached and into the log. The cutover carries over what a counter
    had before, and loses nothing of another one that is added to all the time."""
    hits = "namespace: hits\nstrategy: best_effort\n"
    idle, busy = fresh_counter("idle"), fresh_counter("busy")
    compare = counter_pb.CompareShadowRequest(namespace="hits")
    async with running(tmp_path) as fleet:
        servers, plane = [fleet.add("server"), fleet.add("server")], fleet.add("control-plane")
        await fleet.start(*servers, plane, fleet.add("worker"))
        async with open_channel(plane.address) as channel:
            stub = NamespaceServiceStub(channel)
            with Calls(servers[0].address) as one, Calls(servers[1].address) as other:
                await apply(stub, BASE | {"hits": hits})
                one.add("hits", idle, 100, token())
                applied = await apply(stub, BASE | {"hits": hits + "shadow: eventual\n"})
                await all_run(stub, applied.version, 4)
                for calls in (one, other):
                    calls.add("hits", idle, 1, token())
                    calls.add("hits", busy, 1, token())
                await asyncio.to_thread(
                    eventually,
                    lambda: one.counters.CompareShadow(compare, timeout=10).counters,
                    lambda known: len(known) == 2,
                )
                added = await add_until_cut_over(other, busy, plane, servers[0])
                await all_run(stub, applied.version + 1, 4)
                for calls in (one, other):
                    assert calls.accurate("hits", idle) == 102
                    assert calls.accurate("hits", busy) == 2 + added
