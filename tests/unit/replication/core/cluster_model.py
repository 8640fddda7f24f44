"""A cluster with one partition, a network that delays, doubles and drops, and faults; all from one seed."""

import random
from collections.abc import Callable

from quorate.kernel.ids import NodeId
from quorate.replication.core.leader import ReplicationConfig
from quorate.replication.core.leader_events import (
    IsrChangeOutdated,
    IsrChangeRefused,
    IsrChangeUnanswered,
    ProposeIsr,
    TimePassed,
)
from tests.unit.replication.core.checkers import BrokenPromise, Checkers
from tests.unit.replication.core.memory_log import Record
from tests.unit.replication.core.model_controller import ModelController
from tests.unit.replication.core.model_node import FetchRequest, FetchResponse, ModelNode

LAG_MS = 1_000
Proposed = tuple[NodeId, int, ProposeIsr, bool]  # Node, its life, the proposal, whether the leader still waits.


class ClusterModel:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        replicas = tuple(NodeId(node) for node in rng.sample(range(1, 20), rng.choice([3, 3, 4, 5])))
        self.min_insync_replicas = rng.choice([1, 2, 2, 3])
        self.requires_sync = rng.random() < 0.6
        config = ReplicationConfig(
            requires_sync=self.requires_sync, replica_lag_time_max_ms=LAG_MS, isr_retry_backoff_ms=rng.choice([0, 100])
        )
        self.checkers = Checkers(self.min_insync_replicas, requires_sync=self.requires_sync)
        self.controller = ModelController(replicas, rng)
        self.nodes = {node: ModelNode(node, config, self.min_insync_replicas, self.checkers) for node in replicas}
        for node, epoch in self.controller.image.broker_epochs.items():
            self.nodes[node].broker_epoch = epoch
        self.now_ms = 0
        self.messages: list[FetchRequest | FetchResponse] = []
        self.proposals: list[Proposed] = []
        #: Replicas whose disk lost what it had acknowledged, and that are not in sync again.
        self.lost: set[NodeId] = set()
        self.writes: dict[str, tuple[int, list[Record]]] = {}
        self.open_writes: dict[str, ModelNode] = {}
        self.acknowledged = 0
        self._written = 0

    def run(self, steps: int) -> None:
        actions = list(self._actions().items())
        chosen = self.rng.choices([action for action, _ in actions], [weight for _, weight in actions], k=steps)
        for action in chosen:
            action()
            self._settle()
        self._heal()

    def _actions(self) -> dict[Callable[[], None], float]:
        faults = self.rng.choice([0.3, 1, 2])
        return {
            self._deliver: 50,
            self._fetch: 40,
            self._replay: 25,
            self._produce: 14,
            self._sync: 25,
            self._decide_proposal: 12,
            self._pass_time: 8,
            self._time_out_write: 1,
            self._delete_records: 0.5,
            self._crash: 1.5 * faults,
            self._lose: 0.7 * faults,
            self._restart: 4,
            self._fence: 1.5 * faults,
            self._unfence: 4,
            self.controller.move_leadership: 1.5 * faults,
        }

    def _settle(self) -> None:
        """Collect what the last action brought about, and have it judged."""
        for node in self.nodes.values():
            for proposal in node.proposals:
                self.proposals.append((node.node_id, node.life, proposal, True))
            node.proposals.clear()
            for ack in node.ended:
                self._judge_end(ack.done, ok=ack.error is None)
            node.ended.clear()
        isr = self.controller.image.membership.isr
        self.lost -= isr
        self.checkers.in_sync_replicas_have_everything({node: self.nodes[node].log for node in isr})

    def _judge_end(self, write: str, *, ok: bool) -> None:
        self.checkers.write_ended_once(write)
        self.open_writes.pop(write, None)
        if not ok:
            return
        self.acknowledged += 1
        base, records = self.writes[write]
        logs = [node.log for node in self.nodes.values()]
        for offset, record in enumerate(records, base):
            self.checkers.acknowledged_write_is_safe(offset, record, logs, len(self.lost))

    def _any_up(self) -> ModelNode | None:
        up = [node for node in self.nodes.values() if node.is_up]
        return self.rng.choice(up) if up else None

    def _deliver(self) -> None:
        if not self.messages:
            return
        index = self.rng.randrange(len(self.messages))
        message = self.messages[index]
        if self.rng.random() > 0.1:
            self.messages.pop(index)
        if self.rng.random() > 0.1:
            self._hand_over(message)

    def _hand_over(self, message: FetchRequest | FetchResponse) -> None:
        if isinstance(message, FetchRequest):
            leader = self.nodes[message.leader]
            if leader.is_up:
                self.messages.append(leader.answer(message, self.rng.randint(1, 4), self.now_ms))
        else:
            follower = self.nodes[message.follower]
            if follower.is_up and follower.life == message.life:
                follower.take(message)

    def _fetch(self) -> None:
        node = self._any_up()
        request = node.fetch() if node else None
        if request is not None:
            self.messages.append(request)

    def _replay(self) -> None:
        node = self._any_up()
        if node is not None:
            self._replay_at(node, self.rng.randint(1, 3))

    def _replay_at(self, node: ModelNode, count: int) -> None:
        for image in self.controller.images[node.images_replayed :][:count]:
            node.replay(image, self.now_ms)

    def _produce(self) -> None:
        leaders = [node for node in self.nodes.values() if node.leader is not None]
        if not leaders:
            return
        node = self.rng.choice(leaders)
        assert node.leader is not None
        self._written += 1
        write = f"w{self._written}"
        values = [f"{write}.{part}" for part in range(self.rng.randint(1, 3))]
        epoch = node.leader.leader.leader_epoch
        self.writes[write] = (node.log.end, [(epoch, value) for value in values])
        if node.produce(values, write, self.now_ms) is not None:
            self.open_writes[write] = node

    def _sync(self) -> None:
        node = self._any_up()
        if node is not None:
            node.sync()

    def _decide_proposal(self) -> None:
        if not self.proposals:
            return
        index = self.rng.randrange(len(self.proposals))
        node_id, life, proposal, is_awaited = self.proposals.pop(index)
        node = self.nodes[node_id]
        is_awaited = is_awaited and node.is_up and node.life == life
        fate = self.rng.random()
        if fate < 0.15 and is_awaited:
            node.lead(IsrChangeUnanswered(proposal=proposal))
            self.proposals.append((node_id, life, proposal, False))  # It is only late.
            return
        if fate < 0.25:
            verdict = "refused" if self._is_current(node_id, proposal) else "outdated"
        else:
            verdict = self.controller.judge(node_id, proposal)
        if not is_awaited:
            return
        if self.rng.random() < 0.2:
            node.lead(IsrChangeUnanswered(proposal=proposal))
        elif verdict == "refused":
            node.lead(IsrChangeRefused(proposal=proposal))
        elif verdict == "outdated":
            node.lead(IsrChangeOutdated(proposal=proposal))

    def _is_current(self, node: NodeId, proposal: ProposeIsr) -> bool:
        image = self.controller.image
        return (image.leader, image.leader_epoch, image.membership.partition_epoch) == (
            node,
            proposal.leader_epoch,
            proposal.partition_epoch,
        )

    def _pass_time(self) -> None:
        self.now_ms += self.rng.choice([10, 200, LAG_MS // 2, LAG_MS + 1])
        for node in self.nodes.values():
            if self.rng.random() < 0.7:
                node.lead(TimePassed(now_ms=self.now_ms))

    def _time_out_write(self) -> None:
        if self.open_writes:
            write, node = self.rng.choice(list(self.open_writes.items()))
            if node.acks is not None:
                node.ended += node.acks.time_out(write)

    def _delete_records(self) -> None:
        leader = self.nodes.get(self.controller.image.leader or NodeId(-1))
        if leader is not None and leader.leader is not None:
            leader.log.delete_before(self.rng.randint(leader.log.start, leader.high_watermark))

    def _crash(self) -> None:
        """The process dies; with it, half of the time, the power. Without syncs that is the loss of a replica."""
        node = self._any_up()
        if node is None:
            return
        power_cut = self.rng.random() < 0.5
        if power_cut and not self.requires_sync:
            self._lose()
            return
        node.stop(self.rng)
        if power_cut:
            node.log.cut_power(self.rng)

    def _lose(self) -> None:
        """A disk loses all, or all that was not synced; at most so many as the promise allows, and never the last."""
        node = self.rng.choice(list(self.nodes.values()))
        isr = self.controller.image.membership.isr
        if len(self.lost | {node.node_id}) >= self.min_insync_replicas or not isr - {node.node_id}:
            return
        node.stop(self.rng)
        self.lost.add(node.node_id)
        self.controller.fence(node.node_id)
        if self.rng.random() < 0.5:
            node.log.start_at(0)
            node.high_watermark = 0
        else:
            node.log.cut_power(self.rng)

    def _restart(self) -> None:
        down = [node for node in self.nodes.values() if not node.is_up]
        if down:
            self._start(self.rng.choice(down))

    def _start(self, node: ModelNode) -> None:
        epoch = self.controller.register(node.node_id)
        node.start(epoch, len(self.controller.images) - 1)
        self._replay_at(node, 1)

    def _fence(self) -> None:
        self.controller.fence(self.rng.choice(list(self.nodes)))

    def _unfence(self) -> None:
        node = self._any_up()
        if node is not None:
            self.controller.unfence(node.node_id, node.broker_epoch)

    def _heal(self) -> None:
        """Without faults, everybody ends up in sync with the same log, and no write still waits."""
        for node in self.nodes.values():
            if not node.is_up:
                self._start(node)
            self.controller.unfence(node.node_id, node.broker_epoch)
        for _ in range(300):
            self._quiet_round()
            if self._has_converged():
                break
        else:
            raise BrokenPromise("without faults the replicas did not converge")
        if self.open_writes:
            raise BrokenPromise(f"{sorted(self.open_writes)} never ended")

    def _quiet_round(self) -> None:
        self.now_ms += 50
        for node in self.nodes.values():
            self._replay_at(node, len(self.controller.images))
            node.sync()
            request = node.fetch()
            if request is not None:
                self.messages.append(request)
            node.lead(TimePassed(now_ms=self.now_ms))
            self._settle()
        while self.messages:
            self._hand_over(self.messages.pop(0))
            self._settle()
        while self.proposals:
            node_id, life, proposal, is_awaited = self.proposals.pop(0)
            verdict = self.controller.judge(node_id, proposal)
            node = self.nodes[node_id]
            if is_awaited and node.life == life and verdict != "accepted":
                fate = IsrChangeRefused if verdict == "refused" else IsrChangeOutdated
                node.lead(fate(proposal=proposal))
            self._settle()

    def _has_converged(self) -> bool:
        image = self.controller.image
        if image.leader is None or len(image.membership.isr) < len(self.nodes):
            return False
        leader = self.nodes[image.leader]
        return all(self._equals(node, leader) for node in self.nodes.values())

    def _equals(self, node: ModelNode, leader: ModelNode) -> bool:
        start = max(node.log.start, leader.log.start)
        return (
            node.high_watermark == leader.log.end == node.log.end
            and node.log.records[start - node.log.start :] == leader.log.records[start - leader.log.start :]
        )
