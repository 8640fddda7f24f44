"""Where the words of two nodes differ."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from quorate.cli.doctor.belief import Belief
from quorate.cli.doctor.facts import FoundCoordinator, LeaderClaim, NodeAnswers, QuorumClaim, claim_of
from quorate.cli.doctor.finding import DoctorFinding, Kind
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NodeId, TopicPartition

V = TypeVar("V", bound=Hashable)


def cluster_id_disagreements(answers: Sequence[NodeAnswers]) -> Iterator[DoctorFinding]:
    said = {answer.node_id: answer.metadata.cluster_id for answer in answers}
    return _odd_ones(said, "cluster", lambda cluster_id: f"says that its id is {cluster_id}")


def address_disagreements(answers: Sequence[NodeAnswers]) -> Iterator[DoctorFinding]:
    for broker_id in sorted({broker for answer in answers for broker in answer.metadata.brokers}):
        said = {
            answer.node_id: str(answer.metadata.brokers[broker_id].address)
            for answer in answers
            if broker_id in answer.metadata.brokers
        }
        yield from _odd_ones(said, f"node {broker_id}", lambda address: f"says that it is at {address}")


def fencing_disagreements(answers: Sequence[NodeAnswers]) -> Iterator[DoctorFinding]:
    telling = [answer for answer in answers if answer.fenced]
    for broker_id in sorted({broker for answer in telling for broker in answer.fenced}):
        said = {answer.node_id: answer.fenced.get(broker_id) for answer in telling}
        yield from _odd_ones(said, f"node {broker_id}", _fencing_text)


def _fencing_text(is_fenced: bool | None) -> str:
    return "does not know it" if is_fenced is None else f"says that it is {'fenced' if is_fenced else 'live'}"


def topic_disagreements(answers: Sequence[NodeAnswers]) -> Iterator[DoctorFinding]:
    """Whether it exists, under which id, and how many partitions it has."""
    for topic in sorted({topic for answer in answers for topic in answer.metadata.topics}):
        said = {answer.node_id: _topic_text(answer, topic) for answer in answers}
        yield from _odd_ones(said, str(topic), str)


def _topic_text(answer: NodeAnswers, name: str) -> str:
    found = next((topic for topic in answer.metadata.topics.values() if topic.name == name), None)
    if found is None:
        return "does not know the topic"
    return f"says that it has id {found.topic_id} and {len(found.partitions)} partitions"


def leader_disagreements(
    answers: Sequence[NodeAnswers], beliefs: Mapping[TopicPartition, Belief]
) -> Iterator[DoctorFinding]:
    for answer in answers:
        for name, topic_id, partition in answer.partitions():
            belief, claim = beliefs[name], claim_of(partition)
            if claim != belief.claim and topic_id == belief.topic_id:
                text = f"node {answer.node_id} says {claim}, node {belief.nodes[0]} says {belief.claim}"
                yield DoctorFinding(
                    kind=Kind.LEADER,
                    subject=str(name),
                    text=text,
                    node_id=answer.node_id,
                    held=str(claim),
                    is_certain=contradicts(claim, belief.claim),
                )


def contradicts(one: LeaderClaim, other: LeaderClaim) -> bool:
    """Two leaders for one epoch, which no delay explains. "Nobody" may be a leader that has just died."""
    is_same_epoch = one.leader_epoch == other.leader_epoch >= 0
    return is_same_epoch and None not in (one.leader, other.leader) and one.leader != other.leader


def replica_disagreements(
    answers: Sequence[NodeAnswers], beliefs: Mapping[TopicPartition, Belief]
) -> Iterator[DoctorFinding]:
    """Of nodes that agree on the leader: those that lag behind in that are told already."""
    for name, belief in beliefs.items():
        agreeing = [answer for answer in answers if answer.node_id in belief.nodes]
        said = {answer.node_id: answer.metadata.topics[name.topic].partitions[name.partition] for answer in agreeing}
        replicas = {node: partition.replicas for node, partition in said.items()}
        isr = {node: tuple(sorted(partition.isr)) for node, partition in said.items()}
        yield from _odd_ones(replicas, str(name), lambda ids: f"says replicas {_ids(ids)}")
        yield from _odd_ones(isr, str(name), lambda ids: f"says in sync {_ids(ids)}")


def _ids(nodes: Sequence[NodeId]) -> str:
    return ",".join(map(str, nodes)) or "none"


def quorum_disagreements(answers: Sequence[NodeAnswers]) -> Iterator[DoctorFinding]:
    said = {answer.node_id: answer.quorum for answer in answers if answer.quorum is not None}
    newest = max((claim.term for claim in said.values() if claim.leader is not None), default=None)
    leading = [node for node, claim in said.items() if claim.leader is not None and claim.term == newest]
    if not leading:
        return
    reference = Counter(said[node] for node in leading).most_common(1)[0][0]
    witness = next(node for node in leading if said[node] == reference)
    for node, claim in said.items():
        if claim != reference:
            yield DoctorFinding(
                kind=Kind.QUORUM,
                subject="quorum",
                text=f"node {node} {_quorum_text(claim)}, node {witness} {_quorum_text(reference)}",
                node_id=node,
                held=_quorum_text(claim),
                is_certain=claim.leader is not None and claim.term == reference.term,
            )


def _quorum_text(claim: QuorumClaim) -> str:
    return "finds no leader" if claim.leader is None else f"says leader {claim.leader} (term {claim.term})"


def coordinator_disagreements(
    found: Sequence[FoundCoordinator], beliefs: Mapping[TopicPartition, Belief]
) -> Iterator[DoctorFinding]:
    """A group's coordinator is who leads its partition of __consumer_offsets, whoever is asked."""
    for each in found:
        belief = beliefs.get(each.partition)
        if belief is None or belief.claim.leader is None:
            continue
        leads = f"{each.partition} has {belief.claim}"
        if each.outcome is not ErrorCode.NONE:
            text = f"node {each.node_id} names no coordinator for group {each.group_id}: {each.outcome.name}; {leads}"
        elif each.coordinator != belief.claim.leader:
            text = f"node {each.node_id} names node {each.coordinator} for group {each.group_id}; {leads}"
        else:
            continue
        yield DoctorFinding(
            kind=Kind.COORDINATOR,
            subject=str(each.partition),
            text=text,
            node_id=each.node_id,
            held=f"{each.outcome.name} {each.coordinator}",
        )


def _odd_ones(said: Mapping[NodeId, V], subject: str, words: Callable[[V], str]) -> Iterator[DoctorFinding]:
    """Those that say other than most do."""
    if len(set(said.values())) <= 1:
        return
    reference = Counter(said.values()).most_common(1)[0][0]
    witness = next(node for node, value in said.items() if value == reference)
    for node, value in said.items():
        if value != reference:
            yield DoctorFinding(
                kind=Kind.METADATA,
                subject=subject,
                text=f"node {node} {words(value)}, node {witness} {words(reference)}",
                node_id=node,
                held=words(value),
            )
