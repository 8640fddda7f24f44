"""A whole quorum in one thread and one seed: nodes, disks that forget, and a network that loses, repeats and reorders.

Everything is an event in one queue of virtual time; the same seed gives the same run.
"""

import heapq
from collections.abc import Callable
from random import Random

from quorate.kernel.ids import NodeId, Offset
from quorate.quorum.core.config import RaftConfig
from quorate.quorum.core.entries import NO_TERM, Entry, Snapshot
from quorate.quorum.core.events import Compact, MessageReceived, RaftEvent, Tick
from quorate.quorum.core.membership import Member, Membership
from quorate.quorum.core.messages import AppendRequest, Message
from quorate.quorum.core.node import RaftNode
from quorate.quorum.core.outcomes import ReadReady
from quorate.quorum.core.ready import Ready, Role
from tests.unit.quorum.core.checkers import (
    START,
    ElectionSafety,
    LeaderCompleteness,
    LinearizableReads,
    LogMatching,
    ProposalFates,
    StateMachineSafety,
)
from tests.unit.quorum.core.simulated_disk import SimulatedDisk


class Checkers:
    def __init__(self) -> None:
        self.election_safety = ElectionSafety()
        self.log_matching = LogMatching()
        self.state_machine_safety = StateMachineSafety()
        self.leader_completeness = LeaderCompleteness()
        self.linearizable_reads = LinearizableReads()
        self.proposal_fates = ProposalFates()


class SimulatedNode:
    """The shell around one node: what the broker does with real files and sockets."""

    def __init__(self, simulation: "Simulation", node_id: NodeId, bootstrap: Membership) -> None:
        self._simulation = simulation
        self.node_id = node_id
        self._bootstrap = bootstrap
        self.may_vote = node_id in bootstrap.voters
        self._disk = SimulatedDisk()
        self._out: Ready | None = None
        self._tick_at_ms: int | None = None
        self.life = 0  # Grows with every crash, so that what was under way ends with it.
        self.node: RaftNode | None = None
        self.applied_end_offset = Offset(0)
        self._digest = START

    def start(self) -> None:
        simulation, disk = self._simulation, self._disk
        self.node = RaftNode(
            node_id=self.node_id,
            config=simulation.config,
            jitter=simulation.random.random,
            now_ms=simulation.now_ms,
            bootstrap=self._bootstrap,
            hard_state=disk.hard_state,
            snapshot=disk.snapshot,
            entries=disk.entries,
            lost_log=disk.lost_log,
        )
        self.applied_end_offset, self._digest = Offset(0), START
        if disk.snapshot is not None:
            self._restore(disk.snapshot)
        self._pump()

    def crash(self) -> None:
        if self._out is not None:
            self._disk.persist_part(self._out, self._simulation.random)
        self.node, self._out, self._tick_at_ms = None, None, None
        self.life += 1

    def damage(self) -> None:
        """Of what its disk holds a part cannot be read any more; the vote, of which there are two copies, still can."""
        assert self.node is None, "the node runs"
        random, disk = self._simulation.random, self._disk
        disk.damage(random.randint(0, len(disk.entries)), keeps_snapshot=random.random() < 0.7)

    @property
    def is_recovering(self) -> bool:
        return self._disk.lost_log is not None

    def step(self, event: RaftEvent) -> None:
        if self.node is not None:
            self.node.step(event)
            self._pump()

    def compact(self) -> None:
        if self.node is None or self._out is not None:
            return
        meta = self.node.snapshot_meta(self.applied_end_offset)
        if meta is None or meta.end_offset == 0:
            return
        snapshot = Snapshot(meta, self._digest)
        if self._disk.snapshot is None or self._disk.snapshot.meta.end_offset < meta.end_offset:
            self._disk.save_snapshot(snapshot, trim=self._simulation.random.random() < 0.8)
            self.step(Compact(now_ms=self._simulation.now_ms, snapshot=snapshot))

    def _pump(self) -> None:
        node, simulation = self.node, self._simulation
        assert node is not None
        if simulation.checkers.election_safety.observe(self.node_id, node):
            simulation.checkers.leader_completeness.observe(node, simulation.committed)
        if self._out is None:
            self._out = node.ready()
            if self._out is not None:
                simulation.send(self._out.early_messages)
                simulation.later(self, simulation.disk_delay_ms(self._out), self._carry_out)
        deadline_ms = node.next_deadline_ms
        if deadline_ms is not None and deadline_ms != self._tick_at_ms:
            self._tick_at_ms = deadline_ms
            simulation.later(self, max(0, deadline_ms - simulation.now_ms), self._tick)

    def _tick(self) -> None:
        self._tick_at_ms = None
        self.step(Tick(now_ms=self._simulation.now_ms))

    def _carry_out(self) -> None:
        ready, self._out = self._out, None
        assert ready is not None
        assert self.node is not None
        self._check_entries(ready)
        self._disk.persist(ready)
        self._simulation.send(ready.messages)
        self._apply(ready)
        self.node.advance(ready)
        self._pump()

    def _check_entries(self, ready: Ready) -> None:
        if ready.entries:
            held = {entry.offset: entry.term for entry in self._disk.entries}
            first_offset = ready.entries[0].offset
            snapshot = ready.snapshot or self._disk.snapshot
            before = NO_TERM
            if snapshot is not None and snapshot.meta.end_offset == first_offset:
                before = snapshot.meta.last_term
            elif first_offset > 0:
                before = held[Offset(first_offset - 1)]
            self._simulation.checkers.log_matching.observe(ready.entries, before)

    def _apply(self, ready: Ready) -> None:
        checkers = self._simulation.checkers
        if ready.snapshot is not None:
            self._restore(ready.snapshot)
        for entry in ready.committed:
            assert entry.offset == self.applied_end_offset, "an entry is applied twice, or one was left out"
            self._digest = checkers.state_machine_safety.apply(entry, self._digest)
            self.applied_end_offset = Offset(entry.offset + 1)
        for outcome in ready.finished:
            checkers.proposal_fates.observe(outcome, self._simulation.committed)
            if isinstance(outcome, ReadReady):
                checkers.linearizable_reads.answer(outcome, self.applied_end_offset)

    def _restore(self, snapshot: Snapshot) -> None:
        self._simulation.checkers.state_machine_safety.restore(snapshot.meta.end_offset, snapshot.payload)
        self.applied_end_offset, self._digest = snapshot.meta.end_offset, snapshot.payload


class Simulation:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.now_ms = 0
        self.checkers = Checkers()
        unrest = random.choice([1, 4])  # Shorter timeouts make for more elections between the same faults.
        self.config = RaftConfig(
            election_timeout_min_ms=600 // unrest,
            election_timeout_max_ms=1_200 // unrest,
            heartbeat_interval_ms=150 // unrest,
            quorum_check_interval_ms=1_200 // unrest,
            pre_vote_timeout_min_ms=150 // unrest,
            pre_vote_timeout_max_ms=300 // unrest,
            max_entries_bytes_per_append=random.choice([1, 30, 1 << 20]),
            max_appends_in_flight=random.choice([1, 2, 64]),
            entries_kept_behind_snapshot=random.choice([0, 2, 10]),
            max_promotion_lag_entries=5,
            snapshot_retry_ms=500,
        )
        self.loss = random.choice([0.0, 0.02, 0.1, 0.3])
        self.repetition = random.choice([0.0, 0.05, 0.2])
        self.max_delay_ms = random.choice([3, 20, 200])
        self.max_disk_delay_ms = random.choice([1, 10, 100])
        self.cut_links: set[tuple[NodeId, NodeId]] = set()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0
        voters = [NodeId(number) for number in range(1, random.choice([1, 2, 3, 3, 3, 5]) + 1)]
        bootstrap = Membership.of(Member(voter, f"node-{voter}:9192", is_voter=True) for voter in voters)
        joiners = [NodeId(len(voters) + 1), NodeId(len(voters) + 2)]
        self.nodes = {id_: SimulatedNode(self, id_, bootstrap) for id_ in voters}
        self.nodes |= {id_: SimulatedNode(self, id_, Membership()) for id_ in joiners}
        for node in self.nodes.values():
            node.start()

    @property
    def committed(self) -> list[Entry]:
        return self.checkers.state_machine_safety.committed

    @property
    def leaders(self) -> list[SimulatedNode]:
        """Those that believe to lead, the true one last."""
        leaders = [
            (node.node.quorum_state.term, node)
            for node in self.nodes.values()
            if node.node is not None and node.node.quorum_state.role is Role.LEADER
        ]
        return [leader for _, leader in sorted(leaders, key=lambda pair: pair[0])]

    @property
    def leader(self) -> SimulatedNode | None:
        return self.leaders[-1] if self.leaders else None

    def run_until(self, end_ms: int) -> None:
        while self._queue and self._queue[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._queue)
            action()
        self.now_ms = end_ms

    def later(self, node: SimulatedNode, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something in the node's present life."""
        life = node.life

        def act_if_alive() -> None:
            if node.life == life:
                action()

        self._at(self.now_ms + delay_ms, act_if_alive)

    def send(self, messages: list[Message] | list[AppendRequest]) -> None:
        for message in messages:
            if (message.sender, message.receiver) in self.cut_links or self.random.random() < self.loss:
                continue
            self._deliver_later(message)
            if self.random.random() < self.repetition:
                self._deliver_later(message)

    def disk_delay_ms(self, ready: Ready) -> int:
        writes = ready.hard_state or ready.snapshot or ready.entries
        return self.random.randint(0, self.max_disk_delay_ms) if writes else 0

    def heal(self) -> None:
        """End all faults."""
        self.cut_links.clear()
        self.loss = self.repetition = 0.0
        self.max_delay_ms, self.max_disk_delay_ms = 5, 5
        for node in self.nodes.values():
            if node.node is None:
                node.start()

    def _deliver_later(self, message: Message) -> None:
        receiver = self.nodes[message.receiver]

        def deliver() -> None:  # Perhaps to a later life of the receiver.
            if receiver.node is not None:
                assert receiver.node.objection_to(message, self.now_ms) is None, "sound nodes are never objected to"
            receiver.step(MessageReceived(now_ms=self.now_ms, message=message))

        self._at(self.now_ms + self.random.randint(0, self.max_delay_ms), deliver)

    def _at(self, time_ms: int, action: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (time_ms, self._sequence, action))
