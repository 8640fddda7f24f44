"""Transactions at the leaders of partitions, message by message: what readers see before, after and in spite of ends.

The records and their markers are sent as they are; no coordinator takes part, and no leader asks for one.
"""

from pathlib import Path
from time import time
from typing import cast

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.protocol.messages import describe_producers, fetch, list_offsets, produce
from quorate.protocol.messages import write_txn_markers as markers
from quorate.records.batch import iterate_batches
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_records
from quorate.testing import ClusterInProcess
from tests.eventually import eventually
from tests.integration.replicated_topic import ReplicatedTopic

UNVERIFIED = {
    "transaction.partition.verification.enable": False,
    "auto.leader.rebalance.enable": False,
    "auto.new.node.rebalance.enable": False,
    "replica.lag.time.max.ms": 1_000,
}
FIRST, SECOND = ProducerId(7001), ProducerId(7002)
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class Seen(msgspec.Struct, frozen=True):
    """What a fetch from the start of the topic shows to a reader of committed records."""

    values: list[str]
    aborted: list[tuple[int, int]]  # Producer ids and first offsets, as the leader tells them.
    last_stable_offset: int
    high_watermark: int


class TransactionalTopic(ReplicatedTopic):
    """Each message goes to the node that leads."""

    def send(self, producer_id: ProducerId, sequence: int, value: str, epoch: int = 0) -> ErrorCode:
        batch = build_batch(
            [Record(Offset(0), round(time() * 1000), b"key", value.encode())],
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=sequence,
            is_transactional=True,
        )
        data = produce.PartitionProduceData(index=0, records=batch)
        request = produce.ProduceRequest(
            transactional_id=f"id-{producer_id}",
            acks=-1,
            timeout_ms=10_000,
            topic_data=[produce.TopicProduceData(name=self.name, partition_data=[data])],
        )
        with self.connect(self.leader()) as client:
            answer = client.call(request, 9, produce.ProduceResponse)
        return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def end(
        self, producer_id: ProducerId, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0
    ) -> ErrorCode:
        marker = markers.WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[markers.WritableTxnMarkerTopic(name=self.name, partition_indexes=[0])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
        )
        with self.connect(self.leader()) as client:
            request = markers.WriteTxnMarkersRequest(markers=[marker])
            answer = client.call(request, 2, markers.WriteTxnMarkersResponse)
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    def leader(self) -> int:
        return self.wait_for_leader(*[node_id for node_id in self.cluster.node_ids if node_id not in self.down])

    def see(self, node_id: int | None = None, rack_id: str = "") -> Seen:
        wanted = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = fetch.FetchRequest(
            max_bytes=1 << 20,
            isolation_level=READ_COMMITTED,
            topics=[fetch.FetchTopic(topic=self.name, partitions=[wanted])],
            rack_id=rack_id,
        )
        with self.connect(self.leader() if node_id is None else node_id) as client:
            data = client.call(request, 12, fetch.FetchResponse).responses[0].partitions[0]
        assert data.error_code == ErrorCode.NONE
        aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]
        return Seen(
            _committed(bytes(memoryview(cast(bytes, data.records or b""))), aborted),
            aborted,
            data.last_stable_offset,
            data.high_watermark,
        )

    def latest_offset(self, isolation_level: int) -> int:
        wanted = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = list_offsets.ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[list_offsets.ListOffsetsTopic(name=self.name, partitions=[wanted])],
        )
        with self.connect(self.leader()) as client:
            return client.call(request, 7, list_offsets.ListOffsetsResponse).topics[0].partitions[0].offset

    def open_transactions(self) -> dict[int, int]:
        """The producers with an open transaction, and where it begins."""
        topic = describe_producers.TopicRequest(name=self.name, partition_indexes=[0])
        with self.connect(self.leader()) as client:
            request = describe_producers.DescribeProducersRequest(topics=[topic])
            answer = client.call(request, 0, describe_producers.DescribeProducersResponse)
        producers = answer.topics[0].partitions[0].active_producers
        starts = {each.producer_id: each.current_txn_start_offset for each in producers}
        return {producer_id: offset for producer_id, offset in starts.items() if offset >= 0}


def _committed(records: bytes, aborted: list[tuple[int, int]]) -> list[str]:
    """As Kafka's consumers do it: an aborted transaction counts from its first offset up to its producer's marker."""
    values: list[str] = []
    still_to_come, left_out = sorted(aborted, key=lambda each: each[1]), set()
    for position, header in iterate_batches(records, strict=True):
        while still_to_come and still_to_come[0][1] <= header.last_offset:
            left_out.add(still_to_come.pop(0)[0])
        if header.is_control:
            left_out.discard(header.producer_id)
        elif header.producer_id not in left_out:
            values += [(record.value or b"").decode() for record in iterate_records(records, position)]
    return values


def _interleave(topic: TransactionalTopic) -> None:
    """Two producers at once: the first commits one transaction and aborts one, the second has one open."""
    assert topic.send(FIRST, 0, "first 0") is ErrorCode.NONE
    assert topic.send(SECOND, 0, "second 1") is ErrorCode.NONE
    assert topic.send(FIRST, 1, "first 2") is ErrorCode.NONE
    assert topic.end(FIRST, commit=True) is ErrorCode.NONE  # Offset 3.
    assert topic.send(FIRST, 2, "aborted 4") is ErrorCode.NONE
    assert topic.send(SECOND, 1, "second 5") is ErrorCode.NONE
    assert topic.end(FIRST, commit=False) is ErrorCode.NONE  # Offset 6.


def test_two_interleaved_producers_are_read_exactly_before_and_after_a_restart(tmp_path: Path) -> None:
    with ClusterInProcess(nodes=1, configs=UNVERIFIED, folder=tmp_path) as cluster:
        topic = TransactionalTopic(cluster, "payments", [1])
        _interleave(topic)

        before = Seen(["first 0"], [], 1, 7)
        assert topic.see() == before
        assert topic.open_transactions() == {SECOND: 1}
        assert (topic.latest_offset(READ_COMMITTED), topic.latest_offset(READ_UNCOMMITTED)) == (1, 7)

        cluster.kill(1)
        cluster.restart(1)
        assert topic.see() == before
        assert topic.open_transactions() == {SECOND: 1}

        assert topic.end(SECOND, commit=True, coordinator_epoch=3) is ErrorCode.NONE
        after = Seen(["first 0", "second 1", "first 2", "second 5"], [(FIRST, 4)], 8, 8)
        assert topic.see() == after
        assert topic.latest_offset(READ_COMMITTED) == 8

        cluster.stop(1)
        cluster.restart(1)
        assert topic.see() == after
        assert topic.end(SECOND, commit=True, coordinator_epoch=2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_of_transaction_version_two_starts_the_next_epoch(tmp_path: Path) -> None:
    with ClusterInProcess(nodes=1, configs=UNVERIFIED, folder=tmp_path) as cluster:
        topic = TransactionalTopic(cluster, "payments", [1])
        assert topic.send(FIRST, 0, "first") is ErrorCode.NONE
        assert topic.end(FIRST, commit=True, epoch=1, version=2) is ErrorCode.NONE
        assert topic.end(FIRST, commit=True, epoch=1, version=2) is ErrorCode.NONE  # Sent again.

        assert topic.send(FIRST, 1, "late") is ErrorCode.INVALID_PRODUCER_EPOCH
        assert topic.send(FIRST, 0, "next", epoch=1) is ErrorCode.NONE
        assert topic.end(FIRST, commit=False, epoch=1, version=2) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert topic.end(FIRST, commit=False, epoch=2, version=2) is ErrorCode.NONE

        assert topic.see().values == ["first"]


def test_another_leader_goes_on_with_the_transactions_of_one_that_was_killed(tmp_path: Path) -> None:
    with ClusterInProcess(nodes=3, configs=UNVERIFIED, folder=tmp_path) as cluster:
        topic = TransactionalTopic(cluster, "payments", [1, 2, 3])
        topic.wait_for_isr(1, 2, 3)
        _interleave(topic)
        before = Seen(["first 0"], [], 1, 7)
        assert topic.see() == before

        topic.kill(1)
        assert topic.leader() in (2, 3)
        eventually(lambda: topic.see() == before, "the new leader to know what is committed")
        assert topic.open_transactions() == {SECOND: 1}
        assert topic.send(SECOND, 2, "second 7") is ErrorCode.NONE
        assert topic.end(SECOND, commit=True) is ErrorCode.NONE
        after = Seen(["first 0", "second 1", "first 2", "second 5", "second 7"], [(FIRST, 4)], 9, 9)
        assert topic.see() == after

        topic.restart(1)
        topic.wait_for_isr(1, 2, 3)
        eventually(lambda: topic.see(1, rack_id="any") == after, "the same from the follower's own log")


def test_a_node_that_does_not_lead_takes_no_marker(tmp_path: Path) -> None:
    with ClusterInProcess(nodes=3, configs=UNVERIFIED, folder=tmp_path) as cluster:
        topic = TransactionalTopic(cluster, "payments", [1, 2])
        topic.wait_for_isr(1, 2)
        marker = markers.WritableTxnMarker(
            producer_id=FIRST,
            topics=[
                markers.WritableTxnMarkerTopic(name="payments", partition_indexes=[0, 9]),
                markers.WritableTxnMarkerTopic(name="nowhere", partition_indexes=[0]),
            ],
        )
        with topic.connect(2) as client:
            request = markers.WriteTxnMarkersRequest(markers=[marker])
            answer = client.call(request, 1, markers.WriteTxnMarkersResponse)

        codes = [[each.error_code for each in result.partitions] for result in answer.markers[0].topics]
        assert codes == [
            [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
            [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
        ]
