"""Looking at a cluster, and again until what is wrong has either passed or lasted.

A look asks all nodes at once, each on a thread of its own, so that one that hangs does not hold up the others: those
that the bootstrap servers name, and those that only these name in turn. Then it tries on each node what all claim: for
each partition a fetch, a write that nobody takes, and a request for a group.

Nothing is left behind. The write is a batch whose checksum is wrong: a broker looks at it after the question whether it
leads the partition, and none stores it. An unknown producer id would not do: since KIP-360 brokers let it begin with
any sequence. The group is only described, and has to exist no more than its name.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from itertools import count, groupby
from typing import Final

import msgspec

from quorate.cli.doctor.diagnosis import diagnose, information, lasting
from quorate.cli.doctor.findings import Report
from quorate.cli.doctor.observations import (
    Attempt,
    FoundCoordinator,
    LeaderClaim,
    Look,
    NodeAnswers,
    QuorumClaim,
    Silence,
    Trial,
    newest_claims,
)
from quorate.client.admin.brokers import NodeCondition, ask_conditions
from quorate.client.admin.configs import Configs
from quorate.client.cluster import Cluster
from quorate.client.cluster_metadata import ClusterMetadata, LiveBroker, read_metadata
from quorate.client.connections.connection import Connection
from quorate.client.errors import NoBrokerAnswered, UnsupportedApi, check, error_code
from quorate.coordination.core.partitioning import partition_for
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import (
    NO_NODE,
    GroupId,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    Term,
    TopicName,
    TopicPartition,
)
from quorate.kernel.topic_names import CLUSTER_METADATA, CONSUMER_OFFSETS, INTERNAL_TOPICS
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from quorate.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from quorate.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from quorate.protocol.messages.metadata import MetadataRequest, MetadataResponse
from quorate.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quorate.records.batch import CRC_OFFSET, CRC_START
from quorate.records.builder import build_batch
from quorate.records.record import Record

_LOOK_INTERVAL_S: Final = 0.5
_MIN_ISR: Final = "min.insync.replicas"
_NO_AUTO_CREATION_VERSION = 4
_FENCED_BROKERS_VERSION = 2
#: What a node answers that finds no leader of the quorum.
_QUORUM_LEADERLESS = frozenset(
    {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.BROKER_NOT_AVAILABLE}
)

Claims = Mapping[TopicPartition, LeaderClaim]

_PARTITIONS_PER_REQUEST: Final = 500
_CONSUMER: Final = -1
_LATEST: Final = -1
#: From version 11 on followers serve consumers too (KIP-392), so that an answer would say nothing about leadership.
_FETCH_CEILING: Final = 10
#: The newest version that names topics by name.
_PRODUCE_CEILING: Final = 12
_PRODUCE_HINTS_FROM: Final = 10
_MANY_KEYS_FROM: Final = 4
_LEADER_ALONE: Final = 1
_WRITE_TIMEOUT_MS: Final = 1_000
#: No broker hands out such an id.
_NOBODY: Final = ProducerId(2**62)


class Examination:
    """Of one cluster. What rarely changes is asked for once."""

    def __init__(self, cluster: Cluster, executor: Executor, *, settle_s: float, writes: bool) -> None:
        self._cluster = cluster
        self._executor = executor
        self._settle_s = settle_s
        self._writes = writes
        self._min_isr: dict[str, int] = {}

    def examine(self) -> Report:
        """Look until nothing is wrong or the time is up; what every look has shown is told."""
        give_up_at = time.monotonic() + self._settle_s
        looks = [self._look()]
        while diagnose(looks[-1]) and (len(looks) == 1 or time.monotonic() < give_up_at):
            time.sleep(_LOOK_INTERVAL_S)
            looks.append(self._look())
        last = looks[-1]
        return Report(
            node_count=len(last.node_ids),
            partition_count=len(newest_claims(last.answers)),
            claims_tried=sum(len(look.trials) + len(look.coordinators) for look in looks),
            findings=lasting(looks),
            information=information(last),
        )

    def _look(self) -> Look:
        asked = ask_all(self._cluster, self._executor)
        claims = {name: found.claim for name, found in newest_claims(asked.answers).items()}
        self._learn_min_isr({name.topic for name in claims})
        tried = list(self._executor.map(lambda each: self._try(each, claims), asked.answers))
        return Look(
            answers=asked.answers,
            silences=[*asked.silences, *(each for each in tried if isinstance(each, Silence))],
            trials=[trial for each in tried if not isinstance(each, Silence) for trial in each[0]],
            coordinators=[found for each in tried if not isinstance(each, Silence) for found in each[1]],
            min_isr=self._min_isr,
            lost_bootstrap_servers=asked.lost_bootstrap_servers,
        )

    def _try(self, answers: NodeAnswers, claims: Claims) -> tuple[list[Trial], list[FoundCoordinator]] | Silence:
        node = answers.node
        try:
            connection = self._cluster.connection_to(node.address)
            trials = list(try_claims(connection, node.node_id, claims, writes=self._writes))
            groups = groups_by_partition(claims)
            found = list(find_coordinators(connection, node.node_id, groups)) if groups else []
        except QuorateError as error:
            return Silence(node=node, reason=str(error))
        return trials, found

    def _learn_min_isr(self, topics: set[str]) -> None:
        missing = topics - set(self._min_isr)
        if missing:
            with suppress(QuorateError):  # A guide and no more; who may not ask for configs is still examined.
                for topic, entries in Configs(self._cluster).describe_topics(sorted(missing)).items():
                    self._min_isr[topic] = int(entries[_MIN_ISR].value or 1)


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    answers: Sequence[NodeAnswers]
    silences: Sequence[Silence]
    lost_bootstrap_servers: Sequence[Address]


class _Said(msgspec.Struct, frozen=True, kw_only=True):
    """What was said at one address."""

    metadata: ClusterMetadata
    registered: dict[LiveBroker, bool]
    quorum: QuorumClaim | None
    conditions: list[NodeCondition]

    def nodes(self) -> set[LiveBroker]:
        named = {*self.metadata.brokers.values(), *self.registered}
        return {LiveBroker(node_id=broker.node_id, address=broker.address) for broker in named}


def ask_all(cluster: Cluster, executor: Executor) -> _Asked:
    """Ask the bootstrap servers, then whom they name, until nobody names anybody new."""
    said: dict[Address, _Said | QuorateError] = {}
    wanted = set(cluster.config.bootstrap_addresses())
    while wanted:
        said |= dict(zip(wanted, executor.map(lambda address: _ask(cluster, address), wanted), strict=True))
        wanted = {node.address for node in _named(said.values())} - set(said)
    if not any(isinstance(each, _Said) for each in said.values()):
        raise NoBrokerAnswered("the doctor", {at: why for at, why in said.items() if isinstance(why, QuorateError)})
    return _sort_out(said)


def _sort_out(said: dict[Address, _Said | QuorateError]) -> _Asked:
    answers, silences = [], []
    nodes = sorted(_named(said.values()), key=lambda node: (node.node_id, str(node.address)))
    for node in nodes:
        match said[node.address]:
            case _Said() as found:
                answers.append(_answers(node, found))
            case reason:
                silences.append(Silence(node=node, reason=str(reason)))
    known = {node.address for node in nodes}
    lost = [address for address, each in said.items() if isinstance(each, QuorateError) and address not in known]
    return _Asked(answers=answers, silences=silences, lost_bootstrap_servers=lost)


def _named(said: Iterable[_Said | QuorateError]) -> set[LiveBroker]:
    return {node for each in said if isinstance(each, _Said) for node in each.nodes()}


def _answers(node: LiveBroker, said: _Said) -> NodeAnswers:
    fenced = {broker.node_id: is_fenced for broker, is_fenced in said.registered.items()}
    # Who answers at an address is not said in the answer; that is known only here.
    conditions = [msgspec.structs.replace(each, node_id=node.node_id) for each in said.conditions]
    return NodeAnswers(node=node, metadata=said.metadata, fenced=fenced, quorum=said.quorum, conditions=conditions)


def _ask(cluster: Cluster, address: Address) -> _Said | QuorateError:
    try:
        connection = cluster.connection_to(address)
        quorum = _ask_quorum(connection)  # First, as it may take a while: the claims that get tried are to be fresh.
        conditions = ask_conditions(connection, NO_NODE)
        return _Said(
            metadata=_ask_metadata(connection),
            registered=_ask_registered(connection),
            quorum=quorum,
            conditions=conditions,
        )
    except QuorateError as error:
        return error


def _ask_metadata(connection: Connection) -> ClusterMetadata:
    version = connection.versions.choose(MetadataRequest)
    allow = {} if version < _NO_AUTO_CREATION_VERSION else {"allow_auto_topic_creation": False}
    answer = connection.ask(MetadataRequest(topics=None, **allow), MetadataResponse, version)
    check(answer.error_code, f"get the metadata of {connection.address}")
    return read_metadata(answer)


def _ask_registered(connection: Connection) -> dict[LiveBroker, bool]:
    """All brokers and whether they are fenced, where that can be told."""
    if not connection.versions.supports(DescribeClusterRequest, at_least=_FENCED_BROKERS_VERSION):
        return {}
    version = connection.versions.choose(DescribeClusterRequest)
    answer = connection.ask(DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse, version)
    if answer.error_code != ErrorCode.NONE:
        return {}
    return {
        LiveBroker(node_id=NodeId(broker.broker_id), address=Address(broker.host, broker.port)): broker.is_fenced
        for broker in answer.brokers
    }


def _ask_quorum(connection: Connection) -> QuorumClaim | None:
    partition = RequestPartitionData(partition_index=0)
    request = DescribeQuorumRequest(topics=[RequestTopicData(topic_name=CLUSTER_METADATA, partitions=[partition])])
    try:
        version = connection.versions.choose(DescribeQuorumRequest)
        answer = connection.ask(request, DescribeQuorumResponse, version)
        check(answer.error_code, "describe the quorum", answer.error_message)
        [found] = [each for topic in answer.topics for each in topic.partitions]
        check(found.error_code, "describe the quorum")
    except UnsupportedApi:
        return None
    except KafkaError as error:
        return QuorumClaim(None, Term(-1)) if error.code in _QUORUM_LEADERLESS else None
    return QuorumClaim(NodeId(found.leader_id) if found.leader_id >= 0 else None, Term(found.leader_epoch))


def try_claims(connection: Connection, node_id: NodeId, claims: Claims, *, writes: bool) -> Iterator[Trial]:
    """Try them all on the node at the other end, whether it is named as leader or not."""
    names = sorted(claims)
    for start in range(0, len(names), _PARTITIONS_PER_REQUEST):
        some = {name: claims[name] for name in names[start : start + _PARTITIONS_PER_REQUEST]}
        yield from _try_fetch(connection, node_id, some)
        writable = {name: claim for name, claim in some.items() if name.topic not in INTERNAL_TOPICS}
        if writes and writable:
            yield from _try_write(connection, node_id, writable)
    groups = groups_by_partition(claims)
    if groups:
        yield from _try_groups(connection, node_id, claims, groups)


def groups_by_partition(claims: Claims) -> dict[TopicPartition, GroupId]:
    """A group's name for each partition of __consumer_offsets; none while that topic is not there."""
    partitions = {name for name in claims if name.topic == CONSUMER_OFFSETS}
    found: dict[TopicPartition, GroupId] = {}
    numbers = count()
    while len(found) < len(partitions):
        group_id = GroupId(f"quorate-doctor-{next(numbers)}")
        partition = TopicPartition(CONSUMER_OFFSETS, partition_for(group_id, len(partitions)))
        if partition not in partitions:
            return {}  # Partitions are missing from the answer: where a group belongs cannot be told.
        found.setdefault(partition, group_id)
    return found


def find_coordinators(
    connection: Connection, node_id: NodeId, groups: Mapping[TopicPartition, GroupId]
) -> Iterator[FoundCoordinator]:
    version = connection.versions.choose(FindCoordinatorRequest)
    asked = {group_id: partition for partition, group_id in groups.items()}
    requests = (
        [FindCoordinatorRequest(coordinator_keys=list(asked))]
        if version >= _MANY_KEYS_FROM
        else [FindCoordinatorRequest(key=group_id) for group_id in asked]
    )
    keys = iter(asked)
    for request in requests:
        answer = connection.ask(request, FindCoordinatorResponse, version)
        for found in answer.coordinators if version >= _MANY_KEYS_FROM else [answer]:
            group_id = GroupId(found.key) if isinstance(found, Coordinator) else next(keys)
            yield FoundCoordinator(
                node_id=node_id,
                group_id=group_id,
                partition=asked[group_id],
                outcome=error_code(found.error_code),
                coordinator=NodeId(found.node_id),
            )


def _try_fetch(connection: Connection, node_id: NodeId, claims: Claims) -> Iterator[Trial]:
    ends = _latest_offsets(connection, claims)
    request = FetchRequest(
        max_bytes=1,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=name.partition,
                        current_leader_epoch=claims[name].leader_epoch,
                        fetch_offset=ends.get(name, 0),
                        partition_max_bytes=1,
                    )
                    for name in names
                ],
            )
            for topic, names in _by_topic(claims)
        ],
    )
    version = connection.versions.choose(FetchRequest, ceiling=_FETCH_CEILING)
    answer = connection.ask(request, FetchResponse, version)
    for topic in answer.responses:
        for part in topic.partitions:
            name = TopicPartition(TopicName(topic.topic), PartitionIndex(part.partition_index))
            yield _trial(node_id, Attempt.FETCH, name, claims, part.error_code)


def _latest_offsets(connection: Connection, claims: Claims) -> dict[TopicPartition, Offset]:
    """Where the fetch is to start, so that it brings nothing: of those partitions that the node leads."""
    request = ListOffsetsRequest(
        replica_id=_CONSUMER,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[ListOffsetsPartition(partition_index=name.partition, timestamp=_LATEST) for name in names],
            )
            for topic, names in _by_topic(claims)
        ],
    )
    answer = connection.ask(request, ListOffsetsResponse, connection.versions.choose(ListOffsetsRequest))
    return {
        TopicPartition(TopicName(topic.name), PartitionIndex(part.partition_index)): Offset(part.offset)
        for topic in answer.topics
        for part in topic.partitions
        if part.error_code == ErrorCode.NONE
    }


def _try_write(connection: Connection, node_id: NodeId, claims: Claims) -> Iterator[Trial]:
    batch = unacceptable_batch()
    request = ProduceRequest(
        acks=_LEADER_ALONE,
        timeout_ms=_WRITE_TIMEOUT_MS,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=name.partition, records=batch) for name in names]
            )
            for topic, names in _by_topic(claims)
        ],
    )
    version = connection.versions.choose(ProduceRequest, ceiling=_PRODUCE_CEILING)
    answer = connection.ask(request, ProduceResponse, version)
    for topic in answer.responses:
        for part in topic.partition_responses:
            name = TopicPartition(TopicName(topic.name), PartitionIndex(part.index))
            hint = _hint(part.current_leader)
            has_room = version >= _PRODUCE_HINTS_FROM
            yield _trial(node_id, Attempt.WRITE, name, claims, part.error_code, hint=hint, has_room_for_hint=has_room)


def unacceptable_batch() -> bytes:
    """One record of an idempotent producer that does not exist, under a checksum that is wrong in every bit."""
    batch = bytearray(
        build_batch(
            [Record(offset=Offset(0), timestamp=0, key=b"quorate-doctor", value=b"")],
            producer_id=_NOBODY,
            producer_epoch=ProducerEpoch(0),
            base_sequence=0,
        )
    )
    for position in range(CRC_OFFSET, CRC_START):
        batch[position] ^= 0xFF
    return bytes(batch)


def _try_groups(
    connection: Connection, node_id: NodeId, claims: Claims, groups: Mapping[TopicPartition, GroupId]
) -> Iterator[Trial]:
    request = DescribeGroupsRequest(groups=list(groups.values()))
    answer = connection.ask(request, DescribeGroupsResponse, connection.versions.choose(DescribeGroupsRequest))
    partitions = {group_id: partition for partition, group_id in groups.items()}
    for group in answer.groups:
        partition = partitions[GroupId(group.group_id)]
        yield _trial(node_id, Attempt.GROUP_REQUEST, partition, claims, group.error_code)


def _trial(
    node_id: NodeId,
    attempt: Attempt,
    partition: TopicPartition,
    claims: Claims,
    code: int,
    *,
    hint: LeaderClaim | None = None,
    has_room_for_hint: bool = False,
) -> Trial:
    return Trial(
        node_id=node_id,
        attempt=attempt,
        partition=partition,
        claim=claims[partition],
        outcome=error_code(code),
        hint=hint,
        has_room_for_hint=has_room_for_hint,
    )


def _hint(leader: LeaderIdAndEpoch) -> LeaderClaim | None:
    return None if leader.leader_id < 0 else LeaderClaim(NodeId(leader.leader_id), LeaderEpoch(leader.leader_epoch))


def _by_topic(claims: Claims) -> Iterator[tuple[TopicName, Sequence[TopicPartition]]]:
    for topic, names in groupby(sorted(claims), key=lambda name: name.topic):
        yield topic, list(names)
