"""Who may tell a producer that batches are missing, and when."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.broker.produce.doubted_refusals import DoubtedRefusal, is_doubted, refuted
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch
from quorate.replication.partition import Partition
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.quorum.driven_node import until
from tests.unit.replication.replicas import LEADER, Replicas, lead, run
from tests.unit.replication.test_put_off import NOW_MS, batch


class Metadata:
    def __init__(self, *, is_current: bool) -> None:
        self._is_current = is_current

    async def is_current(self) -> bool:
        return self._is_current


def told(*, may_be_early: bool = False, is_current: bool = True, epoch_now: int = 3) -> ErrorCode:
    leads = SimpleNamespace(leading=object(), leader_epoch=epoch_now)
    refusal = DoubtedRefusal(0, cast(Any, leads), LeaderEpoch(3), may_be_early)
    errors = asyncio.run(refuted(cast(Any, Metadata(is_current=is_current)), [refusal]))
    return errors[0].code if errors else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_leader_of_old_says_so() -> None:
    assert told() is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_one_waits_for_what_is_under_way_to_its_predecessor() -> None:
    assert told(may_be_early=True) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def lead_alone(partition: Partition, epoch: int) -> None:
    lead(partition, epoch, isr=(LEADER,), replicas=(LEADER,))


def may_be_early(partition: Partition, batches: memoryview) -> bool:
    return DoubtedRefusal.of(0, partition, batches).may_be_early


def test_a_leader_is_new_for_longer_than_clients_wait_for_an_answer() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead_alone(partition, 3)
        partition.append(batch(0), NOW_MS)
        assert may_be_early(partition, batch(2))
        await until(host.loop.time() + 64.9)
        assert may_be_early(partition, batch(2))
        await until(host.loop.time() + 0.2)
        assert not may_be_early(partition, batch(2))
        lead_alone(partition, 4)  # Its predecessor is itself.
        assert not may_be_early(partition, batch(2))
        lead_alone(partition, 6)
        assert may_be_early(partition, batch(2))

    run(scenario)


@pytest.mark.parametrize("epoch", [0, 7], ids=["new", "made-anew-above-its-namesake"])
def test_the_first_leader_waits_for_what_it_refused_before_it_knew_of_the_topic(epoch: int) -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, epoch, isr=(LEADER,), replicas=(LEADER,), partition_epoch=0)
        with pytest.raises(KafkaError) as refused:
            partition.append(batch(5), NOW_MS)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert may_be_early(partition, batch(5))
        partition.append(batch(0, producer_id=8), NOW_MS)
        assert not may_be_early(partition, batch(2, producer_id=8))
        await until(host.loop.time() + 2)
        partition.append(batch(5), NOW_MS)  # It has written to an earlier topic of this name.
        assert not may_be_early(partition, batch(7))

    run(scenario)


def test_a_new_leader_takes_no_later_batch_for_the_first_of_a_producer() -> None:
    """The first ones may be under way to its predecessor; behind a later one they would never be taken again."""

    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead_alone(partition, 1)
        with pytest.raises(KafkaError) as refused:
            partition.append(batch(7), NOW_MS)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert may_be_early(partition, batch(7))
        partition.append(batch(0, producer_id=8), NOW_MS)
        await until(host.loop.time() + 65)
        partition.append(batch(7), NOW_MS)  # Nothing is under way any more: the log does not go back to its beginning.
        assert partition.log.log_end_offset == 2

    run(scenario)


def test_a_gap_is_told_from_a_late_repeat() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead_alone(partition, 1)
        for sequence in range(10):
            partition.append(batch(sequence), NOW_MS)
        gaps = [may_be_early(partition, batch(sequence)) for sequence in (2, 9, 11)]
        assert gaps == [False, False, True]
        assert may_be_early(partition, batch(11, producer_id=8))
        assert may_be_early(partition, batch(1, epoch=1))

    run(scenario)


def test_one_that_may_have_been_replaced_does_not_say_so() -> None:
    assert told(is_current=False) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told(epoch_now=4) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_only_gaps_are_doubted() -> None:
    assert is_doubted(KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert not is_doubted(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH))
