"""Readers of what is committed: records from any replica, and the offsets of groups."""

from quorate.kernel.ids import LeaderEpoch, Offset, ProducerId
from quorate.protocol.messages.fetch import PartitionData
from quorate.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from quorate.records.record import iterate_records
from tests.simulation.committed_reader import judged_batches
from tests.simulation.replication.clients import TOPIC, Reader
from tests.simulation.replication.cluster import ReplicatedCluster
from tests.simulation.replication.history import History, HistoryBroken
from tests.simulation.transactions.application import PARTITION_COUNT
from tests.simulation.transactions.coordinated import Coordinated, CoordinatedClient, GaveUp, Kind
from tests.simulation.transactions.findings import Checker, report
from tests.simulation.transactions.ledger import Ledger
from tests.simulation.transactions.producer import group_of
from tests.simulation.transactions.verdict import ShownRecords

_READ_COMMITTED = 1


class CommittedReader(Reader):
    partition_count = PARTITION_COUNT
    isolation_level = _READ_COMMITTED

    def __init__(
        self, cluster: ReplicatedCluster, history: History, ledger: Ledger, name: str, rack_id: str = ""
    ) -> None:
        super().__init__(cluster, history, name, rack_id)
        self._ledger = ledger
        self.max_bytes = self.random.choice([1, 400, 2_000])
        #: By partition, since its beginning was read last.
        self._shown: dict[int, ShownRecords] = {}

    async def read_all(self, partition: int, end: Offset) -> list[bytes]:
        """What is shown up to the end of the partition, where everything is stable."""
        await self.read_on(partition, fetches=end + 100, end=end)
        return self._shown[partition].values

    async def rest(self) -> None:
        await self.world.sleep(self.random.random() * 0.05)

    def take(self, partition: int, position: Offset, data: PartitionData, epoch: LeaderEpoch) -> Offset:
        if position == 0:
            self._shown[partition] = ShownRecords(self._ledger)
        where = f"in partition {partition} for {self.name}"
        content = bytes(data.records or b"")  # type: ignore[arg-type]
        aborted = [(ProducerId(one.producer_id), Offset(one.first_offset)) for one in data.aborted_transactions or ()]
        for start, header, is_shown in judged_batches(content, aborted):
            if header.base_offset > position:
                raise HistoryBroken(f"{self.name} skipped from {position} to {header.base_offset} of {partition}")
            if not header.last_offset < data.last_stable_offset <= data.high_watermark:
                report(
                    Checker.STABLE_OFFSET,
                    f"{header.last_offset} {where}, stable {data.last_stable_offset} of {data.high_watermark}",
                )
            if not header.is_control:
                for record in iterate_records(content, start):
                    if record.offset >= position:
                        value = bytes(record.value or b"")
                        self.history.read(partition, record.offset, value, self.name, epoch)
                        self._look_at(partition, value, where, is_shown=is_shown)
            position = header.next_offset
        return position

    def _look_at(self, partition: int, value: bytes, where: str, *, is_shown: bool) -> None:
        self._ledger.check_given(value, self.world.now, where)
        if is_shown:
            self._ledger.check_shown(value, where)
            self._shown[partition].add(value, where)


class OffsetReader(CoordinatedClient):
    """Looks how far the groups of the transactional ids are."""

    def __init__(self, cluster: ReplicatedCluster, history: History, ledger: Ledger, name: str) -> None:
        super().__init__(cluster, history, name)
        self._ledger = ledger

    async def run(self) -> None:
        try:
            while True:
                await self.world.sleep(self.random.random())
                if self._ledger.incarnations:
                    await self.committed_offset(self.random.choice(list(self._ledger.incarnations)))
        except GaveUp:
            return

    async def committed_offset(self, transactional_id: str) -> Offset | None:
        """None where there is none. Waits while a transaction may change it."""
        group = group_of(transactional_id)
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group, topics=topics)], require_stable=True
        )
        answer = await self.ask(Coordinated(Kind.GROUP, group), request, 8, OffsetFetchResponse, code_of=_code)
        if _code(answer):
            report(Checker.REFUSAL, f"{self.name} was told {_code(answer)} about {group}")
        offset = Offset(answer.groups[0].topics[0].partitions[0].committed_offset)
        if offset < 0:
            return None
        self._ledger.check_offset_shown(transactional_id, offset)
        return offset


def _code(answer: OffsetFetchResponse) -> int:
    (group,) = answer.groups
    return group.error_code or group.topics[0].partitions[0].error_code
