"""Random lives of a cluster: whatever is asked, the invariants of partitions hold and the indexes are true."""

from collections import defaultdict
from collections.abc import Callable
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import NO_NODE, BrokerEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName
from quorate.kernel.topic_names import can_collide, collision_key
from quorate.metadata.core import commands as c
from quorate.metadata.core.image import HostedPartitions, MetadataImage, PartitionState, TopicIdPartition, difference
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
    SecurityCommand,
    SetScramCredential,
)
from quorate.metadata.core.snapshot import decode_image, encode_image
from quorate.security.acls import Acl, AclFilter, AclOperation, AclPermission, AclResourceType, PatternType
from quorate.security.principals import user
from quorate.security.scram_credentials import ScramCredential, ScramMechanism
from tests.unit.metadata.core.cluster import Cluster

NODES = (7, 100, 4001, 5)
NAMES = ("orders", "a.b", "a_b", "payments")

node_ids = st.sampled_from(NODES).map(NodeId)
node_tuples = st.lists(node_ids, min_size=1, max_size=4, unique=True).map(tuple)
partition_names = st.builds(
    c.PartitionName, st.sampled_from(NAMES[:2]).map(TopicName), st.integers(0, 1).map(PartitionIndex)
)
Step = Callable[[Cluster], c.Command]


def _with_epoch(kind: type[c.FenceBroker | c.UnfenceBroker | c.BeginControlledShutdown], node: NodeId) -> Step:
    def command(cluster: Cluster) -> c.Command:
        broker = cluster.image.brokers.get(node)
        return kind(node_id=node, broker_epoch=BrokerEpoch(0) if broker is None else broker.broker_epoch)

    return command


def _room(node: NodeId, has_room: bool) -> Step:
    def command(cluster: Cluster) -> c.Command:
        broker = cluster.image.brokers.get(node)
        epoch = BrokerEpoch(0) if broker is None else broker.broker_epoch
        return c.ChangeBrokerRoom(node_id=node, broker_epoch=epoch, has_room=has_room)

    return command


def _isr_change(name: c.PartitionName, isr: tuple[NodeId, ...]) -> Step:
    """What the partition's leader would propose: itself and those of the nodes that are replicas and there."""

    def command(cluster: Cluster) -> c.Command:
        image = cluster.image
        state = image.partition(name.topic, name.partition)
        if state is None or not state.has_leader:
            return c.FormCluster()
        nodes = {state.leader, *(node for node in isr if node in state.replicas and node in image.brokers)}
        change = c.IsrChange(
            topic_id=image.topics[name.topic].topic_id,
            partition=name.partition,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr=tuple(
                c.IsrMember(node_id=node, broker_epoch=image.brokers[node].broker_epoch) for node in sorted(nodes)
            ),
        )
        leader = image.brokers[state.leader]
        return c.AlterIsr(node_id=leader.node_id, broker_epoch=leader.broker_epoch, changes=(change,))

    return command


def _resign(name: c.PartitionName) -> Step:
    def command(cluster: Cluster) -> c.Command:
        state = cluster.image.partition(name.topic, name.partition)
        if state is None or not state.has_leader:
            return c.FormCluster()
        led = c.LedPartition(cluster.image.topics[name.topic].topic_id, name.partition, state.leader_epoch)
        epoch = cluster.image.brokers[state.leader].broker_epoch
        return c.ResignLeadership(node_id=state.leader, broker_epoch=epoch, partitions=(led,))

    return command


def _delete(name: str) -> Step:
    def command(cluster: Cluster) -> c.Command:
        topic = cluster.image.topics.get(TopicName(name))
        return c.FormCluster() if topic is None else c.DeleteTopic(topic_id=topic.topic_id)

    return command


def _plain(commands: st.SearchStrategy[c.Command]) -> st.SearchStrategy[Step]:
    return commands.map(lambda command: lambda _: command)


creations: st.SearchStrategy[c.Command] = st.builds(
    c.CreateTopic,
    name=st.sampled_from(NAMES),
    partition_count=st.integers(1, 3),
    replication_factor=st.integers(1, 3),
    configs=st.sampled_from([{}, {"unclean.leader.election.enable": "true"}]),
)
plain_commands: st.SearchStrategy[c.Command] = st.one_of(
    creations,
    st.builds(
        c.RegisterBroker,
        node_id=node_ids,
        host=st.just("h"),
        port=st.just(1),
        rack=st.sampled_from([None, "a", "b"]),
        incarnation=st.uuids(),
        directory_id=st.sampled_from([UUID(int=number) for number in range(3)]),
        fenced=st.booleans(),
    ),
    st.builds(c.UnregisterBroker, node_id=node_ids, even_with_replicas=st.booleans()),
    st.builds(c.CreatePartitions, name=st.sampled_from(NAMES).map(TopicName), total_count=st.integers(1, 4)),
    st.builds(c.ElectLeaders, kind=st.sampled_from(c.ElectionKind), partitions=st.none() | st.tuples(partition_names)),
    st.builds(
        c.AlterPartitionReassignments,
        reassignments=st.tuples(
            st.builds(
                lambda name, replicas: c.PartitionReassignment(
                    topic=name.topic, partition=name.partition, replicas=replicas
                ),
                partition_names,
                st.none() | node_tuples,
            )
        ),
    ),
    st.builds(c.DrainBroker, node_id=node_ids),
    st.builds(c.RebalancePartitions, max_moves=st.none() | st.integers(0, 2)),
    st.builds(c.AllocateProducerIds, count=st.integers(1, 9)),
    st.builds(
        c.AlterClientQuota,
        entity=st.sampled_from([(QuotaEntityPart("user", None),), (QuotaEntityPart("client-id", "a"),)]),
        changes=st.tuples(
            st.builds(c.QuotaChange, key=st.just("producer_byte_rate"), value=st.sampled_from([None, 1000.0, 2000.0]))
        ),
    ),
    st.builds(
        c.AlterBrokerConfigs,
        node_id=st.none() | node_ids,
        changes=st.tuples(
            st.builds(
                c.ConfigChange,
                key=st.just("min.insync.replicas"),
                operation=st.sampled_from([c.ConfigOperation.SET, c.ConfigOperation.DELETE]),
                value=st.just("2"),
            )
        ),
    ),
)
users = st.sampled_from(["alice", "bob"]).map(user)
token_ids = st.sampled_from(["one", "two"])
acls = st.builds(
    Acl,
    resource_type=st.sampled_from([AclResourceType.TOPIC, AclResourceType.GROUP]),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    resource_name=st.sampled_from(["orders", "o", "*"]),
    principal=users.map(str),
    operation=st.sampled_from([AclOperation.READ, AclOperation.ALL]),
    permission=st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
mechanisms = st.sampled_from([ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512])
credentials = st.builds(
    ScramCredential,
    salt=st.just(b"salt"),
    stored_key=st.sampled_from([b"one", b"other"]),
    server_key=st.just(b"server"),
    iterations=st.sampled_from([4_095, 4_096, 8_192]),
)
security_commands: st.SearchStrategy[c.Command] = st.one_of(
    st.builds(CreateAcl, acl=acls),
    st.builds(DeleteAcls, filter=st.builds(AclFilter, principal=users.map(str), resource_name=st.just("orders"))),
    st.builds(SetScramCredential, user=users.map(lambda each: each.name), mechanism=mechanisms, credential=credentials),
    st.builds(
        MakeFirstUser,
        user=users.map(lambda each: each.name),
        credentials=st.tuples(st.builds(NewCredential, mechanism=mechanisms, credential=credentials)),
    ),
    st.builds(DeleteScramCredential, user=users.map(lambda each: each.name), mechanism=mechanisms),
    st.builds(CreateDelegationToken, token_id=token_ids, owner=users, requester=users, renewers=st.tuples(users)),
    st.builds(RenewDelegationToken, token_id=token_ids, requester=users, period_ms=st.sampled_from([-1, 1_000])),
    st.builds(ExpireDelegationToken, token_id=token_ids, requester=users, period_ms=st.sampled_from([-1, 0, 1_000])),
    st.just(RemoveExpiredTokens()),
)


def _later(hours: int, command: c.Command) -> Step:
    def after_a_while(cluster: Cluster) -> c.Command:
        cluster.now_ms += hours * 3_600_000
        return command

    return after_a_while


changes_in_sync = st.builds(_isr_change, partition_names, node_tuples)
steps = st.one_of(
    _plain(plain_commands),
    _plain(security_commands),
    st.builds(_later, st.integers(0, 30), security_commands),
    st.builds(_with_epoch, st.sampled_from([c.FenceBroker, c.UnfenceBroker, c.BeginControlledShutdown]), node_ids),
    st.builds(_with_epoch, st.just(c.UnfenceBroker), node_ids),
    st.builds(_room, node_ids, st.booleans()),
    changes_in_sync,
    changes_in_sync,
    st.builds(_resign, partition_names),
    st.builds(_delete, st.just("payments")),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, min_size=10, max_size=40))
def test_no_sequence_of_commands_breaks_a_partition(lives: list[Step]) -> None:
    cluster = Cluster(nodes=NODES)
    cluster.create((7, 100, 4001), (100, 5, 7))
    cluster.create((4001, 7), (7, 5), name="a.b", unclean_leader_election_enable="true")
    highest: dict[TopicName, int] = {}
    for step in lives:
        before = cluster.image
        command = step(cluster)
        try:
            decision = cluster.do(command)
        except KafkaError:
            assert cluster.image is before
            continue
        check_partitions(cluster.image)
        check_changes(before, cluster, command)
        check_first_epochs(before, cluster.image, highest)
        check_indexes(cluster.image)
        check_security(before, cluster, command)
        check_difference(before, cluster)
        one_by_one = before
        for record in decision.records:
            one_by_one, _ = one_by_one.replay([record], cluster.image.version)
        assert one_by_one == cluster.image
    assert decode_image(encode_image(cluster.image)) == cluster.image


def check_partitions(image: MetadataImage) -> None:
    for state in _partitions(image).values():
        assert state.isr
        assert len(set(state.replicas)) == len(state.replicas)
        assert len(set(state.isr)) == len(state.isr)
        assert set(state.isr) <= set(state.replicas)
        assert {*state.adding_replicas, *state.removing_replicas} <= set(state.replicas)
        assert state.leader == NO_NODE or (state.leader in state.isr and image.is_live(state.leader))


def check_changes(before: MetadataImage, cluster: Cluster, command: c.Command) -> None:
    old_states = _partitions(before)
    for name, new in _partitions(cluster.image).items():
        old = old_states.get(name)
        if old is None:
            assert new.partition_epoch == 0
        elif old != new:
            assert new.partition_epoch == old.partition_epoch + 1
            assert new.leader_epoch - old.leader_epoch in ((1,) if new.leader != old.leader else (0, 1))
            if new.leader not in (old.leader, NO_NODE):
                check_election(cluster, command, name, old, new)
    for node, broker in cluster.image.brokers.items():
        if before.brokers.get(node) != broker and isinstance(command, c.RegisterBroker):
            assert broker.broker_epoch > before.last_broker_epoch


def check_first_epochs(before: MetadataImage, image: MetadataImage, highest: dict[TopicName, int]) -> None:
    """A new partition begins above every leader epoch that deleted topics of its name had."""
    for topic in before.topics.values():
        if topic.topic_id not in image.topic_names:
            epochs = [state.leader_epoch for state in topic.partitions.values()]
            highest[topic.name] = max(highest.get(topic.name, -1), *epochs)
    old_states = _partitions(before)
    for name, new in _partitions(image).items():
        if name not in old_states:
            assert new.leader_epoch == highest.get(name.topic, -1) + 1


def check_election(
    cluster: Cluster, command: c.Command, name: TopicIdPartition, old: PartitionState, new: PartitionState
) -> None:
    assert cluster.image.is_active(new.leader)
    if name in cluster.delta.unclean_elections:
        configs = cluster.image.topics[name.topic].configs
        asked = isinstance(command, c.ElectLeaders) and command.kind is c.ElectionKind.UNCLEAN
        assert asked or configs == {"unclean.leader.election.enable": "true"}
        assert not any(cluster.image.is_active(node) for node in old.isr)
    else:
        assert new.leader in old.isr or isinstance(command, c.AlterIsr)


def check_security(before: MetadataImage, cluster: Cluster, command: c.Command) -> None:
    """Only commands about security change it, what they answered is in it, and no token outlives its lifetime."""
    state = cluster.image.security
    if not isinstance(command, SecurityCommand):
        assert state is before.security
    if isinstance(command, DeleteAcls):
        assert not list(state.acls.matching(command.filter))
        assert len(before.security.acls) >= len(state.acls)
    if isinstance(command, CreateAcl):
        assert command.acl in state.acls
    if isinstance(command, RemoveExpiredTokens):
        assert not any(token.is_expired(cluster.now_ms) for token in state.tokens.values())
    assert all(token.issued_ms <= token.expires_ms <= token.max_ms for token in state.tokens.values())
    assert all(4_096 <= kept.iterations <= 16_384 for kept in state.scram_users.values())


def check_difference(before: MetadataImage, cluster: Cluster) -> None:
    found, replayed = difference(before, cluster.image), cluster.delta
    assert found.deleted_topics == replayed.deleted_topics
    assert set(found.changed_partitions) == set(replayed.changed_partitions)
    assert set(found.changed_leaders) == set(replayed.changed_leaders)
    assert set(found.reconfigured_topics) == set(replayed.reconfigured_topics)
    assert found.brokers_reconfigured == replayed.brokers_reconfigured
    assert set(found.changed_brokers) == set(replayed.changed_brokers)


def check_indexes(image: MetadataImage) -> None:
    replicas: dict[NodeId, dict[TopicId, set[PartitionIndex]]] = defaultdict(lambda: defaultdict(set))
    counts: dict[NodeId, list[int]] = defaultdict(lambda: [0, 0, 0])
    for name, state in _partitions(image).items():
        for node in state.replicas:
            replicas[node][name.topic_id].add(name.partition)
            counts[node][0] += 1
        counts[state.replicas[0]][1] += 1
        if state.has_leader:
            counts[state.leader][2] += 1
    assert image.hosted == {
        node: HostedPartitions(
            replicas={topic_id: frozenset(indexes) for topic_id, indexes in by_topic.items()},
            replica_count=counts[node][0],
            preferred_count=counts[node][1],
            leader_count=counts[node][2],
        )
        for node, by_topic in replicas.items()
    }
    assert image.collision_keys == {collision_key(name): name for name in image.topics if can_collide(name)}
    assert image.topic_names == {topic.topic_id: topic.name for topic in image.topics.values()}
    for node in image.brokers:
        assert all(node in state.replicas for _, state in image.hosted_partitions(node))


def test_an_empty_image_survives_a_snapshot() -> None:
    image = MetadataImage(version=Offset(5), last_broker_epoch=BrokerEpoch(9))
    assert decode_image(encode_image(image)) == image


def _partitions(image: MetadataImage) -> dict[TopicIdPartition, PartitionState]:
    return {
        TopicIdPartition(topic.topic_id, topic.name, index): state
        for topic in image.topics.values()
        for index, state in topic.partitions.items()
    }
