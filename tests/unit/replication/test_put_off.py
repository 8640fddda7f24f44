"""A batch that was refused for a passing reason: those behind it wait for it, and are told so."""

import msgspec
import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.records.batch import read_header
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.replication.core.leader_events import MembershipChanged, PartitionMembership
from quorate.replication.partition import Partition
from quorate.replication.put_off import PutOff
from quorate.storage.producer_state import ProducerStates
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.replication.replicas import FOLLOWER, LEADER, Replicas, lead, run

NOW_MS = 1_700_000_000_000
FULL = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left")


def batch(sequence: int, producer_id: int = 7, epoch: int = 0) -> memoryview:
    built = build_batch(
        [Record(Offset(0), NOW_MS, None, b"value")],
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
    )
    return memoryview(bytearray(built))


def answer(
    put_off: PutOff, batches: memoryview, now_ms: int = NOW_MS, written: ProducerStates | None = None
) -> str | None:
    try:
        put_off.require_turn(batches, now_ms, written or ProducerStates())
    except KafkaError as error:
        return str(error)
    return None


def test_what_comes_behind_a_refused_batch_gets_its_error_until_that_comes_again() -> None:
    put_off = PutOff()
    put_off.refused(batch(3), FULL, NOW_MS)
    assert answer(put_off, batch(4)) == str(FULL)
    assert answer(put_off, batch(9), NOW_MS + 9_999) == str(FULL)
    assert answer(put_off, batch(3)) is None
    put_off.written(batch(3))
    assert answer(put_off, batch(9)) is None


def test_a_producer_that_does_not_come_again_has_given_the_batch_up() -> None:
    put_off = PutOff()
    put_off.refused(batch(3), FULL, NOW_MS)
    assert answer(put_off, batch(4), NOW_MS + 10_000) is None


def test_others_do_not_wait_nor_what_was_sent_before_nor_a_new_epoch() -> None:
    put_off = PutOff()
    put_off.refused(batch(3), FULL, NOW_MS)
    assert answer(put_off, batch(4, producer_id=8)) is None
    assert answer(put_off, batch(2)) is None
    assert answer(put_off, batch(4, epoch=1)) is None


def test_numbers_begin_again_at_their_end() -> None:
    put_off = PutOff()
    put_off.refused(batch(2**31 - 1), FULL, NOW_MS)
    assert answer(put_off, batch(0)) == str(FULL)


def test_nobody_waits_for_a_batch_that_another_leader_has_taken() -> None:
    put_off = PutOff()
    put_off.refused(batch(3), FULL, NOW_MS)
    written = ProducerStates()
    written.advance(read_header(batch(2)), Offset(2), NOW_MS)
    assert answer(put_off, batch(4), written=written) == str(FULL)
    written.advance(read_header(batch(3)), Offset(3), NOW_MS)
    assert answer(put_off, batch(4), written=written) is None


def test_refusals_are_forgotten_in_time() -> None:
    put_off = PutOff()
    for number in range(1_000):
        put_off.refused(batch(3, producer_id=number), FULL, NOW_MS + 1_000 * number)
    assert len(put_off._refusals) <= 200


def test_nothing_is_left_of_refusals_that_have_passed() -> None:
    put_off = PutOff()
    put_off.refused(batch(3), FULL, NOW_MS)
    assert not put_off.is_empty_at(NOW_MS + 9_999)
    assert put_off.is_empty_at(NOW_MS + 10_000)


def test_errors_that_do_not_pass_and_producers_that_do_not_number_put_nothing_off() -> None:
    put_off = PutOff()
    put_off.refused(batch(3), KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH), NOW_MS)
    put_off.refused(batch(-1, producer_id=-1), FULL, NOW_MS)
    assert answer(put_off, batch(4)) is None
    assert answer(put_off, batch(-1, producer_id=-1)) is None


def test_a_leader_with_too_few_replicas_keeps_a_producers_order_without_a_word_of_it() -> None:
    def append(partition: Partition, sequence: int) -> ErrorCode:
        try:
            partition.append(batch(sequence), NOW_MS, acks_all=True)
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
    def refuse() -> None:
        raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def out_of_order() -> None:
        raise KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,), replicas=(LEADER,))
        for sequence, admit in ((0, refuse), (1, out_of_order)):
            with pytest.raises(KafkaError) as refused:
                partition.append(batch(sequence), NOW_MS, admit=admit)
            assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
        for sequence in (0, 1):
            partition.append(batch(sequence), NOW_MS, admit=lambda: None)

    run(scenario)


@pytest.mark.parametrize("changes_leader", [False, True])
def test_a_refusal_outlives_a_reign(changes_leader: bool) -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,), replicas=(LEADER,))
        partition.append(batch(0), NOW_MS)
        room, host.disk.free_bytes = host.disk.free_bytes, 10
        with pytest.raises(KafkaError) as refused:
            partition.append(batch(1), NOW_MS)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        host.disk.free_bytes = room
        if changes_leader:
            lead(partition, 2, isr=(LEADER,), replicas=(LEADER,))
        with pytest.raises(KafkaError) as behind:
            partition.append(batch(2), NOW_MS)
        assert behind.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        for sequence in (1, 2):
            partition.append(batch(sequence), NOW_MS)

    run(scenario)


def test_what_comes_when_a_node_has_just_heard_of_its_lead_waits_for_what_came_before() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        partition.refuse_as_follower(batch(0))
        lead(partition, 1, isr=(LEADER,), replicas=(LEADER,))
        with pytest.raises(KafkaError) as behind:
            partition.append(batch(1), NOW_MS)
        assert behind.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        for sequence in (0, 1):
            partition.append(batch(sequence), NOW_MS)

    run(scenario)
