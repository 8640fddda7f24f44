"""What counts as wrong, at once or only when it lasts, and how it is said."""

from uuid import UUID

import msgspec
import pytest

from quorate.cli.doctor.diagnosis import diagnose, information, lasting
from quorate.cli.doctor.findings import DoctorFinding, FindingSeverity
from quorate.cli.doctor.observations import (
    Attempt,
    FoundCoordinator,
    LeaderClaim,
    Look,
    NodeAnswers,
    QuorumClaim,
    Silence,
    Trial,
)
from quorate.client.admin.brokers import NodeCondition
from quorate.client.cluster_metadata import ClusterMetadata, LiveBroker, PartitionMetadata, TopicMetadata
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, LeaderEpoch, NodeId, PartitionIndex, Term, TopicId, TopicName, TopicPartition

SEVEN, HUNDRED, LAST = NodeId(7), NodeId(100), NodeId(4001)
ALL = (SEVEN, HUNDRED, LAST)
ORDERS = TopicName("orders")
FIRST = PartitionIndex(0)
NAME = TopicPartition(ORDERS, FIRST)


def broker(node_id: NodeId) -> LiveBroker:
    return LiveBroker(node_id=node_id, address=Address("host", 9000 + node_id))


def claim(leader: NodeId | None, epoch: int = 4) -> LeaderClaim:
    return LeaderClaim(leader, LeaderEpoch(epoch))


TRUTH = claim(SEVEN)


def answers(
    node_id: NodeId,
    said: LeaderClaim = TRUTH,
    *,
    isr: tuple[NodeId, ...] = ALL,
    topic_id: int = 1,
    topics: bool = True,
    quorum: QuorumClaim | None = None,
    fenced: tuple[NodeId, ...] = (),
) -> NodeAnswers:
    partition = PartitionMetadata(
        index=FIRST, leader=said.leader, leader_epoch=said.leader_epoch, replicas=ALL, isr=isr
    )
    topic = TopicMetadata(name=ORDERS, topic_id=TopicId(UUID(int=topic_id)), partitions={FIRST: partition})
    metadata = ClusterMetadata(
        cluster_id="c",
        controller_id=None,
        brokers={each: broker(each) for each in ALL},
        topics={ORDERS: topic} if topics else {},
    )
    return NodeAnswers(
        node=broker(node_id), metadata=metadata, quorum=quorum, fenced={each: each in fenced for each in ALL}
    )


HEALTHY = Look(answers=[answers(node) for node in ALL])


def with_answers(*told: NodeAnswers) -> Look:
    return msgspec.structs.replace(HEALTHY, answers=told)


def tried(
    node_id: NodeId, attempt: Attempt, outcome: ErrorCode, hint: LeaderClaim | None = None, *, has_room: bool = False
) -> Look:
    trial = Trial(
        node_id=node_id,
        attempt=attempt,
        partition=NAME,
        claim=TRUTH,
        outcome=outcome,
        hint=hint,
        has_room_for_hint=has_room,
    )
    return msgspec.structs.replace(HEALTHY, trials=[trial])


def lines(findings: list[DoctorFinding]) -> list[str]:
    return [f"{finding.severity}: {finding}" for finding in findings]


def test_nodes_that_agree_are_well() -> None:
    assert diagnose(HEALTHY) == []


def test_two_leaders_of_one_epoch_are_an_error_after_one_look() -> None:
    look = with_answers(answers(SEVEN), answers(HUNDRED, claim(HUNDRED)), answers(LAST))

    assert lines(lasting([look, HEALTHY])) == [
        "error: orders-0: node 100 says leader 100 (epoch 4), node 7 says leader 7 (epoch 4)"
    ]


def test_two_leaders_of_one_epoch_are_an_error_also_when_named_at_different_times() -> None:
    later = with_answers(*(answers(node, claim(HUNDRED)) for node in ALL))

    assert lines(lasting([HEALTHY, later])) == [
        "error: orders-0: node 7 said leader 7 (epoch 4), node 7 said leader 100 (epoch 4)"
    ]


def test_topic_that_was_made_anew_starts_its_epochs_again() -> None:
    later = with_answers(*(answers(node, claim(HUNDRED), topic_id=2) for node in ALL))

    assert lasting([HEALTHY, later]) == []


def test_older_epoch_counts_only_when_it_lasts() -> None:
    behind = with_answers(answers(SEVEN), answers(HUNDRED, claim(LAST, 3)), answers(LAST))

    assert lasting([behind, HEALTHY]) == []
    assert lines(lasting([behind, behind])) == [
        "error: orders-0: node 100 says leader 4001 (epoch 3), node 7 says leader 7 (epoch 4)"
    ]


def test_node_that_is_behind_twice_but_not_at_the_same_place_is_on_its_way() -> None:
    first = with_answers(answers(SEVEN), answers(HUNDRED, claim(LAST, 3)), answers(LAST))
    second = with_answers(answers(SEVEN, claim(LAST, 5)), answers(HUNDRED), answers(LAST, claim(LAST, 5)))

    assert lasting([first, second]) == []


def test_no_leader_in_the_same_epoch_may_be_one_that_has_just_died() -> None:
    look = with_answers(answers(SEVEN), answers(HUNDRED, claim(None)), answers(LAST))

    assert lasting([look, HEALTHY]) == []
    assert lines(lasting([look, look])) == [
        "error: orders-0: node 100 says no leader (epoch 4), node 7 says leader 7 (epoch 4)"
    ]


def test_isr_answered_as_all_replicas_is_named() -> None:
    shrunk = (SEVEN, LAST)
    look = with_answers(answers(SEVEN, isr=shrunk), answers(HUNDRED), answers(LAST, isr=shrunk))

    assert "error: orders-0: node 100 says in sync 7,100,4001, node 7 says in sync 7,4001" in lines(diagnose(look))


def test_topic_that_a_node_does_not_know_is_named() -> None:
    [found] = diagnose(with_answers(answers(SEVEN), answers(HUNDRED, topics=False), answers(LAST)))

    assert str(found).startswith("orders: node 100 does not know the topic, node 7 says that it has id")
    assert str(found).endswith(" and 1 partition")


@pytest.mark.parametrize(
    ("node_id", "attempt", "outcome"),
    [
        (SEVEN, Attempt.FETCH, ErrorCode.NONE),
        (SEVEN, Attempt.FETCH, ErrorCode.OFFSET_OUT_OF_RANGE),
        (SEVEN, Attempt.WRITE, ErrorCode.CORRUPT_MESSAGE),
        (SEVEN, Attempt.WRITE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (SEVEN, Attempt.GROUP_REQUEST, ErrorCode.GROUP_ID_NOT_FOUND),
        (HUNDRED, Attempt.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (HUNDRED, Attempt.WRITE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (HUNDRED, Attempt.GROUP_REQUEST, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_leader_accepts_and_others_refuse(node_id: NodeId, attempt: Attempt, outcome: ErrorCode) -> None:
    assert diagnose(tried(node_id, attempt, outcome)) == []


@pytest.mark.parametrize(
    ("look", "sentence"),
    [
        (
            tried(SEVEN, Attempt.WRITE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            "node 7 is named leader (epoch 4) by all but refuses writes: NOT_LEADER_OR_FOLLOWER",
        ),
        (
            tried(SEVEN, Attempt.GROUP_REQUEST, ErrorCode.NOT_COORDINATOR),
            "node 7 is named leader (epoch 4) by all but refuses group requests: NOT_COORDINATOR",
        ),
        (
            tried(HUNDRED, Attempt.WRITE, ErrorCode.CORRUPT_MESSAGE),
            "node 100 accepts writes (CORRUPT_MESSAGE), though others say leader 7 (epoch 4)",
        ),
        (
            tried(HUNDRED, Attempt.FETCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
            "node 100 answers a fetch with UNKNOWN_LEADER_EPOCH where NOT_LEADER_OR_FOLLOWER is due",
        ),
        (
            tried(HUNDRED, Attempt.WRITE, ErrorCode.NOT_LEADER_OR_FOLLOWER, claim(LAST, 3)),
            "node 100 sends writes to leader 4001 (epoch 3), though others say leader 7 (epoch 4)",
        ),
    ],
)
def test_node_that_does_otherwise_is_an_error_once_it_lasts(look: Look, sentence: str) -> None:
    assert lasting([look, HEALTHY]) == []
    assert lines(lasting([look, look])) == [f"error: orders-0: {sentence}"]


@pytest.mark.parametrize(
    "look",
    [
        tried(HUNDRED, Attempt.FETCH, ErrorCode.NONE),
        tried(HUNDRED, Attempt.WRITE, ErrorCode.NOT_LEADER_OR_FOLLOWER, claim(LAST)),
        tried(SEVEN, Attempt.WRITE, ErrorCode.NONE),
    ],
    ids=["a fetch for the epoch of another leader", "a hint to another leader of the epoch", "a corrupt batch taken"],
)
def test_what_no_delay_explains_is_an_error_at_once(look: Look) -> None:
    assert len(lasting([look, HEALTHY])) == 1


def test_missing_hint_is_a_warning_where_there_was_room_for_it() -> None:
    refusal = ErrorCode.NOT_LEADER_OR_FOLLOWER
    [found] = diagnose(tried(HUNDRED, Attempt.WRITE, refusal, has_room=True))

    assert found.severity is FindingSeverity.WARNING
    assert diagnose(tried(HUNDRED, Attempt.WRITE, refusal, TRUTH, has_room=True)) == []


def test_what_may_not_be_tried_is_a_warning() -> None:
    [found] = diagnose(tried(HUNDRED, Attempt.WRITE, ErrorCode.TOPIC_AUTHORIZATION_FAILED))

    assert lines([found]) == ["warning: orders-0: a write could not be tried on node 100: TOPIC_AUTHORIZATION_FAILED"]


def test_coordinator_is_who_leads_the_groups_partition() -> None:
    def named(coordinator: NodeId, outcome: ErrorCode = ErrorCode.NONE) -> list[str]:
        found = FoundCoordinator(
            node_id=LAST, group_id=GroupId("g"), partition=NAME, outcome=outcome, coordinator=coordinator
        )
        return lines(diagnose(msgspec.structs.replace(HEALTHY, coordinators=[found])))

    assert named(SEVEN) == []
    assert named(HUNDRED) == ["error: orders-0: node 4001 names node 100 for group g; orders-0 has leader 7 (epoch 4)"]
    assert "COORDINATOR_NOT_AVAILABLE" in named(NodeId(-1), ErrorCode.COORDINATOR_NOT_AVAILABLE)[0]


def test_quorum_has_one_leader_a_term() -> None:
    def look(*claims: tuple[NodeId | None, int]) -> Look:
        quorums = [QuorumClaim(leader, Term(term)) for leader, term in claims]
        return with_answers(*(answers(node, quorum=quorum) for node, quorum in zip(ALL, quorums, strict=True)))

    agreed = look((SEVEN, 3), (SEVEN, 3), (SEVEN, 3))
    behind = look((SEVEN, 3), (HUNDRED, 2), (SEVEN, 3))
    split = look((SEVEN, 3), (HUNDRED, 3), (SEVEN, 3))
    assert diagnose(agreed) == []
    assert lasting([behind, agreed]) == []
    assert lines(lasting([split, agreed])) == [
        "error: quorum: node 100 says leader 100 (term 3), node 7 says leader 7 (term 3)"
    ]
    assert lines(diagnose(look((None, -1), (None, -1), (None, -1)))) == [
        "error: quorum: no leader: no change can be agreed on"
    ]


def test_bad_news_that_all_agree_on() -> None:
    silent = Silence(node=broker(LAST), reason="refused")
    look = Look(
        answers=[answers(node, claim(LAST), isr=(LAST,), fenced=(HUNDRED,)) for node in (SEVEN, HUNDRED)],
        silences=[silent],
    )

    found = lasting([look, look])

    assert lines(found) == [
        "error: node 4001: unreachable: refused",
        "error: node 100: answers, but is fenced: the quorum does not count on it",
        "error: orders-0: leader 4001 (epoch 4) does not answer; in sync 4001 of 7,100,4001",
    ]
    assert not any(finding.is_disagreement for finding in found)


@pytest.mark.parametrize(
    ("said", "isr", "min_isr", "line"),
    [
        (claim(None), (SEVEN,), 1, "error: orders-0: no leader; in sync 7 of 7,100,4001"),
        (
            TRUTH,
            (SEVEN,),
            2,
            "error: orders-0: below min.insync.replicas 2, so that acks=all is refused; in sync 7 of 7,100,4001",
        ),
        (TRUTH, (SEVEN, LAST), 2, "warning: orders-0: under-replicated; in sync 7,4001 of 7,100,4001"),
    ],
)
def test_partition_in_trouble(said: LeaderClaim, isr: tuple[NodeId, ...], min_isr: int, line: str) -> None:
    look = Look(answers=[answers(node, said, isr=isr) for node in ALL], min_isr={"orders": min_isr})

    assert lines(diagnose(look)) == [line]


def test_topic_with_one_replica_is_not_below_min_insync_replicas_of_two() -> None:
    """Its leader takes acks=all: a topic with fewer replicas needs them all."""
    alone = PartitionMetadata(index=FIRST, leader=SEVEN, leader_epoch=LeaderEpoch(4), replicas=(SEVEN,), isr=(SEVEN,))
    look = msgspec.structs.replace(with_partition(alone), min_isr={ORDERS: 2})

    assert diagnose(look) == []


def test_problem_that_a_node_reports_is_a_finding_also_when_its_figures_change() -> None:
    looks = [with_condition(f"{free} bytes free", is_problem=True) for free in (12, 7)]

    [found] = lasting(looks)

    assert (found.severity, str(found)) == (FindingSeverity.ERROR, "node 100: 7 bytes free")
    assert not found.is_disagreement


def test_information_of_a_node_is_no_finding() -> None:
    look = with_condition("43 % checked", is_problem=False)

    assert diagnose(look) == []
    assert information(look) == ["node 100: 43 % checked"]


def with_condition(sentence: str, *, is_problem: bool) -> Look:
    condition = NodeCondition(
        node_id=HUNDRED, kind="disk-full", subject="/data", is_problem=is_problem, sentence=sentence
    )
    reporting = msgspec.structs.replace(answers(HUNDRED), conditions=[condition])
    return with_answers(answers(SEVEN), reporting, answers(LAST))


def with_partition(partition: PartitionMetadata) -> Look:
    told = []
    for node in ALL:
        answer = answers(node)
        topic = msgspec.structs.replace(answer.metadata.topics[ORDERS], partitions={FIRST: partition})
        metadata = msgspec.structs.replace(answer.metadata, topics={ORDERS: topic})
        told.append(msgspec.structs.replace(answer, metadata=metadata))
    return with_answers(*told)
