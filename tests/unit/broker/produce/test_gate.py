"""The gate of Produce: who is deferred, and what a topic takes while it is restored with its offsets."""

import msgspec
import pytest

from quorate.broker.produce.gate import sound_batch
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId
from quorate.records.batch import read_header
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.replication.core.leader_events import MembershipChanged, PartitionMembership
from quorate.replication.partition import Partition
from quorate.replication.partition_settings import PartitionSettings
from quorate.storage.config import LogConfig
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.broker.produce.producing import produce
from tests.unit.replication.replicas import FOLLOWER, LEADER, Replicas, lead, produced, run

RESTORE = ProducerId(41)
SETTINGS = PartitionSettings(log=LogConfig(), codec=None, min_insync_replicas=1, restore_producer_id=RESTORE)
LATEST = 13


class Refusing:
    """In the place of a transaction: admits nothing."""

    def __init__(self, code: ErrorCode) -> None:
        self._code = code

    def require_admitted(self, *_: object) -> None:
        raise KafkaError(self._code)


def test_a_leader_with_too_few_replicas_keeps_a_producers_order_without_a_word_of_it() -> None:
    def append(partition: Partition, sequence: int) -> ErrorCode:
        try:
            produce(partition, produced(sequence), acks_all=True)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,))
        partition.reconfigure(msgspec.structs.replace(partition.settings, min_insync_replicas=2))
        assert append(partition, 0) is ErrorCode.NOT_ENOUGH_REPLICAS
        both = PartitionMembership(replicas=(LEADER, FOLLOWER), isr=frozenset({LEADER, FOLLOWER}), partition_epoch=2)
        partition.step(MembershipChanged(membership=both))
        # The next ones were under way when the replicas came back: they must not overtake.
        assert append(partition, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert append(partition, 2) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert [append(partition, sequence) for sequence in range(3)] == 3 * [ErrorCode.NONE]
        assert append(partition, 5) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    run(scenario)


def test_what_comes_behind_a_batch_that_was_not_admitted_waits_for_it_before_it_is_looked_at() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,), replicas=(LEADER,))
        for sequence, code in enumerate((ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)):
            with pytest.raises(KafkaError) as refused:
                produce(partition, produced(sequence), transaction=Refusing(code))
            assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        for sequence in (0, 1):
            produce(partition, produced(sequence))

    run(scenario)


@pytest.mark.parametrize("changes_leader", [False, True])
def test_a_refusal_outlives_a_leadership(changes_leader: bool) -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,), replicas=(LEADER,))
        produce(partition, produced(0))
        room, host.disk.free_bytes = host.disk.free_bytes, 10
        with pytest.raises(KafkaError) as refused:
            produce(partition, produced(1))
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        host.disk.free_bytes = room
        if changes_leader:
            lead(partition, 2, isr=(LEADER,), replicas=(LEADER,))
        with pytest.raises(KafkaError) as behind:
            produce(partition, produced(2))
        assert behind.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        for sequence in (1, 2):
            produce(partition, produced(sequence))

    run(scenario)


def test_what_comes_when_a_node_has_just_heard_of_its_lead_waits_for_what_came_before() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        not_leading = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition.deferred.refused(read_header(produced(0)), not_leading, partition.replication.now_ms())
        lead(partition, 1, isr=(LEADER,), replicas=(LEADER,))
        with pytest.raises(KafkaError) as behind:
            produce(partition, produced(1))
        assert behind.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        for sequence in (0, 1):
            produce(partition, produced(sequence))

    run(scenario)


def restored(
    *, base: int = 0, sequence: int = 0, producer_id: ProducerId = RESTORE, last_offset_delta: int = 9, count: int = 1
) -> memoryview:
    return memoryview(
        build_batch(
            [Record(Offset(base + number), 1000, b"k", b"v") for number in range(count)],
            base_offset=Offset(base),
            last_offset_delta=last_offset_delta,
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(0),
            base_sequence=sequence,
        )
    )


@pytest.mark.parametrize("count", [0, 1, 10])
def test_batch_of_the_restore_is_taken_with_its_holes(count: int) -> None:
    given = restored(base=2**31 + 5, sequence=5, count=count)
    assert sound_batch(SETTINGS, given, LATEST).view is given


@pytest.mark.parametrize("producer_id", [NO_PRODUCER_ID, ProducerId(40)])
def test_other_producers_are_told_that_the_topic_is_being_restored(producer_id: ProducerId) -> None:
    with pytest.raises(KafkaError, match="only the restore may write") as caught:
        sound_batch(SETTINGS, restored(producer_id=producer_id), LATEST)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    "given",
    [restored(base=7, sequence=6), restored(count=2, last_offset_delta=1)[:-1], restored(base=2**31, sequence=7)],
)
def test_batch_that_is_not_what_it_says_is_refused(given: memoryview) -> None:
    with pytest.raises(KafkaError) as caught:
        sound_batch(SETTINGS, given, LATEST)
    assert caught.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
