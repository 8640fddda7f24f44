"""Replays a conversation script: a text that says what happens to some nodes, and what they then do.

A line "> command" is something that happens; the indented lines below it are what it causes, in order. "#" starts a
remark. Every Ready is carried out at once, and messages wait on their link until a command delivers or drops them.

    > nodes 1 2 3            voters of a new quorum; the clock stands at 0
    > quorum 1 2 3           the same, and node 1 was elected already
    > singly                 from now on new nodes send one entry in an append
    > joiner 4               a node that knows no quorum yet
    > tick 1                 the clock goes to node 1's next deadline, and node 1 alone is told
    > wait 700               the clock goes on, and nobody is told
    > deliver                all messages, and those they cause, until it is quiet
    > deliver 1->2           what waits on that link now, but not what it causes
    > drop 1->2              lose what waits on that link
    > cut 1 | 2 3            messages between the two groups are lost from now on
    > heal                   no longer
    > lose 2 1               node 2 finds its connection to node 1 ended and refused
    > reach 2 1              node 2 has a connection to node 1
    > propose 1 x            also: read 1, transfer 1 2, add 1 4, promote 1 4, remove 1 3
    > compact 1              node 1 makes a snapshot of what it has applied
    > crash 1                also: restart 1
    > damage 1 2             of what node 1, which crashed, has in its log only the first 2 entries can be read
    > logs                   shows each log: committed entries | the others
"""

import msgspec

from quorate.kernel.ids import NodeId, Offset
from quorate.quorum.core.config import RaftConfig
from quorate.quorum.core.entries import Snapshot
from quorate.quorum.core.events import (
    Compact,
    MessageReceived,
    PeerDied,
    PeerReachable,
    Propose,
    ProposeMembership,
    RaftEvent,
    ReadIndex,
    Tick,
    TransferLeadership,
)
from quorate.quorum.core.membership import AddLearner, Member, Membership, PromoteLearner, RemoveMember
from quorate.quorum.core.messages import Message, decode_message, encode_message
from quorate.quorum.core.node import RaftNode
from quorate.quorum.core.ready import Ready
from tests.unit.quorum.core.simulated_disk import SimulatedDisk
from tests.unit.quorum.core.wording import entry_words, membership_words, message_words, outcome_words, state_words

Link = tuple[NodeId, NodeId]
CONFIG = RaftConfig(entries_kept_behind_snapshot=0)


def replay(script: str) -> str:
    """The script as it should read: its own commands and remarks, with what really happens below them."""
    conversation = Conversation()
    lines: list[str] = []
    for line in script.splitlines():
        if line.startswith("> "):
            lines.append(line)
            lines += [f"  {words}" for words in conversation.run(line[2:])]
        elif not line.startswith("  "):
            lines.append(line)
    return "\n".join(lines) + "\n"


class Conversation:
    def __init__(self) -> None:
        self._config = CONFIG
        self._now_ms = 0
        self._bootstraps: dict[NodeId, Membership] = {}
        self._nodes: dict[NodeId, RaftNode] = {}
        self._disks: dict[NodeId, SimulatedDisk] = {}
        self._applied: dict[NodeId, Offset] = {}
        self._waiting: list[Message] = []
        self._cut: set[Link] = set()
        self._asked: dict[int, str] = {}
        self._said: list[str] = []

    def run(self, command: str) -> list[str]:
        """Carry out one command; return what it caused, a line each."""
        self._said = []
        name, *arguments = command.split()
        getattr(self, f"_do_{name}")(*arguments)
        return self._said

    def _do_nodes(self, *names: str) -> None:
        voters = Membership.of(Member(_id(name), f"host-{name}", is_voter=True) for name in names)
        for name in names:
            self._start(_id(name), voters)

    def _do_quorum(self, *names: str) -> None:
        self._do_nodes(*names)
        self._do_tick(names[0])
        self._do_deliver()
        self._said.clear()

    def _do_singly(self) -> None:
        self._config = msgspec.structs.replace(CONFIG, max_entries_bytes_per_append=0)

    def _do_joiner(self, name: str) -> None:
        self._start(_id(name), Membership())

    def _do_tick(self, name: str) -> None:
        deadline_ms = self._nodes[_id(name)].next_deadline_ms
        if deadline_ms is None:
            self._said.append(f"{name} waits for nothing")
            return
        self._now_ms = max(self._now_ms, deadline_ms)
        self._step(_id(name), Tick(now_ms=self._now_ms))

    def _do_wait(self, duration_ms: str) -> None:
        self._now_ms += int(duration_ms)

    def _do_deliver(self, link: str | None = None) -> None:
        if link is not None:
            for message in self._take(link):
                self._deliver(message)
            return
        while self._waiting:
            self._deliver(self._waiting.pop(0))

    def _do_drop(self, link: str) -> None:
        self._said += [f"lost: {message_words(message)}" for message in self._take(link)]

    def _do_cut(self, *names: str) -> None:
        border = names.index("|")
        for one in names[:border]:
            for other in names[border + 1 :]:
                self._cut |= {(_id(one), _id(other)), (_id(other), _id(one))}

    def _do_heal(self) -> None:
        self._cut.clear()

    def _do_lose(self, name: str, peer: str) -> None:
        self._step(_id(name), PeerDied(now_ms=self._now_ms, peer=_id(peer)))

    def _do_reach(self, name: str, peer: str) -> None:
        self._step(_id(name), PeerReachable(now_ms=self._now_ms, peer=_id(peer)))

    def _do_propose(self, name: str, payload: str) -> None:
        ticket = self._ticket(f"proposal {payload}")
        self._step(_id(name), Propose(now_ms=self._now_ms, payload=payload.encode(), ticket=ticket))

    def _do_read(self, name: str) -> None:
        self._step(_id(name), ReadIndex(now_ms=self._now_ms, ticket=self._ticket("read")))

    def _do_transfer(self, name: str, target: str) -> None:
        ticket = self._ticket(f"transfer to {target}")
        self._step(_id(name), TransferLeadership(now_ms=self._now_ms, target=_id(target), ticket=ticket))

    def _do_add(self, name: str, learner: str) -> None:
        self._change(name, f"add {learner}", AddLearner(_id(learner), f"host-{learner}"))

    def _do_promote(self, name: str, learner: str) -> None:
        self._change(name, f"promote {learner}", PromoteLearner(_id(learner)))

    def _do_remove(self, name: str, member: str) -> None:
        self._change(name, f"remove {member}", RemoveMember(_id(member)))

    def _do_compact(self, name: str) -> None:
        node_id = _id(name)
        meta = self._nodes[node_id].snapshot_meta(self._applied[node_id])
        assert meta is not None
        snapshot = Snapshot(meta, b"")
        self._disks[node_id].save_snapshot(snapshot, trim=True)
        self._step(node_id, Compact(now_ms=self._now_ms, snapshot=snapshot))

    def _do_crash(self, name: str) -> None:
        del self._nodes[_id(name)]

    def _do_restart(self, name: str) -> None:
        self._start(_id(name), self._bootstraps[_id(name)])

    def _do_damage(self, name: str, kept_entries: str) -> None:
        self._disks[_id(name)].damage(int(kept_entries))

    def _do_logs(self) -> None:
        for node_id, node in sorted(self._nodes.items()):
            log = node._state.log
            words = [f"{node_id}:"]
            words += [f"(snapshot up to {log.start_offset})"] if log.start_offset else []
            words += [entry_words(entry) for entry in log.read(log.start_offset, log.high_watermark)]
            words += ["|", *(entry_words(entry) for entry in log.read(log.high_watermark, log.log_end_offset))]
            self._said.append(" ".join(words))

    def _start(self, node_id: NodeId, bootstrap: Membership) -> None:
        disk = self._disks.setdefault(node_id, SimulatedDisk())
        self._bootstraps[node_id] = bootstrap
        self._nodes[node_id] = RaftNode(
            node_id=node_id,
            config=self._config,
            jitter=lambda: 0.0,
            now_ms=self._now_ms,
            bootstrap=bootstrap,
            hard_state=disk.hard_state,
            snapshot=disk.snapshot,
            entries=disk.entries,
            lost_log=disk.lost_log,
        )
        self._applied[node_id] = disk.snapshot.meta.end_offset if disk.snapshot else Offset(0)
        self._carry_out(node_id)

    def _change(self, name: str, words: str, change: AddLearner | PromoteLearner | RemoveMember) -> None:
        self._step(_id(name), ProposeMembership(now_ms=self._now_ms, change=change, ticket=self._ticket(words)))

    def _step(self, node_id: NodeId, event: RaftEvent) -> None:
        self._nodes[node_id].step(event)
        self._carry_out(node_id)

    def _carry_out(self, node_id: NodeId) -> None:
        node = self._nodes[node_id]
        while (ready := node.ready()) is not None:
            self._disks[node_id].persist(ready)
            self._tell(node_id, ready)
            for message in [*ready.early_messages, *ready.messages]:
                self._send(message)
            node.advance(ready)

    def _tell(self, node_id: NodeId, ready: Ready) -> None:
        if ready.quorum_state is not None:
            self._said.append(f"{node_id} is {state_words(ready.quorum_state)}")
        if ready.snapshot is not None:
            meta = ready.snapshot.meta
            self._said.append(
                f"{node_id} installs the snapshot up to {meta.end_offset}, {membership_words(meta.membership)}"
            )
            self._applied[node_id] = meta.end_offset
        if ready.committed:
            self._said.append(f"{node_id} applies {' '.join(entry_words(entry) for entry in ready.committed)}")
            self._applied[node_id] = Offset(ready.committed[-1].offset + 1)
        if ready.is_recovered:
            self._said.append(f"{node_id} has its log again")
        for outcome in ready.finished:
            self._said.append(f"{node_id} says of {self._asked[outcome.ticket]}: {outcome_words(outcome)}")

    def _send(self, message: Message) -> None:
        self._said.append(message_words(message))
        if (message.sender, message.receiver) not in self._cut:
            self._waiting.append(message)

    def _deliver(self, message: Message) -> None:
        if message.receiver in self._nodes:
            received = decode_message(encode_message(message))
            self._step(message.receiver, MessageReceived(now_ms=self._now_ms, message=received))

    def _take(self, link: str) -> list[Message]:
        sender, receiver = (_id(name) for name in link.split("->"))
        taken = [message for message in self._waiting if (message.sender, message.receiver) == (sender, receiver)]
        self._waiting = [message for message in self._waiting if message not in taken]
        return taken

    def _ticket(self, words: str) -> int:
        ticket = len(self._asked) + 1
        self._asked[ticket] = words
        return ticket


def _id(name: str) -> NodeId:
    return NodeId(int(name))
