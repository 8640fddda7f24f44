"""Commands and answers on their way between nodes."""

from typing import get_args
from uuid import UUID

import msgspec
import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import (
    BrokerEpoch,
    GroupId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicName,
)
from quorate.metadata.core import commands as c
from quorate.metadata.core.command_codec import decode_commands, decode_outcomes, encode_commands, encode_outcomes
from quorate.metadata.core.decisions import (
    AcceptedRegistration,
    CarriedOut,
    DeletedAcls,
    GrantedToken,
    Outcomes,
    PartitionOutcomes,
    ProducerIdBlock,
    TokenExpiry,
)
from quorate.metadata.core.quota_entities import QuotaEntityPart
from quorate.metadata.core.security_commands import (
    CreateAcl,
    CreateDelegationToken,
    DeleteAcls,
    DeleteScramCredential,
    ExpireDelegationToken,
    MakeFirstUser,
    NewCredential,
    RemoveExpiredTokens,
    RenewDelegationToken,
    SetScramCredential,
)
from quorate.security.acls import Acl, AclFilter, AclOperation, AclResourceType, PatternType
from quorate.security.delegation_token import DelegationToken
from quorate.security.principals import user
from quorate.security.scram_credentials import ScramCredential, ScramMechanism
from tests.unit.metadata.core.cluster import Cluster

SEVEN, EPOCH, ORDERS, FIRST = NodeId(7), BrokerEpoch(3), TopicName("orders"), PartitionIndex(0)

ACL = Acl(
    resource_type=AclResourceType.TOPIC,
    pattern_type=PatternType.PREFIXED,
    resource_name="orders",
    principal="User:alice",
    operation=AclOperation.READ,
)
CREDENTIAL = ScramCredential(salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096)
TOKEN = DelegationToken(
    token_id="t", owner=user("a"), requester=user("b"), issued_ms=5, max_ms=20, expires_ms=10, renewers=(user("c"),)
)

COMMANDS: list[c.Command] = [
    c.FormCluster(),
    c.CreateTopic(name="orders", configs={"retention.ms": "1", "other": None}, topic_id=TopicId(UUID(int=9))),
    c.CreateTopic(name="orders", assignments={FIRST: (SEVEN, NodeId(100))}),
    c.DeleteTopic(topic_id=TopicId(UUID(int=9))),
    c.DeleteTopic(topic_id=TopicId(UUID(int=9)), charged_to=c.Charge(user="CN=a", client_id="app", is_strict=True)),
    c.CreatePartitions(name=ORDERS, total_count=3, assignments=((SEVEN,), (NodeId(100),))),
    c.AlterTopicConfigs(
        name=ORDERS, changes=(c.ConfigChange(key="k", operation=c.ConfigOperation.APPEND, value="v"),), replace_all=True
    ),
    c.AlterBrokerConfigs(node_id=None, changes=(c.ConfigChange(key="k", operation=c.ConfigOperation.DELETE),)),
    c.AlterClientQuota(
        entity=(QuotaEntityPart("user", None), QuotaEntityPart("client-id", "app")),
        changes=(c.QuotaChange(key="k", value=0.5), c.QuotaChange(key="l", value=None)),
    ),
    c.AllocateProducerIds(count=5),
    c.RegisterBroker(
        node_id=SEVEN, host="h", port=1, rack="r", incarnation=UUID(int=4), peer_address="h:2", fenced=False
    ),
    c.UnfenceBroker(node_id=SEVEN, broker_epoch=EPOCH),
    c.FenceBroker(node_id=SEVEN, broker_epoch=EPOCH),
    c.BeginControlledShutdown(node_id=SEVEN, broker_epoch=EPOCH),
    c.ChangeBrokerRoom(node_id=SEVEN, broker_epoch=EPOCH, has_room=False),
    c.ResignLeadership(
        node_id=SEVEN,
        broker_epoch=EPOCH,
        partitions=(c.LedPartition(TopicId(UUID(int=9)), FIRST, LeaderEpoch(3)),),
    ),
    c.UnregisterBroker(node_id=SEVEN, even_with_replicas=True),
    c.AlterIsr(
        node_id=SEVEN,
        broker_epoch=EPOCH,
        changes=(
            c.IsrChange(
                topic_id=TopicId(UUID(int=9)),
                partition=FIRST,
                leader_epoch=LeaderEpoch(1),
                partition_epoch=2,
                new_isr=(c.IsrMember(node_id=SEVEN, broker_epoch=EPOCH),),
            ),
        ),
    ),
    c.ElectLeaders(kind=c.ElectionKind.UNCLEAN, partitions=(c.PartitionName(ORDERS, FIRST),)),
    c.ElectLeaders(kind=c.ElectionKind.PREFERRED, partitions=None),
    c.AlterPartitionReassignments(
        reassignments=(c.PartitionReassignment(topic=ORDERS, partition=FIRST, replicas=(SEVEN,)),),
        allow_replication_factor_change=False,
    ),
    c.AlterGroupConfigs(
        group_id=GroupId("readers"),
        changes=(c.ConfigChange(key="consumer.session.timeout.ms", operation=c.ConfigOperation.SET, value="50000"),),
    ),
    c.DrainBroker(node_id=SEVEN),
    c.RebalancePartitions(max_moves=3),
    CreateAcl(acl=ACL),
    DeleteAcls(filter=AclFilter(resource_type=AclResourceType.TOPIC, host="*")),
    SetScramCredential(user="alice", mechanism=ScramMechanism.SCRAM_SHA_512, credential=CREDENTIAL),
    DeleteScramCredential(user="alice", mechanism=ScramMechanism.SCRAM_SHA_256),
    MakeFirstUser(
        user="alice",
        credentials=(NewCredential(mechanism=ScramMechanism.SCRAM_SHA_512, credential=CREDENTIAL),),
    ),
    CreateDelegationToken(token_id="t", owner=user("a"), requester=user("b"), renewers=(user("c"),), max_lifetime_ms=5),
    RenewDelegationToken(token_id="t", requester=user("a"), period_ms=7),
    ExpireDelegationToken(token_id="t", requester=user("a")),
    RemoveExpiredTokens(),
]


def test_every_kind_of_command_is_tried() -> None:
    assert {type(command) for command in COMMANDS} == set(get_args(c.Command))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_a_command_arrives_as_it_was_sent(command: c.Command) -> None:
    assert decode_commands(encode_commands([command, command])) == [command, command]


def test_answers_arrive_without_their_records_and_errors_with_code_and_message() -> None:
    cluster = Cluster()
    create = c.CreateTopic(name="orders", partition_count=3, replication_factor=3)
    created = cluster.do(create)
    alter = c.AlterIsr(node_id=SEVEN, broker_epoch=cluster.epoch(7), changes=(cluster.isr_change((7,), 0),))
    isr = cluster.do(alter)
    register = c.RegisterBroker(node_id=SEVEN, host="h", port=1)
    allocate = c.AllocateProducerIds(count=5)
    commands: list[c.Command] = [create, create, create, alter, register, allocate, c.DrainBroker(node_id=SEVEN)]
    commands.append(c.FormCluster())
    answers: Outcomes = [created.answer, isr.answer, AcceptedRegistration(EPOCH), ProducerIdBlock(ProducerId(4))]
    outcomes: Outcomes = [
        created.answer,
        KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, "it does"),
        KafkaError(ErrorCode.NOT_CONTROLLER),
        *answers[1:],
        PartitionOutcomes(()),
        CarriedOut(),
    ]

    received, version = decode_outcomes(encode_outcomes(outcomes, Offset(12)), commands)

    assert version == 12
    assert [received[0], *received[3:]] == [*answers, PartitionOutcomes(()), CarriedOut()]
    refusals = [refusal for refusal in received if isinstance(refusal, KafkaError)]
    assert [(refusal.code, refusal.message) for refusal in refusals] == [
        (ErrorCode.TOPIC_ALREADY_EXISTS, "it does"),
        (ErrorCode.NOT_CONTROLLER, None),
    ]


def test_answers_about_security_arrive_by_the_type_of_their_command() -> None:
    delete, create, renew, expire = (
        DeleteAcls(filter=AclFilter()),
        CreateDelegationToken(token_id="t", owner=user("a"), requester=user("a")),
        RenewDelegationToken(token_id="t", requester=user("a")),
        ExpireDelegationToken(token_id="t", requester=user("a")),
    )
    outcomes: Outcomes = [DeletedAcls((ACL,)), DeletedAcls(()), GrantedToken(TOKEN), TokenExpiry(9), TokenExpiry(0)]

    received, _ = decode_outcomes(encode_outcomes(outcomes, Offset(1)), [delete, delete, create, renew, expire])

    assert received == outcomes


def test_answers_have_the_layout_that_nodes_of_all_versions_read() -> None:
    outcomes: Outcomes = [AcceptedRegistration(EPOCH), ProducerIdBlock(ProducerId(4)), CarriedOut()]
    absent: dict[str, object] = {"topic": None, "producer_id": None, "broker_epoch": None, "partitions": []}
    absent |= {"acls": [], "token": None, "expires_ms": None}

    decoded = msgspec.msgpack.decode(encode_outcomes(outcomes, Offset(12)))

    assert [outcome["answer"] for outcome in decoded["outcomes"]] == [
        {**absent, "broker_epoch": EPOCH},
        {**absent, "producer_id": 4},
        absent,
    ]
