"""A cluster in the world: a host and a production node per member, watched by the checkers from its first step on."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from msgspec.structs import replace

from quorate.broker.config import NodeConfig, parse_node_config
from quorate.broker.node import NodeEnd, RunningNode
from quorate.broker.start import start_node
from quorate.kernel.ids import NodeId
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.quorum import quorum as quorum_module
from quorate.quorum import raft_driver
from quorate.quorum.core.config import RaftConfig
from quorate.quorum.core.events import RaftEvent
from quorate.quorum.quorum import Quorum
from quorate.transport.server import ListenerConfig, Server
from tests.rot import Flip, kind_of
from tests.simulation.cluster.answers import Answers, NodeView
from tests.simulation.cluster.findings import Findings
from tests.simulation.cluster.kept_logs import KeptLogs
from tests.simulation.cluster.ledger import Ledger
from tests.simulation.cluster.raft_checkers import RaftCheckers
from tests.simulation.cluster.records import Records
from tests.simulation.cluster.shape import Shape
from tests.simulation.cluster.truth import Truth
from tests.simulation.disk import SimulatedDisk, content_of
from tests.simulation.world.host import SECRET_FILE, HostDied, SimulatedHost
from tests.simulation.world.world import World

CLIENT_PORT = 9092
PEER_PORT = 9093
_RETRY_START_S = 0.2


class Member:
    """One place in the cluster, over all lives of its host."""

    def __init__(self, node_id: NodeId, host: SimulatedHost, config: NodeConfig) -> None:
        self.node_id = node_id
        self.host = host
        self.config = config
        self.node: RunningNode | None = None
        self.view = NodeView(node_id)
        #: Takes requests, as far as anybody can know.
        self.is_serving = False
        #: Something is being done to it; nothing else may be.
        self.is_claimed = False
        #: Has left the cluster for good.
        self.is_retired = False
        self.disk_is_sick = False
        #: Bits on its disk have flipped, and it has not served since: nobody knows yet what it has lost.
        self.is_damaged = False

    @property
    def running_node(self) -> RunningNode | None:
        return self.node if self.is_serving and self.host.is_alive else None


class SimulatedCluster:
    def __init__(self, world: World, shape: Shape) -> None:
        self.world = world
        self.shape = shape
        self.findings = Findings(world)
        self.truth = Truth(self.findings)
        self.answers = Answers(self.findings)
        self.ledger = Ledger(self.findings, self.truth)
        self.records = Records(self.findings)
        self._raft_checkers = RaftCheckers(self.findings, self.truth.extend)
        self.kept_logs = KeptLogs(self.findings, self.truth)
        self.members = [self._make_member(NodeId(node_id)) for node_id in shape.node_ids]
        self.client_host = world.add_host("client", "10.0.9.9")
        #: What nodes had to know, and have not any more, as soon as they have heard of it.
        self.former_secret: str | None = None

    @property
    def present(self) -> list[Member]:
        return [member for member in self.members if not member.is_retired]

    def leader(self) -> Member | None:
        """The node that can decide, if there is one now; the latest where an old one does not know better yet."""
        leaders = [m for m in self.present if (node := m.running_node) and node.quorum.driver.state.can_decide]
        return max(leaders, key=_state_term, default=None)

    async def start(self, members: Sequence[Member]) -> None:
        """For the first time; what may happen to them happens later."""
        for member in members:
            member.is_claimed = True
        await asyncio.gather(*(self.bring_up(member) for member in members))
        for member in members:
            member.is_claimed = False

    async def bring_up(self, member: Member) -> None:
        """Boot and start, as often as it takes: the power may fail in the middle of it."""
        while True:
            if not member.host.is_alive:
                member.host.boot()
            try:
                await member.host.run(self._serve(member))
            except HostDied:
                continue
            except OSError as error:
                if not member.disk_is_sick:
                    self.findings.report("nodes start", f"node {member.node_id}: {error!r}")
                self.kill(member)
                await self.world.sleep(_RETRY_START_S)
            else:
                member.is_damaged = False
                return

    def kill(self, member: Member) -> None:
        member.is_serving = False
        member.host.kill()

    def power_off(self, member: Member) -> None:
        member.is_serving = False
        member.host.power_off()

    def lose_disk(self, member: Member) -> None:
        """It is killed, and has a new disk when it starts again."""
        self.kill(member)
        member.host.replace_disk()
        self._raft_checkers.disk_lost(member.node_id)

    def damage(self, member: Member, flips: int) -> None:
        """It is down, and bits flip in the quorum's files on its disk."""
        assert not member.host.is_alive
        self.findings.expects_damage = member.is_damaged = True
        self._raft_checkers.log_damaged(member.node_id)
        disk, random = member.host.disk, self.world.random
        for _ in range(flips):
            path = random.choice(_quorum_files(disk))
            size = len(content_of(disk, path))
            flip = Flip(path, random.randrange(size), random.randrange(8))
            self.world.trace.note(f"flip {flip} on n{member.node_id}")
            disk.rot(flip.path, flip.position, flip.bit)

    def lacks_something(self, member: Member) -> bool:
        """Damaged, whether it has started since and found that or not."""
        return member.is_damaged or self.is_recovering(member)

    def is_recovering(self, member: Member) -> bool:
        return "quorum-recovery" in member.host.disk.list_directory("/data")

    async def stop(self, member: Member) -> None:
        """In good order, as on SIGTERM."""
        member.is_serving = False
        try:
            await member.host.run(self._stop(member))
        except HostDied:
            return
        self.kill(member)

    def watch(self, quorum: Quorum, view: NodeView) -> None:
        store, raft, world = quorum.metadata, quorum.driver._raft, self.world
        show, step = store._show, raft.step

        def image_changed() -> None:
            view.image_changed(world.now, store.image)
            self.truth.check_image(view.node_id, store.image)

        def watched_show(image: MetadataImage, delta: Delta | None) -> None:
            show(image, delta)
            image_changed()

        def watched_step(event: RaftEvent) -> None:
            before = raft.leader
            step(event)
            if raft.leader != before:
                view.leader_changed(world.now, raft.leader)

        image_changed()
        view.leader_changed(world.now, raft.quorum_state.leader)
        store._show = watched_show  # type: ignore[method-assign]
        if view.node_id % 2:
            store.read_at_once_bytes = 0  # As if every entry were long.
        raft.step = watched_step  # type: ignore[method-assign]
        self._raft_checkers.attach(view.node_id, raft)

    async def _serve(self, member: Member) -> None:
        config = member.config
        self.kept_logs.watch(member.node_id, member.host.disk)
        view = NodeView(member.node_id)
        agreed_before = self.truth.latest.version
        end = NodeEnd(member.node_id)
        member.host.spawn(self._end_when_failed(member, end))
        watched = replace(member.host.environment, on_quorum=lambda quorum: self.watch(quorum, view))
        node = await start_node(config, watched, end)
        listener = ListenerConfig(host=config.listen.host, port=config.listen.port)
        server = Server(member.host.loop, listener, node.dispatch.serve)
        await server.start()
        if node.metadata.image.version < agreed_before:
            self.findings.report("one truth", f"node {member.node_id} serves an image older than its start")
        member.node, member.view, member.is_serving = node, view, True

    async def _stop(self, member: Member) -> None:
        assert member.node is not None
        await member.node.leave()
        member.node.release_waiting_requests()
        await member.node.stop()

    async def _end_when_failed(self, member: Member, end: NodeEnd) -> None:
        """As the process does: a node that cannot go on ends."""
        await end.is_due.wait()
        if not member.disk_is_sick:
            self.findings.report("nodes do not fail", f"node {member.node_id}: {end.failure!r}")
        self.kill(member)

    def _make_member(self, node_id: NodeId) -> Member:
        shape = self.shape
        address = _address(node_id)
        voters = "\n".join(f'{voter} = "{_address(voter)}:{PEER_PORT}"' for voter in shape.voters)
        config = parse_node_config(
            f'node_id = {node_id}\ndata_dir = "/data"\ncluster_id = "simulated"\n'
            f'cluster_secret_file = "{SECRET_FILE}"\nlisten = "{address}:{CLIENT_PORT}"\n'
            f'peer_listen = "{address}:{PEER_PORT}"\n'
            f'leader_placement = "{shape.placement.value}"\nstop_grace_ms = 1000\n'
            f"[voters]\n{voters}\n[configs]\n"
            f'"broker.heartbeat.interval.ms" = {shape.heartbeat_ms}\n"broker.session.timeout.ms" = {shape.session_ms}\n'
            '"offsets.topic.num.partitions" = 3\n"num.partitions" = 2\n'
        )
        return Member(node_id, self.world.add_host(f"n{node_id}", address), config)


@contextmanager
def scaled_down(shape: Shape) -> Iterator[None]:
    """Snapshots after a handful of entries, so that short runs see them."""
    config = RaftConfig(entries_kept_behind_snapshot=shape.entries_kept_behind_snapshot)
    with (
        patch.object(raft_driver, "_ENTRIES_BETWEEN_SNAPSHOTS", shape.entries_between_snapshots),
        patch.object(quorum_module, "RaftConfig", lambda: config),
    ):
        yield


def _quorum_files(disk: SimulatedDisk) -> list[str]:
    names = disk.list_directory("/data") + [
        f"metadata-log/{name}" for name in disk.list_directory("/data/metadata-log")
    ]
    paths = [f"/data/{name}" for name in names if kind_of(name) not in (None, "reserve")]
    return [path for path in paths if content_of(disk, path)]


def _address(node_id: int) -> str:
    return f"10.0.{node_id // 250}.{node_id % 250 + 1}"


def _state_term(member: Member) -> int:
    assert member.node is not None
    return member.node.quorum.driver.state.term
