"""How far a group has read, to be stored.

- OffsetCommit, versions 2 to 9: answered when the offsets are durable.
- TxnOffsetCommit, versions 0 to 5: as part of a producer's transaction. The offsets stay pending until it ends. Its
  coordinator is asked first, as for records; from version 5 on that adds the group's partition to the transaction
  (KIP-890), so that AddOffsetsToTxn is not needed.
"""

from collections.abc import Callable, Iterable

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.core.effects import TransactionalProducer
from quorate.coordination.core.errors import coordinator_error
from quorate.coordination.groups.core.commands import CommitOffsets, CommitOffsetsResult, OffsetToCommit
from quorate.coordination.transactions.verification import adds_for_offset_commit, refusal_of_offset_commit
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import (
    GroupId,
    LeaderEpoch,
    MemberId,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
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

_DEFAULT_RETENTION = -1
_MEMBER_EPOCHS_FROM = 9
_NO_SEQUENCE = -1


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
    return OffsetCommitResponse(topics=[_answer(topic, result) for topic in request.topics])


def _answer(topic: OffsetCommitRequestTopic, result: CommitOffsetsResult) -> OffsetCommitResponseTopic:
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
    command = _command(services, request)
    try:
        await _require_verified(services, context.api_version, request)
    except KafkaError as error:
        code = error.code
        return _response(request, lambda _: code)
    # Nothing may come between the verification and the append: this runs up to it in the same loop turn.
    result = await services.groups.ask(command.group_id, command, CommitOffsetsResult)
    return _response(request, lambda key: result.errors.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


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
    _use(leading, producer_id, epoch, guard)


def _use(leading: Leading, producer_id: ProducerId, epoch: ProducerEpoch, guard: VerificationGuard) -> None:
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


def _command(services: Services, request: TxnOffsetCommitRequest) -> CommitOffsets:
    return CommitOffsets(
        group_id=GroupId(request.group_id),
        generation=request.generation_id,
        member_id=MemberId(request.member_id),
        group_instance_id=request.group_instance_id,
        offsets=_known_offsets(services, request.topics),
        retention_time_ms=None,
        transaction=TransactionalProducer(ProducerId(request.producer_id), ProducerEpoch(request.producer_epoch)),
    )


def _response(
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
