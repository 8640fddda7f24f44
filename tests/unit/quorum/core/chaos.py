"""What goes wrong in a simulated quorum, and what it is asked meanwhile: all by the seed."""

from quorate.quorum.core.events import (
    PeerDied,
    PeerReachable,
    Propose,
    ProposeMembership,
    ReadIndex,
    TransferLeadership,
)
from quorate.quorum.core.membership import AddLearner, DemoteVoter, MembershipChange, PromoteLearner, RemoveMember
from tests.unit.quorum.core.simulation import SimulatedNode, Simulation

RECOVERY_MS = 20_000


class Chaos:
    def __init__(self, seed: int, *, damages_disks: bool = False) -> None:
        self.simulation = Simulation(seed)
        self._random = self.simulation.random
        self._ticket = 0
        self._actions = [
            (self._propose, 12),
            (self._read, 6),
            (self._change_membership, 0 if damages_disks else 3),
            (self._damage, 4 if damages_disks else 0),
            (self._transfer, 1),
            (self._compact, 2),
            (self._crash, self._random.choice([0, 1, 3])),
            (self._restart, 3),
            (self._cut_links, self._random.choice([0, 1, 2])),
            (self._heal_links, 1),
            (self._lose_connection, 1),
            (self._reach_peer, 1),
        ]

    def run(self, duration_ms: int) -> None:
        """Do harm for a while, then stop, and see that the quorum comes back with nothing lost."""
        simulation = self.simulation
        actions, weights = zip(*self._actions, strict=True)
        while simulation.now_ms < duration_ms:
            simulation.run_until(simulation.now_ms + self._random.randint(1, 80))
            self._random.choices(actions, weights)[0]()
        simulation.heal()
        self._await_recovery()
        simulation.checkers.proposal_fates.check_at_end(simulation.committed)

    def _await_recovery(self) -> None:
        simulation = self.simulation
        deadline_ms = simulation.now_ms + RECOVERY_MS
        wanted = simulation.checkers.proposal_fates.committed_count + 1
        while simulation.checkers.proposal_fates.committed_count < wanted or not self._members_agree():
            assert simulation.now_ms < deadline_ms, "the quorum does not come back after all faults have ended"
            simulation.run_until(simulation.now_ms + 100)
            if simulation.checkers.proposal_fates.committed_count < wanted and simulation.leader is not None:
                self._propose_at(simulation.leader)

    def _members_agree(self) -> bool:
        simulation = self.simulation
        if simulation.leader is None or simulation.leader.node is None:
            return False
        return all(
            simulation.nodes[node_id].applied_end_offset == len(simulation.committed)
            for node_id in simulation.leader.node.membership.node_ids
        )

    def _next_ticket(self) -> int:
        self._ticket += 1
        return self._ticket

    def _some_node(self) -> SimulatedNode:
        """A node that believes to lead, mostly."""
        leaders = self.simulation.leaders
        if leaders and self._random.random() < 0.8:
            return self._random.choice(leaders)
        return self._random.choice(list(self.simulation.nodes.values()))

    def _propose(self) -> None:
        self._propose_at(self._some_node())

    def _propose_at(self, node: SimulatedNode) -> None:
        ticket = self._next_ticket()
        payload = b"command %d" % ticket
        self.simulation.checkers.proposal_fates.ask(ticket, payload)
        node.step(Propose(now_ms=self.simulation.now_ms, payload=payload, ticket=ticket))

    def _read(self) -> None:
        ticket = self._next_ticket()
        self.simulation.checkers.linearizable_reads.ask(ticket, len(self.simulation.committed))
        self._some_node().step(ReadIndex(now_ms=self.simulation.now_ms, ticket=ticket))

    def _change_membership(self) -> None:
        node_id = self._random.choice(list(self.simulation.nodes))
        changes: list[MembershipChange] = [
            AddLearner(node_id, f"node-{node_id}:9192"),
            PromoteLearner(node_id),
            PromoteLearner(node_id),
            DemoteVoter(node_id),
            RemoveMember(node_id),
        ]
        event = ProposeMembership(
            now_ms=self.simulation.now_ms, change=self._random.choice(changes), ticket=self._next_ticket()
        )
        self._some_node().step(event)

    def _transfer(self) -> None:
        target = self._random.choice(list(self.simulation.nodes))
        event = TransferLeadership(now_ms=self.simulation.now_ms, target=target, ticket=self._next_ticket())
        self._some_node().step(event)

    def _compact(self) -> None:
        self._random.choice(list(self.simulation.nodes.values())).compact()

    def _crash(self) -> None:
        node = self._some_node()
        if node.node is not None:
            node.crash()

    def _damage(self) -> None:
        """Of a node that is down, as long as a majority is sound: what is damaged there can be had from no other node.

        One crash in two leaves it to ``_crash`` to have taken the node down; else the node goes down for it.
        """
        nodes = [node for node in self.simulation.nodes.values() if node.may_vote]
        damaged = [node for node in nodes if node.is_recovering]
        node = self._random.choice(damaged or nodes)
        if node in damaged or len(damaged) < (len(nodes) - 1) // 2:
            if node.node is not None:
                node.crash()
            node.damage()
            if self._random.random() < 0.5:
                node.start()

    def _restart(self) -> None:
        for node in self.simulation.nodes.values():
            if node.node is None and self._random.random() < 0.5:
                node.start()

    def _cut_links(self) -> None:
        """A link one way, or a group of nodes from the others, and the leader perhaps alone."""
        nodes = list(self.simulation.nodes)
        kind = self._random.random()
        if kind < 0.3:
            self.simulation.cut_links.add((self._random.choice(nodes), self._random.choice(nodes)))
            return
        group = {self._some_node().node_id}
        if kind < 0.6:
            group = set(self._random.sample(nodes, self._random.randint(1, len(nodes) - 1)))
        for node in nodes:
            self.simulation.cut_links |= {(node, other) for other in nodes if (node in group) != (other in group)}

    def _heal_links(self) -> None:
        self.simulation.cut_links.clear()

    def _lose_connection(self) -> None:
        """A notice that may be wrong: nothing unsafe may come of it."""
        peer = self._random.choice(list(self.simulation.nodes))
        node = self._random.choice(list(self.simulation.nodes.values()))
        node.step(PeerDied(now_ms=self.simulation.now_ms, peer=peer))

    def _reach_peer(self) -> None:
        """Likewise."""
        peer = self._random.choice(list(self.simulation.nodes))
        node = self._random.choice(list(self.simulation.nodes.values()))
        node.step(PeerReachable(now_ms=self.simulation.now_ms, peer=peer))
