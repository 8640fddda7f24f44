"""Requests about records, topics and the cluster's nodes."""

from collections.abc import Sequence
from typing import Final

from quorate.kernel.ids import ProducerId
from quorate.protocol.apis import ApiKey
from quorate.protocol.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from quorate.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from quorate.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tests.compat.raw_records import batch
from tests.compat.security_matrix.case import Case, case, case_each
from tests.compat.security_matrix.names import DOOMED, GONE, HERE, NAMES, OTHER, PREFIX
from tests.compat.security_matrix.world import World

_NO_BROKER: Final = 99
_NO_PRODUCER: Final = ProducerId(987_654)
_OBSERVER = -1
_EARLIEST = -2


def _produce(
    world: World,
    version: int,
    names: Sequence[str] = NAMES,
    *,
    acks: int = 1,
    transactional_id: str | None = None,
    is_transactional: bool = False,
) -> produce.ProduceRequest:
    records = batch(1)
    if is_transactional:
        records = batch(1, _NO_PRODUCER, 0, 0, is_transactional=True)
    return produce.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[
            produce.TopicProduceData(
                name=name,
                topic_id=world.ids[name],
                partition_data=[produce.PartitionProduceData(index=0, records=records)],
            )
            for name in names
        ],
    )


def _fetch(world: World, version: int, *, replica_id: int = _OBSERVER, session_epoch: int = -1) -> fetch.FetchRequest:
    has_state = version >= 15
    partition = fetch.FetchPartition(partition_max_bytes=1024)
    return fetch.FetchRequest(
        replica_id=_OBSERVER if has_state else replica_id,
        replica_state=fetch.ReplicaState(replica_id=replica_id) if has_state else fetch.ReplicaState(),
        session_epoch=session_epoch,
        topics=[
            fetch.FetchTopic(
                topic=name,
                topic_id=world.ids[name],
                partitions=[partition],
            )
            for name in NAMES
        ],
    )


def _metadata(
    world: World, version: int, names: Sequence[str] = NAMES, *, by_id: bool = False, creates: bool = False
) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=[
            metadata.MetadataRequestTopic(topic_id=world.ids[name], name=None)
            if by_id
            else metadata.MetadataRequestTopic(name=name)
            for name in names
        ],
        allow_auto_topic_creation=creates or version < 4,
        include_cluster_authorized_operations=8 <= version <= 10,
        include_topic_authorized_operations=version >= 8,
    )


def _all_topics(version: int) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=() if version == 0 else None,
        include_cluster_authorized_operations=8 <= version <= 10,
        include_topic_authorized_operations=version >= 8,
    )


def _create_topics(names: Sequence[str], *, validate_only: bool = True) -> create_topics.CreateTopicsRequest:
    topics = [create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    return create_topics.CreateTopicsRequest(topics=topics, validate_only=validate_only)


def _delete_topics(world: World, version: int, *, by_id: bool = False) -> delete_topics.DeleteTopicsRequest:
    names = (*DOOMED, *GONE)
    if version < 6:
        return delete_topics.DeleteTopicsRequest(topic_names=names, timeout_ms=10_000)
    topics = [
        delete_topics.DeleteTopicState(topic_id=world.ids[name]) if by_id else delete_topics.DeleteTopicState(name=name)
        for name in names
    ]
    return delete_topics.DeleteTopicsRequest(topics=topics, timeout_ms=10_000)


def _list_offsets(world: World, version: int) -> list_offsets.ListOffsetsRequest:
    partition = list_offsets.ListOffsetsPartition(timestamp=_EARLIEST)
    topics = [list_offsets.ListOffsetsTopic(name=name, partitions=[partition]) for name in NAMES]
    return list_offsets.ListOffsetsRequest(replica_id=_OBSERVER, topics=topics, timeout_ms=10_000)


def _epochs(world: World, version: int) -> offset_for_leader_epoch.OffsetForLeaderEpochRequest:
    partition = offset_for_leader_epoch.OffsetForLeaderPartition()
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(
        replica_id=_OBSERVER,
        topics=[offset_for_leader_epoch.OffsetForLeaderTopic(topic=name, partitions=[partition]) for name in NAMES],
    )


def _reassign(world: World, version: int) -> alter_partition_reassignments.AlterPartitionReassignmentsRequest:
    partition = alter_partition_reassignments.ReassignablePartition(replicas=None)
    topics = [alter_partition_reassignments.ReassignableTopic(name=name, partitions=[partition]) for name in NAMES]
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=topics)


def _quorum(topic: str) -> describe_quorum.DescribeQuorumRequest:
    partition = describe_quorum.RequestPartitionData()
    return describe_quorum.DescribeQuorumRequest(
        topics=[describe_quorum.RequestTopicData(topic_name=topic, partitions=[partition])]
    )


def _move_logs(world: World, version: int) -> alter_replica_log_dirs.AlterReplicaLogDirsRequest:
    topics = [alter_replica_log_dirs.AlterReplicaLogDirTopic(name=name, partitions=[0]) for name in NAMES]
    folder = alter_replica_log_dirs.AlterReplicaLogDir(path="/no/such/folder", topics=topics)
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[folder])


_Key = ApiKey

TOPIC_CASES: Final[tuple[Case, ...]] = (
    case(_Key.PRODUCE, "to topics", _produce, 7, 8, 12),
    *case_each(_Key.PRODUCE, "to", NAMES, lambda name, world, version: _produce(world, version, [name]), 12),
    case(
        _Key.PRODUCE,
        "without acks",
        lambda world, version: _produce(world, version, HERE, acks=0),
        is_unanswered=True,
    ),
    case(
        _Key.PRODUCE,
        "without acks to what may be missing",
        lambda world, version: _produce(world, version, acks=0),
        is_unanswered=True,
    ),
    *case_each(
        _Key.PRODUCE,
        "in transaction",
        NAMES,
        lambda name, world, version: _produce(world, version, acks=-1, transactional_id=name, is_transactional=True),
        12,
    ),
    case(
        _Key.PRODUCE,
        "in a transaction without a name",
        lambda world, version: _produce(world, version, acks=-1, is_transactional=True),
        12,
    ),
    case(
        _Key.PRODUCE,
        "in no transaction, with a name",
        lambda world, version: _produce(world, version, acks=-1, transactional_id=NAMES[0]),
        12,
    ),
    case(_Key.FETCH, "from topics", _fetch, 7, 12, 15),
    case(_Key.FETCH, "in a new session", lambda world, version: _fetch(world, version, session_epoch=0), 12, first=7),
    case(_Key.FETCH, "as a follower", lambda world, version: _fetch(world, version, replica_id=_NO_BROKER), 12, 15),
    case(_Key.LIST_OFFSETS, "of topics", _list_offsets),
    case(_Key.OFFSET_FOR_LEADER_EPOCH, "of topics", _epochs),
    case(
        _Key.DELETE_RECORDS,
        "of topics",
        lambda _world, _version: delete_records.DeleteRecordsRequest(
            topics=[
                delete_records.DeleteRecordsTopic(name=name, partitions=[delete_records.DeleteRecordsPartition()])
                for name in NAMES
            ],
            timeout_ms=10_000,
        ),
    ),
    case(_Key.METADATA, "of topics", _metadata, 7, 8, 10, 11, 12, first=4),
    *case_each(_Key.METADATA, "of", NAMES, lambda name, world, version: _metadata(world, version, [name]), first=4),
    case(_Key.METADATA, "of orders-here and team-here", lambda world, version: _metadata(world, version, HERE), 3),
    case(_Key.METADATA, "of topics by id", lambda world, version: _metadata(world, version, by_id=True), first=12),
    case(_Key.METADATA, "of all topics", lambda _, version: _all_topics(version), 8, 10, is_list=True),
    case(
        _Key.METADATA,
        "of no topics",
        lambda _world, version: metadata.MetadataRequest(include_cluster_authorized_operations=8 <= version <= 10),
        8,
        10,
        first=1,
    ),
    case(
        _Key.METADATA,
        "of new topics",
        lambda world, version: _metadata(world, version, [world.fresh(OTHER), world.fresh(PREFIX)], creates=True),
        3,
    ),
    case(
        _Key.DESCRIBE_CLUSTER,
        "with operations",
        lambda _world, version: describe_cluster.DescribeClusterRequest(include_cluster_authorized_operations=True),
    ),
    case(
        _Key.DESCRIBE_CLUSTER,
        "without operations",
        lambda _world, version: describe_cluster.DescribeClusterRequest(),
    ),
    case(
        _Key.DESCRIBE_TOPIC_PARTITIONS,
        "of topics",
        lambda _world, _version: describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=name) for name in NAMES]
        ),
    ),
    case(
        _Key.DESCRIBE_TOPIC_PARTITIONS,
        "of all topics",
        lambda _world, _version: describe_topic_partitions.DescribeTopicPartitionsRequest(),
        is_list=True,
    ),
    case(_Key.CREATE_TOPICS, "that may be there", lambda _world, _version: _create_topics(NAMES), 4, 5),
    case(
        _Key.CREATE_TOPICS,
        "that are new",
        lambda world, version: _create_topics([world.fresh(OTHER), world.fresh(PREFIX)], validate_only=False),
        5,
    ),
    case(_Key.DELETE_TOPICS, "by name", _delete_topics, 5, before=lambda world: world.make_topics(DOOMED)),
    case(
        _Key.DELETE_TOPICS,
        "by id",
        lambda world, version: _delete_topics(world, version, by_id=True),
        first=6,
        before=lambda world: world.make_topics(DOOMED),
    ),
    case(
        _Key.CREATE_PARTITIONS,
        "of topics",
        lambda _world, _version: create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in NAMES],
            timeout_ms=10_000,
            validate_only=True,
        ),
    ),
    case(_Key.ALTER_PARTITION_REASSIGNMENTS, "of topics", _reassign),
    case(
        _Key.LIST_PARTITION_REASSIGNMENTS,
        "of all topics",
        lambda _world, _version: list_partition_reassignments.ListPartitionReassignmentsRequest(),
    ),
    case(
        _Key.LIST_PARTITION_REASSIGNMENTS,
        "of topics",
        lambda _world, _version: list_partition_reassignments.ListPartitionReassignmentsRequest(
            topics=[
                list_partition_reassignments.ListPartitionReassignmentsTopics(name=name, partition_indexes=[0])
                for name in NAMES
            ]
        ),
    ),
    case(
        _Key.ELECT_LEADERS,
        "of topics",
        lambda _world, _version: elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic=name, partitions=[0]) for name in NAMES]
        ),
    ),
    case(
        _Key.ELECT_LEADERS,
        "of all topics",
        lambda _world, _version: elect_leaders.ElectLeadersRequest(topic_partitions=None),
        is_list=True,
    ),
    case(
        _Key.DESCRIBE_LOG_DIRS,
        "of topics",
        lambda _world, _version: describe_log_dirs.DescribeLogDirsRequest(
            topics=[describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=[0]) for name in NAMES]
        ),
        2,
        3,
    ),
    case(
        _Key.DESCRIBE_LOG_DIRS,
        "of all topics",
        lambda _world, _version: describe_log_dirs.DescribeLogDirsRequest(topics=None),
        is_list=True,
    ),
    case(_Key.ALTER_REPLICA_LOG_DIRS, "of topics", _move_logs),
    case(
        _Key.DESCRIBE_PRODUCERS,
        "of topics",
        lambda _world, _version: describe_producers.DescribeProducersRequest(
            topics=[describe_producers.TopicRequest(name=name, partition_indexes=[0]) for name in NAMES]
        ),
    ),
    case(_Key.DESCRIBE_QUORUM, "of the metadata", lambda _world, _version: _quorum("__cluster_metadata"), 1),
    case(_Key.DESCRIBE_QUORUM, "of a topic here", lambda _world, _version: _quorum(HERE[0])),
    case(
        _Key.UNREGISTER_BROKER,
        "that there is not",
        lambda _world, _version: UnregisterBrokerRequest(broker_id=_NO_BROKER),
    ),
    case(
        _Key.ADD_RAFT_VOTER,
        "that there is not",
        lambda world, _version: AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=1000,
            voter_id=_NO_BROKER,
            voter_directory_id=world.ids[GONE[0]],
            listeners=[Listener(name="CONTROLLER", host="127.0.0.1", port=1)],
        ),
    ),
    case(
        _Key.REMOVE_RAFT_VOTER,
        "that there is not",
        lambda world, _version: RemoveRaftVoterRequest(
            cluster_id=None, voter_id=_NO_BROKER, voter_directory_id=world.ids[GONE[0]]
        ),
    ),
    case(
        _Key.API_VERSIONS,
        "",
        lambda _world, _version: ApiVersionsRequest(client_software_name="raw", client_software_version="1"),
        3,
    ),
)
