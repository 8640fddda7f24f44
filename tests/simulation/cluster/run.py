"""One run: a cluster, its clients and its faults, all from one seed; then all is healed and must work again."""

import asyncio
from contextlib import nullcontext

import msgspec

from quorate.kernel.ids import NO_NODE, TopicName
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from tests.simulation.cluster.clients import Client
from tests.simulation.cluster.cluster import Member, SimulatedCluster, scaled_down
from tests.simulation.cluster.faults import FAULTS, ClusterFaults
from tests.simulation.cluster.log_lines import watched_log_lines
from tests.simulation.cluster.membership_changes import MembershipChanges
from tests.simulation.cluster.record_client import RecordClient
from tests.simulation.cluster.secret_rotation import SecretRotation
from tests.simulation.cluster.shape import Shape, draw_shape
from tests.simulation.cluster.stranger import Stranger
from tests.simulation.world.world import World

#: From the last repair to a cluster that works: reconnects, an election, registrations, sessions.
_LIVE_WITHIN_S = 25.0
#: A client that waits for a node which had fallen silent gives up by then.
_CLIENTS_END_WITHIN_S = 45.0


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    seed: int
    digest: str
    steps: int
    virtual_s: float
    #: How long the cluster took to work again after the last fault.
    recovery_s: float
    entries: int
    terms: int
    answers: dict[str, int]


def run_seed(seed: int, shape: Shape | None = None) -> RunReport:
    """Raises where a checker found something."""
    shape = shape or draw_shape(seed, tuple(FAULTS))
    with World(seed) as world, scaled_down(shape):
        cluster = SimulatedCluster(world, shape)
        stranger = Stranger(cluster) if shape.has_stranger else None
        with watched_log_lines(cluster.findings), stranger.listening() if stranger else nullcontext():
            recovery_s = world.run(_scenario(cluster, stranger), within_s=1_000)
        return RunReport(
            seed=seed,
            digest=world.trace.digest(),
            steps=world.scheduler.steps,
            virtual_s=world.now,
            recovery_s=recovery_s,
            entries=len(cluster.truth.images) - 1,
            terms=max(_leader_term(member) for member in cluster.present),
            answers=cluster.ledger.answers,
        )


async def _scenario(cluster: SimulatedCluster, stranger: Stranger | None) -> float:
    world, shape = cluster.world, cluster.shape
    voters = [member for member in cluster.members if member.node_id in shape.voters]
    await _within(world, _LIVE_WITHIN_S, asyncio.ensure_future(cluster.start(voters)), "the cluster starts")
    joining = asyncio.ensure_future(cluster.start([member for member in cluster.members if member not in voters]))
    changing = asyncio.ensure_future(MembershipChanges(cluster).run()) if shape.changes_membership else None
    rotating = asyncio.ensure_future(SecretRotation(cluster).run()) if shape.changes_secret else None
    faults_are_over: list[bool] = []
    record_client = RecordClient(cluster)
    clients = [Client(cluster, f"client-{number}") for number in range(shape.clients)]
    runs = [client.run for client in clients] + [record_client.run]
    working = [cluster.client_host.spawn(run(lambda: bool(faults_are_over))) for run in runs]
    if stranger is not None:
        working.append(stranger.host.spawn(stranger.run(lambda: bool(faults_are_over))))
    faults = ClusterFaults(cluster)
    faulting = asyncio.ensure_future(faults.run(shape.faults, shape.fault_count))
    longest_s = shape.fault_count * 3 * shape.longest_fault_s
    await _within(world, longest_s + _LIVE_WITHIN_S, faulting, "all nodes come up again")
    await _within(world, _LIVE_WITHIN_S, joining, "all nodes join")
    if changing is not None:
        await _within(world, _LIVE_WITHIN_S, changing, "the membership is changed")
    if rotating is not None:
        await _within(world, _LIVE_WITHIN_S, rotating, "the secret is changed")
    await world.until(lambda: _is_live(cluster), within_s=_LIVE_WITHIN_S)
    recovery_s = world.now - faults.last_repair_at
    faults_are_over.append(True)
    await world.until(lambda: all(work.done() for work in working), within_s=_CLIENTS_END_WITHIN_S)
    await _everything_works(cluster)
    reading = asyncio.ensure_future(cluster.client_host.run(record_client.check_all()))
    await _within(world, _LIVE_WITHIN_S, reading, "all records are read")
    cluster.ledger.check_nothing_unasked()
    return recovery_s


async def _within(world: World, seconds: float, work: "asyncio.Future[None]", what: str) -> None:
    await asyncio.wait([work], timeout=seconds)
    assert work.done(), f"not within {seconds} s: {what}"
    work.result()


def _is_live(cluster: SimulatedCluster) -> bool:
    """One leader that everybody knows, every broker unfenced, every image up to date, every partition led."""
    leader = cluster.leader()
    if leader is None or any(not member.is_serving for member in cluster.present):
        return False
    latest = cluster.truth.latest
    if any(not latest.is_active(member.node_id) for member in cluster.present):
        return False
    return all(_knows(member, leader) and member.view.image.version == latest.version for member in cluster.present)


def _knows(member: Member, leader: Member) -> bool:
    node = member.running_node
    return node is not None and node.services.controller_id == leader.node_id


async def _everything_works(cluster: SimulatedCluster) -> None:
    client = Client(cluster, "last-client")
    for member in cluster.present:
        failed = await cluster.client_host.run(client.each_work_once(member))
        if _lost_for_good(cluster, CONSUMER_OFFSETS):
            failed = [work for work in failed if work != "find_coordinator"]
        assert not failed, f"all is well, but node {member.node_id} cannot {', '.join(failed)}"
    await cluster.world.until(lambda: _is_live(cluster), within_s=_LIVE_WITHIN_S)
    present = {member.node_id for member in cluster.present}
    for topic in cluster.truth.latest.topics.values():
        for index, state in topic.partitions.items():
            if state.leader == NO_NODE and present.intersection(state.isr):
                cluster.findings.report("liveness", f"{topic.name}-{index} has no leader although {state.isr} are back")


def _lost_for_good(cluster: SimulatedCluster, name: TopicName) -> bool:
    """Whether a partition of the topic has nobody left in sync but nodes that were removed."""
    topic = cluster.truth.latest.topics.get(name)
    present = {member.node_id for member in cluster.present}
    return topic is not None and any(not present.intersection(state.isr) for state in topic.partitions.values())


def _leader_term(member: Member) -> int:
    node = member.running_node
    return 0 if node is None else node.quorum.driver.state.term
