"""Offsets that a group commits in a transaction, message by message, through the end of their coordinator.

Only the group's coordinator takes part: the markers are sent as a coordinator of transactions would.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages import create_topics as create
from quorate.protocol.messages import find_coordinator, offset_commit, offset_fetch
from quorate.protocol.messages import txn_offset_commit as txn
from quorate.protocol.messages import write_txn_markers as markers
from quorate.testing import ClusterInProcess
from tests.eventually import eventually
from tests.integration.wire_client import WireClient

CONFIGS = {
    "transaction.partition.verification.enable": False,
    "offsets.topic.num.partitions": 1,
    "auto.leader.rebalance.enable": False,
}
GROUP, TOPIC = "payers", "payments"
PRODUCER = 7001
TRY_AGAIN = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)


class Payers:
    """A group without members, and a producer that commits for it; each message goes to the group's coordinator."""

    def __init__(self, cluster: ClusterInProcess) -> None:
        self.cluster = cluster
        self.running: list[int] = list(cluster.node_ids)
        topic = create.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=-1)
        with WireClient(cluster.address_of(self.running[0])) as client:
            client.call(create.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7, create.CreateTopicsResponse)

    def coordinator(self) -> int:
        def look() -> int | None:
            with WireClient(self.cluster.address_of(self.running[0])) as client:
                request = find_coordinator.FindCoordinatorRequest(key=GROUP)
                found = client.call(request, 3, find_coordinator.FindCoordinatorResponse)
            return found.node_id if found.node_id in self.running else None

        return eventually(look, "a coordinator")

    def connect(self) -> WireClient:
        return WireClient(self.cluster.address_of(self.coordinator()))

    def commit(self, offset: int) -> None:
        partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        with self.connect() as client:
            request = offset_commit.OffsetCommitRequest(group_id=GROUP, topics=[topic])
            answer = client.call(request, 8, offset_commit.OffsetCommitResponse)
        assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE

    def commit_in_transaction(self, offset: int, version: int, epoch: int = 0) -> int:
        partition = txn.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata="note"
        )
        request = txn.TxnOffsetCommitRequest(
            transactional_id="id",
            group_id=GROUP,
            producer_id=PRODUCER,
            producer_epoch=epoch,
            topics=[txn.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
        )
        with self.connect() as client:
            return client.call(request, version, txn.TxnOffsetCommitResponse).topics[0].partitions[0].error_code

    def end(self, *, commit: bool, epoch: int = 0) -> int:
        marker = markers.WritableTxnMarker(
            producer_id=PRODUCER,
            producer_epoch=epoch,
            transaction_result=commit,
            topics=[markers.WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[0])],
        )

        def send() -> tuple[int] | None:
            with self.connect() as client:
                request = markers.WriteTxnMarkersRequest(markers=[marker])
                answer = client.call(request, 1, markers.WriteTxnMarkersResponse)
            code = answer.markers[0].topics[0].partitions[0].error_code
            return None if code in TRY_AGAIN else (code,)

        return eventually(send, "the coordinator to have loaded")[0]

    def fetch(self, version: int = 9, *, require_stable: bool = True) -> tuple[int, int]:
        """Offset and error; as a client does, wait while the coordinator loads."""

        def ask() -> tuple[int, int] | None:
            with self.connect() as client:
                if version < 8:
                    old = offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])
                    request = offset_fetch.OffsetFetchRequest(
                        group_id=GROUP, topics=[old], require_stable=require_stable
                    )
                    answer = client.call(request, version, offset_fetch.OffsetFetchResponse)
                    if answer.error_code in TRY_AGAIN:
                        return None
                    one = answer.topics[0].partitions[0]
                    return one.committed_offset, one.error_code
                new = offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
                group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=[new])
                request = offset_fetch.OffsetFetchRequest(groups=[group], require_stable=require_stable)
                found = client.call(request, version, offset_fetch.OffsetFetchResponse).groups[0]
                if found.error_code in TRY_AGAIN:
                    return None
                each = found.topics[0].partitions[0]
                return each.committed_offset, each.error_code

        return eventually(ask, "the coordinator to have loaded")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterInProcess]:
    with ClusterInProcess(nodes=3, configs=CONFIGS, folder=tmp_path) as running:
        yield running


def test_offsets_in_a_transaction_outlive_their_coordinator_and_are_seen_when_it_ends(
    cluster: ClusterInProcess,
) -> None:
    payers = Payers(cluster)
    payers.commit(3)
    for version in range(5):
        assert payers.commit_in_transaction(10 + version, version) == ErrorCode.NONE

    unstable = -1, ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert payers.fetch() == payers.fetch(7) == unstable
    assert payers.fetch(require_stable=False) == payers.fetch(7, require_stable=False) == (3, ErrorCode.NONE)

    killed = payers.coordinator()
    cluster.kill(killed)
    payers.running.remove(killed)
    assert payers.fetch() == unstable
    assert payers.end(commit=True) == ErrorCode.NONE
    assert payers.fetch() == (14, ErrorCode.NONE)

    assert payers.commit_in_transaction(20, 3) == ErrorCode.NONE
    assert payers.end(commit=False, epoch=1) == ErrorCode.NONE
    assert payers.fetch() == (14, ErrorCode.NONE)
    assert payers.commit_in_transaction(20, 3) == ErrorCode.INVALID_PRODUCER_EPOCH  # Of the epoch that was fenced.

    cluster.restart(killed)
    cluster.kill(*cluster.node_ids)
    cluster.restart(*cluster.node_ids)
    payers.running.append(killed)
    assert payers.fetch() == (14, ErrorCode.NONE)
