"""What a node did when a claim was tried, held against the claim.

Whoever is named as leader must accept, everybody else must refuse and, where the answer has room for it, name the
leader. "Accept" means that the answer came from behind the check of leadership: the write is one that no leader takes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from quorate.cli.doctor.belief import Belief
from quorate.cli.doctor.disagreements import contradicts
from quorate.cli.doctor.facts import Attempt, Trial
from quorate.cli.doctor.finding import DoctorFinding, FindingSeverity, Kind
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NodeId, TopicPartition

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


def judge_trials(
    trials: Sequence[Trial], beliefs: Mapping[TopicPartition, Belief], answering: int
) -> Iterator[DoctorFinding]:
    """``answering`` nodes said who leads."""
    for trial in trials:
        if trial.outcome in _FORBIDDEN:
            yield _untried(trial)
        elif trial.attempt is Attempt.WRITE and trial.outcome is ErrorCode.NONE:
            yield _finding(Kind.ACCEPTED, trial, "took a batch with a wrong checksum", is_certain=True)
        elif trial.node_id == trial.claim.leader:
            yield from _judge_leader(trial, beliefs[trial.partition].nodes, answering)
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
        yield _finding(Kind.HINT, trial, text, is_certain=contradicts(trial.hint, trial.claim))
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
