"""From what was seen to what is wrong.

Nodes hear of a change one after the other, so most differences mean nothing until they last: ``lasting`` keeps those
that every look shows. Two leaders for one epoch are wrong at once, also when one node said so in an earlier look.

What differs is the words of two nodes, or what a node did when a claim was tried. Whoever is named as leader must
accept, everybody else must refuse and, where the answer has room for it, name the leader. "Accept" means that the
answer came from behind the check of leadership: the write is one that no leader takes.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from quorate.cli.doctor.findings import DoctorFinding, FindingSeverity, Kind, by_weight
from quorate.cli.doctor.observations import (
    Attempt,
    FoundCoordinator,
    LeaderClaim,
    Look,
    NewestClaim,
    NodeAnswers,
    QuorumClaim,
    Trial,
    claim_of,
    newest_claims,
)
from quorate.cli.terminal import counted
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from quorate.replication.core.leader import effective_min_isr

V = TypeVar("V", bound=Hashable)
_ACCEPTED: Final[Mapping[Attempt, frozenset[ErrorCode]]] = {
    # The offset is checked after the leadership; retention or a new leader may have moved it since it was asked for.
    Attempt.FETCH: frozenset({ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE}),
    # Too few in sync is told as a state of the partition.
    Attempt.WRITE: frozenset(
        {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE}
    ),
    Attempt.GROUP_REQUEST: frozenset({ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}),
}
_REFUSED: Final[Mapping[Attempt, frozenset[ErrorCode]]] = {
    Attempt.FETCH: frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER}),
    Attempt.WRITE: frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER}),
    Attempt.GROUP_REQUEST: frozenset({ErrorCode.NOT_COORDINATOR}),
}
_FORBIDDEN: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
_VERBS: Final = {
    Attempt.FETCH: "fetches",
    Attempt.WRITE: "writes",
    Attempt.GROUP_REQUEST: "group requests",
}


def lasting(looks: Sequence[Look]) -> list[DoctorFinding]:
    """What the last look shows and all before it did too, and what is certain from any of them."""
    each = [diagnose(look) for look in looks]
    shared = set.intersection(*({finding.identity for finding in findings} for findings in each))
    found = {finding.identity: finding for finding in each[-1] if finding.identity in shared}
    for finding in (finding for findings in each for finding in findings if finding.is_certain):
        found.setdefault(finding.identity, finding)
    told = {finding.subject for finding in found.values() if finding.kind is Kind.LEADER and finding.is_certain}
    over_time = [finding for finding in _contradictions_over_time(looks) if finding.subject not in told]
    return by_weight([*found.values(), *over_time])


def diagnose(look: Look) -> list[DoctorFinding]:
    """Everything that this look shows, passing or not."""
    newest = newest_claims(look.answers)
    return [
        *_silent_nodes(look),
        *_reported_problems(look),
        *_fenced_nodes(look),
        *_leaderless_quorum(look),
        *_cluster_id_disagreements(look.answers),
        *_quorum_disagreements(look.answers),
        *_address_disagreements(look.answers),
        *_fencing_disagreements(look.answers),
        *_topic_disagreements(look.answers),
        *_leader_disagreements(look.answers, newest),
        *_replica_disagreements(look.answers, newest),
        *_coordinator_disagreements(look.coordinators, newest),
        *_judge_trials(look.trials, newest, len(look.answers)),
        *_partition_states(look, newest),
    ]


def _contradictions_over_time(looks: Sequence[Look]) -> Iterator[DoctorFinding]:
    """An epoch has one leader for ever: two that were named for it at different moments are as wrong as at one."""
    named: dict[tuple[TopicPartition, TopicId, LeaderEpoch], dict[NodeId, NodeId]] = {}
    for look in looks:
        for answer in look.answers:
            for name, topic_id, partition in answer.partitions():
                if partition.leader is not None and partition.leader_epoch >= 0:
                    leaders = named.setdefault((name, topic_id, partition.leader_epoch), {})
                    leaders.setdefault(partition.leader, answer.node_id)
    for (name, _, epoch), leaders in named.items():
        if len(leaders) > 1:
            said = ", ".join(f"node {node} said {LeaderClaim(leader, epoch)}" for leader, node in leaders.items())
            yield DoctorFinding(kind=Kind.LEADER, subject=str(name), text=said, held=said, is_certain=True)


def _silent_nodes(look: Look) -> Iterator[DoctorFinding]:
    fenced = _fenced_ids(look)
    for silence in look.silences:
        also = " (and is fenced)" if silence.node.node_id in fenced else ""
        yield DoctorFinding(
            kind=Kind.UNREACHABLE,
            subject=f"node {silence.node.node_id}",
            text=f"unreachable{also}: {silence.reason}",
            node_id=silence.node.node_id,
            held=str(silence.node.address),
        )
    for address in look.lost_bootstrap_servers:
        yield DoctorFinding(
            kind=Kind.UNREACHABLE,
            severity=FindingSeverity.WARNING,
            subject=f"bootstrap server {address}",
            text="does not answer, and no node of the cluster is there",
        )


def _fenced_nodes(look: Look) -> Iterator[DoctorFinding]:
    silent = {silence.node.node_id for silence in look.silences}
    for node_id in sorted(_fenced_ids(look) - silent):
        yield DoctorFinding(
            kind=Kind.FENCED,
            subject=f"node {node_id}",
            text="answers, but is fenced: the quorum does not count on it",
            node_id=node_id,
        )


def _reported_problems(look: Look) -> Iterator[DoctorFinding]:
    for answer in look.answers:
        for condition in answer.conditions:
            if condition.is_problem:
                yield DoctorFinding(
                    kind=Kind.CONDITION,
                    subject=f"node {answer.node_id}",
                    text=condition.sentence,
                    node_id=answer.node_id,
                    # Its sentence may name a figure that changes from look to look.
                    held=f"{condition.kind} {condition.subject}",
                )


def information(look: Look) -> list[str]:
    """What the nodes tell without anything being wrong."""
    return [
        f"node {answer.node_id}: {condition.sentence}"
        for answer in look.answers
        for condition in answer.conditions
        if not condition.is_problem
    ]


def _fenced_ids(look: Look) -> set[NodeId]:
    return {node_id for answer in look.answers for node_id, is_fenced in answer.fenced.items() if is_fenced}


def _leaderless_quorum(look: Look) -> Iterator[DoctorFinding]:
    claims = [answer.quorum for answer in look.answers if answer.quorum is not None]
    if claims and all(claim.leader is None for claim in claims):
        yield DoctorFinding(kind=Kind.QUORUM_LEADERLESS, subject="quorum", text="no leader: no change can be agreed on")


def _partition_states(look: Look, newest: dict[TopicPartition, NewestClaim]) -> Iterator[DoctorFinding]:
    silent = look.node_ids - {answer.node_id for answer in look.answers}
    for name, found in newest.items():
        partition, subject = found.metadata, str(name)
        in_sync = f"in sync {_sorted_ids(partition.isr)} of {_sorted_ids(partition.replicas)}"
        min_isr = effective_min_isr(look.min_isr.get(name.topic, 1), len(partition.replicas))
        if partition.leader is None:
            yield DoctorFinding(kind=Kind.LEADERLESS, subject=subject, text=f"no leader; {in_sync}")
        elif partition.leader in silent:
            text = f"{found.claim} does not answer; {in_sync}"
            yield DoctorFinding(kind=Kind.LEADER_UNREACHABLE, subject=subject, text=text, held=str(found.claim))
        elif len(partition.isr) < min_isr:
            text = f"below min.insync.replicas {min_isr}, so that acks=all is refused; {in_sync}"
            yield DoctorFinding(kind=Kind.UNDER_MIN_ISR, subject=subject, text=text)
        elif not set(partition.replicas) <= set(partition.isr):
            text = f"under-replicated; {in_sync}"
            yield DoctorFinding(
                kind=Kind.UNDER_REPLICATED, severity=FindingSeverity.WARNING, subject=subject, text=text
            )


def _sorted_ids(nodes: Sequence[NodeId]) -> str:
    return ",".join(map(str, sorted(nodes))) or "none"


def _cluster_id_disagreements(answers: Sequence[NodeAnswers]) -> Iterator[DoctorFinding]:
    said = {answer.node_id: answer.metadata.cluster_id for answer in answers}
    return _odd_ones(said, "cluster", lambda cluster_id: f"says that its id is {cluster_id}")


def _address_disagreements(answers: Sequence[NodeAnswers]) -> Iterator[DoctorFinding]:
    for broker_id in sorted({broker for answer in answers for broker in answer.metadata.brokers}):
        said = {
            answer.node_id: str(answer.metadata.brokers[broker_id].address)
            for answer in answers
            if broker_id in answer.metadata.brokers
        }
        yield from _odd_ones(said, f"node {broker_id}", lambda address: f"says that it is at {address}")


def _fencing_disagreements(answers: Sequence[NodeAnswers]) -> Iterator[DoctorFinding]:
    telling = [answer for answer in answers if answer.fenced]
    for broker_id in sorted({broker for answer in telling for broker in answer.fenced}):
        said = {answer.node_id: answer.fenced.get(broker_id) for answer in telling}
        yield from _odd_ones(said, f"node {broker_id}", _fencing_text)


def _fencing_text(is_fenced: bool | None) -> str:
    return "does not know it" if is_fenced is None else f"says that it is {'fenced' if is_fenced else 'live'}"


def _topic_disagreements(answers: Sequence[NodeAnswers]) -> Iterator[DoctorFinding]:
    """Whether it exists, under which id, and how many partitions it has."""
    for topic in sorted({topic for answer in answers for topic in answer.metadata.topics}):
        said = {answer.node_id: _topic_text(answer, topic) for answer in answers}
        yield from _odd_ones(said, str(topic), str)


def _topic_text(answer: NodeAnswers, name: str) -> str:
    found = next((topic for topic in answer.metadata.topics.values() if topic.name == name), None)
    if found is None:
        return "does not know the topic"
    return f"says that it has id {found.topic_id} and {counted(len(found.partitions), 'partition')}"


def _leader_disagreements(
    answers: Sequence[NodeAnswers], newest: Mapping[TopicPartition, NewestClaim]
) -> Iterator[DoctorFinding]:
    for answer in answers:
        for name, topic_id, partition in answer.partitions():
            found, claim = newest[name], claim_of(partition)
            if claim != found.claim and topic_id == found.topic_id:
                text = f"node {answer.node_id} says {claim}, node {found.nodes[0]} says {found.claim}"
                yield DoctorFinding(
                    kind=Kind.LEADER,
                    subject=str(name),
                    text=text,
                    node_id=answer.node_id,
                    held=str(claim),
                    is_certain=_contradicts(claim, found.claim),
                )


def _contradicts(one: LeaderClaim, other: LeaderClaim) -> bool:
    """Two leaders for one epoch, which no delay explains. "Nobody" may be a leader that has just died."""
    is_same_epoch = one.leader_epoch == other.leader_epoch >= 0
    return is_same_epoch and None not in (one.leader, other.leader) and one.leader != other.leader


def _replica_disagreements(
    answers: Sequence[NodeAnswers], newest: Mapping[TopicPartition, NewestClaim]
) -> Iterator[DoctorFinding]:
    """Of nodes that agree on the leader: those that lag behind in that are told already."""
    for name, found in newest.items():
        agreeing = [answer for answer in answers if answer.node_id in found.nodes]
        said = {answer.node_id: answer.metadata.topics[name.topic].partitions[name.partition] for answer in agreeing}
        replicas = {node: partition.replicas for node, partition in said.items()}
        isr = {node: tuple(sorted(partition.isr)) for node, partition in said.items()}
        yield from _odd_ones(replicas, str(name), lambda ids: f"says replicas {_ids(ids)}")
        yield from _odd_ones(isr, str(name), lambda ids: f"says in sync {_ids(ids)}")


def _ids(nodes: Sequence[NodeId]) -> str:
    return ",".join(map(str, nodes)) or "none"


def _quorum_disagreements(answers: Sequence[NodeAnswers]) -> Iterator[DoctorFinding]:
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


def _coordinator_disagreements(
    coordinators: Sequence[FoundCoordinator], newest: Mapping[TopicPartition, NewestClaim]
) -> Iterator[DoctorFinding]:
    """A group's coordinator is who leads its partition of __consumer_offsets, whoever is asked."""
    for each in coordinators:
        found = newest.get(each.partition)
        if found is None or found.claim.leader is None:
            continue
        leads = f"{each.partition} has {found.claim}"
        if each.outcome is not ErrorCode.NONE:
            text = f"node {each.node_id} names no coordinator for group {each.group_id}: {each.outcome.name}; {leads}"
        elif each.coordinator != found.claim.leader:
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


def _judge_trials(
    trials: Sequence[Trial], newest: Mapping[TopicPartition, NewestClaim], answering: int
) -> Iterator[DoctorFinding]:
    """``answering`` nodes said who leads."""
    for trial in trials:
        if trial.outcome in _FORBIDDEN:
            yield _untried(trial)
        elif trial.attempt is Attempt.WRITE and trial.outcome is ErrorCode.NONE:
            yield _finding(Kind.ACCEPTED, trial, "took a batch with a wrong checksum", is_certain=True)
        elif trial.node_id == trial.claim.leader:
            yield from _judge_leader(trial, newest[trial.partition].nodes, answering)
        else:
            yield from _judge_other(trial)


def _judge_leader(trial: Trial, namers: Sequence[NodeId], answering: int) -> Iterator[DoctorFinding]:
    if trial.outcome not in _ACCEPTED[trial.attempt]:
        who = "all" if len(namers) == answering else " and ".join(f"node {node}" for node in namers)
        named = f"is named leader (epoch {trial.claim.leader_epoch}) by {who}"
        text = f"{named} but refuses {_VERBS[trial.attempt]}: {trial.outcome.name}"
        yield _finding(Kind.REFUSED, trial, text)


def _judge_other(trial: Trial) -> Iterator[DoctorFinding]:
    if trial.outcome in _ACCEPTED[trial.attempt]:
        # Only a fetch says for which epoch it is meant: who takes a write may not have heard of a newer one yet.
        is_certain = trial.attempt is Attempt.FETCH and trial.claim.leader is not None and trial.claim.leader_epoch >= 0
        text = f"accepts {_VERBS[trial.attempt]} ({trial.outcome.name}), though others say {trial.claim}"
        yield _finding(Kind.ACCEPTED, trial, text, is_certain=is_certain)
    elif trial.outcome not in _REFUSED[trial.attempt]:
        due = next(iter(_REFUSED[trial.attempt])).name
        text = f"answers {trial.attempt} with {trial.outcome.name} where {due} is due"
        yield _finding(Kind.REFUSED, trial, text)
    elif trial.hint is not None and trial.hint != trial.claim:
        text = f"sends {_VERBS[trial.attempt]} to {trial.hint}, though others say {trial.claim}"
        yield _finding(Kind.HINT, trial, text, is_certain=_contradicts(trial.hint, trial.claim))
    elif trial.hint is None and trial.has_room_for_hint and trial.claim.leader is not None:
        text = f"refuses {_VERBS[trial.attempt]} and does not name {trial.claim}"
        yield _finding(Kind.HINT, trial, text, severity=FindingSeverity.WARNING)


def _finding(
    kind: Kind, trial: Trial, text: str, *, severity: FindingSeverity = FindingSeverity.ERROR, is_certain: bool = False
) -> DoctorFinding:
    return DoctorFinding(
        kind=kind,
        severity=severity,
        subject=str(trial.partition),
        text=f"node {trial.node_id} {text}",
        node_id=trial.node_id,
        # With a new claim the node has something new to do.
        held=f"{trial.attempt} {trial.outcome.name} {trial.claim} {trial.hint}",
        is_certain=is_certain,
    )


def _untried(trial: Trial) -> DoctorFinding:
    return DoctorFinding(
        kind=Kind.UNTRIED,
        severity=FindingSeverity.WARNING,
        subject=str(trial.partition),
        text=f"{trial.attempt} could not be tried on node {trial.node_id}: {trial.outcome.name}",
        node_id=trial.node_id,
        held=trial.attempt,
    )
