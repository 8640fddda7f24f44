"""From what was seen to what is wrong.

Nodes hear of a change one after the other, so most differences mean nothing until they last: ``lasting`` keeps those
that every look shows. Two leaders for one epoch are wrong at once, also when one node said so in an earlier look.
"""

from collections.abc import Iterator, Sequence

from quorate.cli.doctor.disagreements import (
    address_disagreements,
    cluster_id_disagreements,
    coordinator_disagreements,
    fencing_disagreements,
    judge_trials,
    leader_disagreements,
    quorum_disagreements,
    replica_disagreements,
    topic_disagreements,
)
from quorate.cli.doctor.findings import DoctorFinding, FindingSeverity, Kind, by_weight
from quorate.cli.doctor.observations import LeaderClaim, Look, NewestClaim, newest_claims
from quorate.kernel.ids import LeaderEpoch, NodeId, TopicId, TopicPartition
from quorate.replication.core.leader import effective_min_isr


def lasting(looks: Sequence[Look]) -> list[DoctorFinding]:
    """What the last look shows and all before it did too, and what is certain from any of them."""
    each = [diagnose(look) for look in looks]
    shared = set.intersection(*({finding.identity for finding in findings} for findings in each))
    found = {finding.identity: finding for finding in each[-1] if finding.identity in shared}
    for finding in (finding for findings in each for finding in findings if finding.is_certain):
        found.setdefault(finding.identity, finding)
    told = {finding.subject for finding in found.values() if finding.kind is Kind.LEADER and finding.is_certain}
    over_time = [finding for finding in contradictions_over_time(looks) if finding.subject not in told]
    return by_weight([*found.values(), *over_time])


def diagnose(look: Look) -> list[DoctorFinding]:
    """Everything that this look shows, passing or not."""
    newest = newest_claims(look.answers)
    return [
        *_silent_nodes(look),
        *_reported_problems(look),
        *_fenced_nodes(look),
        *_leaderless_quorum(look),
        *cluster_id_disagreements(look.answers),
        *quorum_disagreements(look.answers),
        *address_disagreements(look.answers),
        *fencing_disagreements(look.answers),
        *topic_disagreements(look.answers),
        *leader_disagreements(look.answers, newest),
        *replica_disagreements(look.answers, newest),
        *coordinator_disagreements(look.coordinators, newest),
        *judge_trials(look.trials, newest, len(look.answers)),
        *_partition_states(look, newest),
    ]


def contradictions_over_time(looks: Sequence[Look]) -> Iterator[DoctorFinding]:
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
        in_sync = f"in sync {_ids(partition.isr)} of {_ids(partition.replicas)}"
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


def _ids(nodes: Sequence[NodeId]) -> str:
    return ",".join(map(str, sorted(nodes))) or "none"
