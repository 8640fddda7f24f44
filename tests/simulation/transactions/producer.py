"""One instance of a transactional producer: what Java's does, in both versions of the protocol.

In the first it adds partitions itself and keeps its epoch; in the second (KIP-890) its first records add them, and
every end of a transaction gives it the next epoch.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import NamedTuple

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from quorate.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from quorate.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quorate.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from quorate.records.builder import build_batch
from quorate.records.record import Record
from tests.simulation.replication.clients import RETRIED, TOPIC, NoAnswer
from tests.simulation.replication.cluster import ReplicatedCluster
from tests.simulation.replication.history import History
from tests.simulation.transactions.coordinated import Coordinated, CoordinatedClient, Kind
from tests.simulation.transactions.findings import Checker, report
from tests.simulation.transactions.ledger import Attempts, Ledger, Story

_PRODUCE_TIMEOUT_MS = 4_000
_INIT_VERSION, _ADD_PARTITIONS_VERSION, _ADD_OFFSETS_VERSION = 5, 3, 3
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
#: The transaction has ended already, or the producer has.
_ENDED = _FENCED | {ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE}


class Flow(NamedTuple):
    produce_version: int
    offset_commit_version: int
    end_version: int
    #: Partitions are added by the records that go there, and epochs grow with transactions.
    is_second: bool


FIRST = Flow(11, 3, 4, is_second=False)
SECOND = Flow(12, 5, 5, is_second=True)


class Fenced(Exception):
    """Somebody else has the transactional id, or the coordinator has lost its patience: this instance is over."""


class MustAbort(Exception):
    """What was written does not count; the producer may try to go on with its next transaction."""


class TransactionalProducer(CoordinatedClient):
    def __init__(
        self, cluster: ReplicatedCluster, history: History, ledger: Ledger, transactional_id: str, *, flow: Flow
    ) -> None:
        self._ledger = ledger
        timeout_ms = cluster.world.random.choice([2_000, 4_000, 8_000])
        self.incarnation = ledger.starts(transactional_id, timeout_ms)
        super().__init__(cluster, history, f"{transactional_id}.{self.incarnation.number}")
        self.answer_timeout_s = self.random.choice([0.3, 1.0, 6.0])
        self._flow = flow
        self._id = transactional_id
        self._transactions_of_id = Coordinated(Kind.TRANSACTION, transactional_id)
        self._producer_id, self._epoch = ProducerId(-1), ProducerEpoch(-1)
        self._sequences: dict[int, int] = {}
        self._transactions = 0
        self._story: Story  # The last one.

    @property
    def group(self) -> str:
        return group_of(self._id)

    def die(self) -> None:
        """In the middle of whatever it does."""
        self.is_over = True
        self.hang_up()

    # The steps that an application takes.

    async def init(self) -> None:
        """Take the transactional id over, from whoever has it."""
        await self._init()
        self.incarnation.epoch, self.incarnation.acknowledged_at = self._epoch, self.world.now

    def begin(self) -> Story:
        self._transactions += 1
        self._story = self._ledger.begins(self.incarnation, self._transactions, self.world.now)
        return self._story

    async def write(self, story: Story, partitions: Collection[int]) -> None:
        """A batch to each of the partitions, at the same time. Raises ``MustAbort`` where one does not get there."""
        if not self._flow.is_second:
            await self._add_partitions(story, partitions)
        results = await asyncio.gather(
            *(self._write(story, partition) for partition in partitions), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, MustAbort):
                raise result
        if any(results):
            raise MustAbort

    async def commit_offset(self, story: Story, offset: Offset) -> None:
        """Of the group that this producer reads for."""
        if not self._flow.is_second:
            await self._add_offsets(story)
        self._ledger.commits_offset(story, offset)
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self.group,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        attempts = Attempts()
        answer = await self.ask(
            Coordinated(Kind.GROUP, self.group),
            request,
            self._flow.offset_commit_version,
            TxnOffsetCommitResponse,
            code_of=lambda found: found.topics[0].partitions[0].error_code,
            attempts=attempts,
        )
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code is not ErrorCode.NONE:
            self._refused(story, code, "TxnOffsetCommit")
            raise MustAbort
        self._ledger.was_written(story, attempts.sent_at, f"offset {offset}")
        story.offset = offset

    async def commit(self, story: Story) -> None:
        await self._end(story, story.commit, commits=True)
        self._ledger.was_committed(story)
        await self._settle(story.commit)

    async def abort(self, story: Story) -> None:
        await self._end(story, story.abort, commits=False)
        self._ledger.was_aborted(story)
        # Records that were not acknowledged may still be on their way.
        await self._settle(story.abort, is_in_doubt=True)

    # InitProducerId.

    async def _init(self) -> None:
        """The first time for any producer id; then for a new epoch of the one that it has."""
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self.incarnation.timeout_ms,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
        )
        answer = await self.ask(
            self._transactions_of_id,
            request,
            _INIT_VERSION,
            InitProducerIdResponse,
            code_of=lambda found: found.error_code,
            attempts=self.incarnation.init,
        )
        code = ErrorCode(answer.error_code)
        if code in _FENCED and request.producer_id >= 0:
            self._ledger.check_refusal(self._story, code, self.world.now)
            raise Fenced
        if code is not ErrorCode.NONE:
            report(Checker.REFUSAL, f"{self.name} was told {code!r} by InitProducerId")
        self._go_on_with(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))

    def _go_on_with(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        if (producer_id, epoch) != (self._producer_id, self._epoch):
            self._producer_id, self._epoch = producer_id, epoch
            self._sequences.clear()

    async def _settle(self, end: Attempts, *, is_in_doubt: bool = False) -> None:
        """Before the next transaction: nothing that comes late may count for it.

        In the second version it cannot, for the epoch is another. In the first a producer takes a new epoch where it
        has records in doubt (KIP-360). That it does so for a lost end, too, is what Java's does not: there a late end
        may end the next transaction, which no broker can prevent. KIP-890 is for that.
        """
        if not self._flow.is_second and (is_in_doubt or end.lost):
            await self._init()

    # AddPartitionsToTxn, AddOffsetsToTxn.

    async def _add_partitions(self, story: Story, partitions: Collection[int]) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=sorted(partitions))],
        )
        attempts = Attempts()
        answer = await self.ask(
            self._transactions_of_id,
            request,
            _ADD_PARTITIONS_VERSION,
            AddPartitionsToTxnResponse,
            code_of=_added,
            attempts=attempts,
        )
        self._was_added(story, attempts, _added(answer), "AddPartitionsToTxn")

    async def _add_offsets(self, story: Story) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            group_id=self.group,
        )
        attempts = Attempts()
        answer = await self.ask(
            self._transactions_of_id,
            request,
            _ADD_OFFSETS_VERSION,
            AddOffsetsToTxnResponse,
            code_of=lambda found: found.error_code,
            attempts=attempts,
        )
        self._was_added(story, attempts, ErrorCode(answer.error_code), "AddOffsetsToTxn")

    def _was_added(self, story: Story, attempts: Attempts, code: ErrorCode, api: str) -> None:
        self.incarnation.has_lost_adds |= attempts.lost > 0
        if code is not ErrorCode.NONE:
            self._refused(story, code, api)
            raise Fenced
        self._ledger.was_written(story, attempts.sent_at, "a partition")

    # Produce.

    async def _write(self, story: Story, partition: int) -> None:
        first = len(story.records.get(partition, ()))
        values = [f"{story}/{partition}.{index}".encode() for index in range(first, first + self.random.randint(1, 3))]
        self._ledger.writes(story, values)
        batch = self._batch(values, self._sequences.get(partition, 0))
        while True:
            self.require_running()
            try:
                leader = await self.leader_of(partition)
                sent_at = self.world.now
                answer = None if leader is None else await self._produce(leader, partition, batch)
            except NoAnswer:
                self.leaders.pop(partition, None)
            else:
                if answer is not None and self._is_written(story, partition, answer):
                    break
            await self.pause()
        self._ledger.was_written(story, sent_at, f"{values}")
        self.history.acknowledged(partition, answer.base_offset, values)
        story.records.setdefault(partition, []).extend(values)
        self._sequences[partition] = self._sequences.get(partition, 0) + len(values)

    async def _produce(self, leader: int, partition: int, batch: bytes) -> PartitionProduceResponse:
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            transactional_id=self._id,
            acks=-1,
            timeout_ms=_PRODUCE_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
        )
        answer = await self.call(leader, request, self._flow.produce_version, ProduceResponse)
        return answer.responses[0].partition_responses[0]

    def _is_written(self, story: Story, partition: int, answer: PartitionProduceResponse) -> bool:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.NONE:
            return True
        if code not in RETRIED and code is not ErrorCode.CONCURRENT_TRANSACTIONS:
            self._refused(story, code, f"Produce to {partition}")
            raise MustAbort
        self.leaders.pop(partition, None)
        if answer.current_leader.leader_id >= 0:
            self.leaders[partition] = answer.current_leader.leader_id
        return False

    def _batch(self, values: Sequence[bytes], sequence: int) -> bytes:
        return build_batch(
            [Record(Offset(index), 1_700_000_000_000, None, value) for index, value in enumerate(values)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    # EndTxn.

    async def _end(self, story: Story, attempts: Attempts, *, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commits,
        )
        answer = await self.ask(
            self._transactions_of_id,
            request,
            self._flow.end_version,
            EndTxnResponse,
            code_of=lambda found: found.error_code,
            attempts=attempts,
        )
        code = ErrorCode(answer.error_code)
        if code is not ErrorCode.NONE:
            self._ledger.was_refused(story)
            self._refused(story, code, "EndTxn")
            raise Fenced
        if self._flow.is_second:
            self._go_on_with(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))

    def _refused(self, story: Story, code: ErrorCode, api: str) -> None:
        if code not in _ENDED:
            report(Checker.REFUSAL, f"{story} was told {code!r} by {api}")
        self._ledger.check_refusal(story, code, self.world.now)


def group_of(transactional_id: str) -> str:
    return f"group of {transactional_id}"


def _added(answer: AddPartitionsToTxnResponse) -> ErrorCode:
    """One for all; where some are not there, only those are told so."""
    codes = [
        partition.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
    ]
    return ErrorCode(next((code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED), ErrorCode.NONE))
