"""Who may tell a producer that batches are missing, and when."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from quorate.broker.doubted_refusals import DoubtedRefusal, is_doubted, refuted
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.world import World
from tests.unit.broker.replication.replicas import LEADER, Replicas, lead, run
from tests.unit.broker.test_put_off import NOW_MS, batch

LONG_MS = 35_000


class Metadata:
    def __init__(self, *, is_current: bool) -> None:
        self._is_current = is_current

    async def is_current(self) -> bool:
        return self._is_current


def told(
    *, epoch: int, led_for_ms: int, is_current: bool = True, epoch_now: int | None = None, is_gap: bool = True
) -> ErrorCode:
    leads = SimpleNamespace(
        leading=object(), leader_epoch=epoch if epoch_now is None else epoch_now, led_for_ms=led_for_ms
    )
    refusal = DoubtedRefusal(0, cast(Any, leads), LeaderEpoch(epoch), is_gap)
    errors = asyncio.run(refuted(cast(Any, Metadata(is_current=is_current)), [refusal]))
    return errors[0].code if errors else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_leader_of_old_says_so() -> None:
    assert told(epoch=3, led_for_ms=LONG_MS) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("led_for_ms", [0, LONG_MS - 1])
def test_a_new_one_waits_for_what_is_under_way_to_its_predecessor(led_for_ms: int) -> None:
    assert told(epoch=3, led_for_ms=led_for_ms) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_the_first_leader_has_no_predecessor() -> None:
    assert told(epoch=0, led_for_ms=0) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_was_written_long_ago_is_not_under_way() -> None:
    assert told(epoch=3, led_for_ms=0, is_gap=False) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_told_from_a_late_repeat() -> None:
    async def scenario(world: World, host: SimulatedHost, _: SimulatedHost) -> None:
        partition = Replicas(host).open()
        lead(partition, 1, isr=(LEADER,), replicas=(LEADER,))
        for sequence in range(3, 10):
            partition.append(batch(sequence), NOW_MS)
        gaps = [DoubtedRefusal.of(0, partition, batch(sequence)).is_gap for sequence in (2, 9, 11)]
        assert gaps == [False, False, True]
        assert not DoubtedRefusal.of(0, partition, batch(11, producer_id=8)).is_gap
        assert DoubtedRefusal.of(0, partition, batch(1, epoch=1)).is_gap

    run(scenario)


def test_one_that_may_have_been_replaced_does_not_say_so() -> None:
    assert told(epoch=3, led_for_ms=LONG_MS, is_current=False) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert told(epoch=3, led_for_ms=LONG_MS, epoch_now=4) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_only_gaps_are_doubted() -> None:
    assert is_doubted(KafkaError(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER))
    assert not is_doubted(KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH))
