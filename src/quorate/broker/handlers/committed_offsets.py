"""How far groups have read: to be stored, as it is stored, and forgotten.

- OffsetCommit, versions 2 to 9: answered when the offsets are durable.
- TxnOffsetCommit, versions 0 to 5: as part of a producer's transaction. The offsets stay pending until it ends. Its
  coordinator is asked first, as for records; from version 5 on that adds the group's partition to the transaction
  (KIP-890), so that AddOffsetsToTxn is not needed.
- OffsetFetch, versions 1 to 10: one group a request, or (from 8 on) many. With ``require_stable`` an offset that an
  open transaction may still change is answered with UNSTABLE_OFFSET_COMMIT.
- OffsetDelete, version 0: forgets how far a group has read in topics that it does not read any more.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.core.effects import TransactionalProducer
from quorate.coordination.core.errors import coordinator_error
from quorate.coordination.groups.core.commands import (
    NO_GENERATION,
    CommitOffsets,
    CommitOffsetsResult,
    DeleteOffsets,
    DeleteOffsetsResult,
    FetchOffsets,
    FetchOffsetsResult,
    OffsetToCommit,
)
from quorate.coordination.groups.core.records import CommittedOffset
from quorate.coordination.transactions.verification import adds_for_offset_commit, refusal_of_offset_commit
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import (
    NO_LEADER_EPOCH,
    NO_TOPIC_ID,
    GroupId,
    LeaderEpoch,
    MemberId,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.metadata.core.image import MetadataImage
from quorate.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from quorate.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from quorate.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from quorate.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from quorate.replication.leading import Leading, require_leading
from quorate.replication.producers import VerificationGuard
from quorate.security.acls import AclOperation, AclResourceType
from quorate.security.api_rules import LISTED_OFFSETS

_DEFAULT_RETENTION = -1
_MEMBER_EPOCHS_FROM = 9
_NO_SEQUENCE = -1
_GROUP_ERROR_FROM = 2
_MANY_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10
_NO_NAME = TopicName("")
_NOTHING = CommittedOffset(offset=Offset(-1), leader_epoch=NO_LEADER_EPOCH, metadata="", commit_timestamp_ms=-1)

Offsets = Mapping[TopicPartition, CommittedOffset]


async def offset_commit(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse:
    command = CommitOffsets(
        group_id=GroupId(request.group_id),
        generation=request.generation_id_or_member_epoch,
        member_id=MemberId(request.member_id),
        group_instance_id=request.group_instance_id,
        offsets=_known_offsets(services, request.topics),
        supports_member_epochs=context.api_version >= _MEMBER_EPOCHS_FROM,
        retention_time_ms=None if request.retention_time_ms == _DEFAULT_RETENTION else request.retention_time_ms,
    )
    result = await services.groups.ask(command.group_id, command, CommitOffsetsResult)
    return OffsetCommitResponse(topics=[_committed(topic, result) for topic in request.topics])


def _committed(topic: OffsetCommitRequestTopic, result: CommitOffsetsResult) -> OffsetCommitResponseTopic:
    def error(index: int) -> ErrorCode:
        key = TopicPartition(TopicName(topic.name), PartitionIndex(index))
        return result.errors.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return OffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error(partition.partition_index)
            )
            for partition in topic.partitions
        ],
    )


async def txn_offset_commit(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    command = _txn_command(services, request)
    try:
        await _require_verified(services, context.api_version, request)
    except KafkaError as error:
        code, topics = error.code, services.metadata.image.topics
        return _txn_response(request, lambda key: code if key.topic in topics else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Nothing may come between the verification and the append: this runs up to it in the same loop turn.
    result = await services.groups.ask(command.group_id, command, CommitOffsetsResult)
    return _txn_response(request, lambda key: result.errors.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


async def _require_verified(services: Services, api_version: int, request: TxnOffsetCommitRequest) -> None:
    """Return when the transaction is open in the group's partition, or may be opened there."""
    adds = adds_for_offset_commit(api_version)
    if not adds and not services.broker_config("transaction.partition.verification.enable"):
        return
    leading = _group_partition(services, GroupId(request.group_id))
    partition = leading.partition
    producer_id, epoch = ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)
    if partition.log.producers.has_open_transaction(producer_id, epoch):
        return
    guard = leading.verifications.begin(producer_id, epoch, _NO_SEQUENCE)
    asked = TopicPartition(CONSUMER_OFFSETS, partition.identity.partition)
    codes = await services.transaction_verifier.verify(
        TransactionalId(request.transactional_id), producer_id, epoch, [asked], adds=adds
    )
    code = refusal_of_offset_commit(codes[asked], api_version)
    if code is not ErrorCode.NONE:
        raise KafkaError(code)
    _use_guard(leading, producer_id, epoch, guard)


def _use_guard(leading: Leading, producer_id: ProducerId, epoch: ProducerEpoch, guard: VerificationGuard) -> None:
    if leading.partition.log.producers.has_open_transaction(producer_id, epoch):
        return
    try:
        leading.verifications.require(producer_id, _NO_SEQUENCE, guard)
    except KafkaError as error:
        raise KafkaError(coordinator_error(error.code)) from error


def _group_partition(services: Services, group_id: GroupId) -> Leading:
    index = services.groups.partition_for(group_id)
    if index is None:
        raise KafkaError(ErrorCode.NOT_COORDINATOR)
    try:
        return require_leading(services.partitions.led(CONSUMER_OFFSETS, index))
    except KafkaError as error:
        raise KafkaError(coordinator_error(error.code)) from error


def _txn_command(services: Services, request: TxnOffsetCommitRequest) -> CommitOffsets:
    return CommitOffsets(
        group_id=GroupId(request.group_id),
        generation=request.generation_id,
        member_id=MemberId(request.member_id),
        group_instance_id=request.group_instance_id,
        offsets=_known_offsets(services, request.topics),
        retention_time_ms=None,
        transaction=TransactionalProducer(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
    )


def _txn_response(
    request: TxnOffsetCommitRequest, error_of: Callable[[TopicPartition], ErrorCode]
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=error_of(
                            TopicPartition(TopicName(topic.name), PartitionIndex(partition.partition_index))
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _known_offsets(
    services: Services, topics: Iterable[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic]
) -> tuple[OffsetToCommit, ...]:
    """Without partitions that the image does not know."""
    image = services.metadata.image
    return tuple(
        OffsetToCommit(
            topic_partition=key,
            offset=Offset(partition.committed_offset),
            leader_epoch=LeaderEpoch(partition.committed_leader_epoch),
            metadata=partition.committed_metadata or "",
        )
        for topic in topics
        for partition in topic.partitions
        if image.partition(*(key := TopicPartition(TopicName(topic.name), PartitionIndex(partition.partition_index))))
        is not None
    )


async def offset_fetch(services: Services, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.api_version >= _MANY_GROUPS_FROM:
        return await _fetch_many(services, context, request)
    return await _fetch_one(services, context, request)


async def _fetch_many(services: Services, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    groups = await asyncio.gather(
        *(_fetch_group(services, context, group, require_stable=request.require_stable) for group in request.groups)
    )
    return OffsetFetchResponse(groups=groups)


async def _fetch_group(
    services: Services, context: RequestContext, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    image = services.metadata.image
    topics = group.topics
    if topics is not None and context.api_version >= _TOPIC_IDS_FROM:
        topics = [_with_name(image, topic) for topic in topics]
    refused: list[OffsetFetchRequestTopics] = []
    if topics is not None and not context.access.is_full:
        refused = [topic for topic in topics if topic.name and not _may_describe(context, topic.name)]
        topics = [topic for topic in topics if not topic.name or _may_describe(context, topic.name)]
    wanted = None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]
    result = await _ask(
        services,
        group.group_id,
        wanted,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        require_stable=require_stable,
    )
    if topics is None:
        topics = [
            OffsetFetchRequestTopics(name=name, topic_id=_topic_id(image, name), partition_indexes=indexes)
            for name, indexes in _visible(context, result)
        ]
    found = [_topic(topic, result) for topic in topics] + [_refused_topic(topic) for topic in refused]
    return OffsetFetchResponseGroup(
        group_id=group.group_id, error_code=result.error, topics=found if result.error is ErrorCode.NONE else []
    )


def _may_describe(context: RequestContext, topic: str) -> bool:
    return context.access.named.may(AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)


def _refused_topic(topic: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index, committed_offset=-1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            for index in topic.partition_indexes
        ],
    )


def _with_name(image: MetadataImage, topic: OffsetFetchRequestTopics) -> OffsetFetchRequestTopics:
    """From version 10 on topics come by id; the name stays empty where no topic has it."""
    name = image.topic_names.get(TopicId(topic.topic_id), _NO_NAME)
    return OffsetFetchRequestTopics(name=name, topic_id=topic.topic_id, partition_indexes=topic.partition_indexes)


def _topic_id(image: MetadataImage, name: str) -> TopicId:
    topic = image.topics.get(TopicName(name))
    return NO_TOPIC_ID if topic is None else topic.topic_id


def _topic(topic: OffsetFetchRequestTopics, result: FetchOffsetsResult) -> OffsetFetchResponseTopics:
    found = [(index, _offset(result.offsets, topic.name, index)) for index in topic.partition_indexes]
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=_error(result, topic.name, index) if topic.name else ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index, committed in found
        ],
    )


async def _fetch_one(services: Services, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    topics = request.topics
    wanted = None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]
    result = await _ask(services, request.group_id, wanted, require_stable=request.require_stable)
    has_group_error = context.api_version >= _GROUP_ERROR_FROM
    if result.error is not ErrorCode.NONE and has_group_error:
        return OffsetFetchResponse(error_code=result.error)
    return OffsetFetchResponse(
        topics=[
            _topic_before_many_groups(name, indexes, result)
            for name, indexes in (_visible(context, result) if wanted is None else wanted)
        ]
    )


def _topic_before_many_groups(
    name: str, indexes: Sequence[int], result: FetchOffsetsResult
) -> OffsetFetchResponseTopic:
    found = [(index, _offset(result.offsets, name, index)) for index in indexes]
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=_error(result, name, index),
            )
            for index, committed in found
        ],
    )


async def _ask(
    services: Services,
    group_id: str,
    wanted: Sequence[tuple[str, Sequence[int]]] | None,
    *,
    member_id: str | None = None,
    member_epoch: int = NO_GENERATION,
    require_stable: bool,
) -> FetchOffsetsResult:
    keys = None
    if wanted is not None:
        keys = tuple(
            TopicPartition(TopicName(name), PartitionIndex(index)) for name, indexes in wanted for index in indexes
        )
    command = FetchOffsets(
        group_id=GroupId(group_id),
        topic_partitions=keys,
        member_id=None if member_id is None else MemberId(member_id),
        member_epoch=member_epoch,
        require_stable=require_stable,
    )
    return await services.groups.ask(command.group_id, command, FetchOffsetsResult)


def _visible(context: RequestContext, result: FetchOffsetsResult) -> list[tuple[str, list[int]]]:
    """All topics of a result that the client may describe, and their partitions."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(result.offsets.keys() | result.unstable):
        topics.setdefault(topic, []).append(partition)
    visible = context.access.allowed(LISTED_OFFSETS, topics)
    return [(topic, partitions) for topic, partitions in topics.items() if topic in visible]


def _offset(offsets: Offsets, name: str, index: int) -> CommittedOffset:
    return offsets.get(TopicPartition(TopicName(name), PartitionIndex(index)), _NOTHING)


def _error(result: FetchOffsetsResult, name: str, index: int) -> ErrorCode:
    is_unstable = TopicPartition(TopicName(name), PartitionIndex(index)) in result.unstable
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else result.error


async def offset_delete(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    image = services.metadata.image
    named = [
        TopicPartition(TopicName(topic.name), PartitionIndex(partition.partition_index))
        for topic in request.topics
        for partition in topic.partitions
    ]
    known = tuple(key for key in named if image.partition(key.topic, key.partition) is not None)
    command = DeleteOffsets(group_id=GroupId(request.group_id), topic_partitions=known)
    result = await services.groups.ask(command.group_id, command, DeleteOffsetsResult)
    if result.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=result.error)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=result.errors.get(
                            TopicPartition(TopicName(topic.name), PartitionIndex(partition.partition_index)),
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


OFFSET_COMMIT = Api(
    request=OffsetCommitRequest,
    min_version=2,
    max_version=9,
    handle=offset_commit,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
TXN_OFFSET_COMMIT = Api(
    request=TxnOffsetCommitRequest,
    min_version=0,
    max_version=5,
    handle=txn_offset_commit,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
OFFSET_FETCH = Api(
    request=OffsetFetchRequest,
    min_version=1,
    max_version=10,
    handle=offset_fetch,
    parts=(
        Parts(
            of=("groups", "topics", "partition_indexes"),
            into=("groups", "topics", "partitions"),
            distinct_by=("group_id",),
        ),
        Parts(of=("topics", "partition_indexes"), into=("topics", "partitions")),
    ),
)
OFFSET_DELETE = Api(
    request=OffsetDeleteRequest,
    min_version=0,
    max_version=0,
    handle=offset_delete,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
