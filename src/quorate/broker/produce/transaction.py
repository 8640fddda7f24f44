"""The transaction that a Produce request belongs to, and which of its batches may be written.

A batch goes on with a transaction that is open in its partition, or it is the first: then the coordinator must have
confirmed it, and nothing may have ended it since.
"""

from collections.abc import Callable, Sequence

import msgspec

from quorate.coordination.transactions.verification import (
    ProducerTurns,
    TransactionVerifier,
    adds_for_produce,
    refusal_of_produce,
)
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_PRODUCER_ID, ProducerId, TopicPartition, TransactionalId
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quorate.records.batch import BatchHeader, read_header
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition
from quorate.replication.producers import VerificationGuard

FindLeading = Callable[[TopicProduceData, int], Leading]


class TransactionOfRequest:
    def __init__(
        self,
        request: ProduceRequest,
        api_version: int,
        *,
        find: FindLeading,
        verifier: TransactionVerifier,
        turns: ProducerTurns,
        requires_verification: bool,
    ) -> None:
        self._verifier = verifier
        self._turns = turns
        self._api_version = api_version
        self._adds = adds_for_produce(api_version)
        self._transactional_id = TransactionalId(request.transactional_id or "")
        self._batches = _transactional_batches(request, find)
        self._guards: dict[Partition, VerificationGuard] = {}
        self._refusals: dict[Partition, KafkaError] = {}
        self._is_verified = self._adds or requires_verification
        self._producers = {(header.producer_id, header.producer_epoch) for _, header in self._batches}

    @property
    def producer_id(self) -> ProducerId:
        return next((producer_id for producer_id, _ in self._producers), NO_PRODUCER_ID)

    @property
    def may_write_at_once(self) -> bool:
        """Whether there is nothing to ask the coordinator, and nobody before who does."""
        if not self._is_verified or len(self._producers) != 1:
            return True
        return self._turns.is_free(self.producer_id) and not self._first_batches()

    async def verify(self) -> None:
        """Ask the coordinator about the partitions in which the transaction is not open yet."""
        first = self._first_batches()
        if not first:
            return
        self._guards = {partition: _guard(partition, header) for partition, header in first}
        ((producer_id, producer_epoch),) = self._producers
        codes = await self._verifier.verify(
            self._transactional_id,
            producer_id,
            producer_epoch,
            [_name(partition) for partition, _ in first],
            adds=self._adds,
        )
        for partition, _ in first:
            refusal = refusal_of_produce(codes[_name(partition)], self._api_version)
            if refusal is not None:
                self._refusals[partition] = refusal

    def require_admitted(self, leading: Leading, header: BatchHeader) -> None:
        """Raises the error with which the batch is refused. What is admitted must be appended at once."""
        partition = leading.partition
        if not header.is_transactional:
            return
        if len(self._producers) > 1:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "A transaction has one producer.")
        if partition in self._refusals:
            raise self._refusals[partition].again()
        if not self._is_verified or _is_open(partition, header):
            return
        if self._adds and header.base_sequence != 0 and partition.log.producers.get(header.producer_id) is None:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} is not known and starts at sequence {header.base_sequence}",
            )
        leading.verifications.require(header.producer_id, header.base_sequence, self._guards.get(partition))

    def appended(self, leading: Leading) -> None:
        leading.verifications.begun(self.producer_id)

    def _first_batches(self) -> list[tuple[Partition, BatchHeader]]:
        return [(partition, header) for partition, header in self._batches if not _is_open(partition, header)]


def with_own_records(request: ProduceRequest) -> ProduceRequest:
    """The request with its batches copied out of the connection's memory."""
    return msgspec.structs.replace(
        request,
        topic_data=[
            msgspec.structs.replace(topic, partition_data=[with_own_memory(data) for data in topic.partition_data])
            for topic in request.topic_data
        ],
    )


def with_own_memory(data: PartitionProduceData) -> PartitionProduceData:
    if not isinstance(data.records, memoryview):
        return data
    return msgspec.structs.replace(data, records=memoryview(bytearray(data.records)))


def _transactional_batches(request: ProduceRequest, find: FindLeading) -> Sequence[tuple[Partition, BatchHeader]]:
    """What can be read and written here; the rest is refused when its turn comes."""
    batches = []
    for topic in request.topic_data:
        for data in topic.partition_data:
            if not isinstance(data.records, memoryview):
                continue
            try:
                header = read_header(data.records)
                if header.is_transactional and header.producer_id > NO_PRODUCER_ID:
                    batches.append((find(topic, data.index).partition, header))
            except KafkaError:
                continue
    return batches


def _guard(partition: Partition, header: BatchHeader) -> VerificationGuard:
    if isinstance(partition.role, Leading):
        return partition.role.verifications.begin(header.producer_id, header.producer_epoch, header.base_sequence)
    return VerificationGuard.of_earlier_leadership(header.producer_epoch, header.base_sequence)


def _is_open(partition: Partition, header: BatchHeader) -> bool:
    return partition.log.producers.has_open_transaction(header.producer_id, header.producer_epoch)


def _name(partition: Partition) -> TopicPartition:
    return TopicPartition(partition.identity.topic, partition.identity.partition)
