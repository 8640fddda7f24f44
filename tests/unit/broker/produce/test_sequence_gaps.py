"""Who may tell a producer that batches are missing, and when."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.broker.produce.sequence_gaps import SequenceGap, is_gap, not_confirmed
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch
from quorate.records.batch import read_header
from quorate.replication.leading import require_leading
from quorate.replication.partition import Partition
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.broker.produce.producing import produce
from tests.unit.quorum.driven_node import until
from tests.unit.replication.replicas import LEADER, Replicas, lead, produced, run


class Metadata:
    def __init__(self, *, is_current: bool) -> None:
        self._is_current = is_current

    async def is_current(self) -> bool:
        return self._is_current


def told(*, may_be_early: bool = False, is_current: bool = True, epoch_now: int = 3) -> ErrorCode:
    gap = SequenceGap(0, cast(Any, SimpleNamespace(leader_epoch=epoch_now)), LeaderEpoch(3), may_be_early)
    errors = asyncio.run(not_confirmed(cast(Any, Metadata(is_current=is_current)), [gap]))
    return errors[0].code if errors else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_leader_of_old_says_so() -> None:
    assert told() is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_one_waits_for_what_is_under_way_to_its_predecessor() -> None:
    assert told(may_be_early=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def lead_alone(partition: Partition, epoch: int) -> None:
    lead(partition, epoch, isr=(LEADER,), replicas=(LEADER,))


def may_be_early(partition: Partition, batches: memoryview) -> bool:
    return SequenceGap.of(0, require_leading(partition), read_header(batches)).may_be_early


def test_a_leader_is_new_for_longer_than_clients_wait_for_an_answer() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead_alone(partition, 3)
        produce(partition, produced(0))
        assert may_be_early(partition, produced(2))
        await until(host.loop.time() + 64.9)
        assert may_be_early(partition, produced(2))
        await until(host.loop.time() + 0.2)
        assert not may_be_early(partition, produced(2))
        lead_alone(partition, 4)  # Its predecessor is itself.
        assert not may_be_early(partition, produced(2))
        lead_alone(partition, 6)
        assert may_be_early(partition, produced(2))

    run(scenario)


@pytest.mark.parametrize("epoch", [0, 7], ids=["new", "made-anew-above-its-namesake"])
def test_the_first_leader_waits_for_what_it_refused_before_it_knew_of_the_topic(epoch: int) -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, epoch, isr=(LEADER,), replicas=(LEADER,), partition_epoch=0)
        with pytest.raises(KafkaError) as refused:
            produce(partition, produced(5))
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert may_be_early(partition, produced(5))
        produce(partition, produced(0, producer_id=8))
        assert not may_be_early(partition, produced(2, producer_id=8))
        await until(host.loop.time() + 2)
        produce(partition, produced(5))  # It has written to an earlier topic of this name.
        assert not may_be_early(partition, produced(7))

    run(scenario)


def test_a_new_leader_takes_no_later_batch_for_the_first_of_a_producer() -> None:
    """The first ones may be under way to its predecessor; behind a later one they would never be taken again."""

    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead_alone(partition, 1)
        with pytest.raises(KafkaError) as refused:
            produce(partition, produced(7))
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert may_be_early(partition, produced(7))
        produce(partition, produced(0, producer_id=8))
        await until(host.loop.time() + 65)
        produce(partition, produced(7))  # Nothing is under way any more: the log does not go back to its beginning.
        assert partition.log.log_end_offset == 2

    run(scenario)


def test_a_gap_is_told_from_a_late_repeat() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead_alone(partition, 1)
        for sequence in range(10):
            produce(partition, produced(sequence))
        gaps = [may_be_early(partition, produced(sequence)) for sequence in (2, 9, 11)]
        assert gaps == [False, False, True]
        assert may_be_early(partition, produced(11, producer_id=8))
        assert may_be_early(partition, produced(1, epoch=1))

    run(scenario)


def test_one_that_may_have_been_replaced_does_not_say_so() -> None:
    assert told(is_current=False) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told(epoch_now=4) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_only_gaps_have_to_be_confirmed() -> None:
    assert is_gap(KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert not is_gap(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH))
