"""The lanes of a restore's task: written at the same time, each in order, and ended by the first failure."""

import time
from collections import deque
from collections.abc import Sequence
from typing import cast

import pytest

from quorate.backup.spark.restore.write_task import PartitionWriter, write_in_lanes
from quorate.client.idempotent_producer import AcknowledgedBatch, IdempotentProducer, Outcome, SendingEnded
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName, TopicPartition


def name(index: int) -> TopicPartition:
    return TopicPartition(TopicName("orders"), PartitionIndex(index))


class FakeProducer:
    """Each step acknowledges one batch of whatever was begun, and ends it."""

    def __init__(self) -> None:
        self.steps: list[list[int]] = []
        self.sending: list[TopicPartition] = []

    @property
    def is_sending(self) -> bool:
        return bool(self.sending)

    def step(self, max_wait_ms: int = 0) -> list[Outcome]:
        assert max_wait_ms >= 0
        begun, self.sending = self.sending, []
        if begun:
            self.steps.append([each.partition for each in begun])
        outcomes: list[Outcome] = []
        for each in begun:
            outcomes.append(
                AcknowledgedBatch(partition=each, base_sequence=0, base_offset=Offset(0), log_append_time_ms=-1)
            )
            outcomes.append(SendingEnded(partition=each, error=None))
        return outcomes


class FakeWriter:
    """Done after one batch. ``trouble`` is what it raises, or how often it pauses before."""

    def __init__(self, producer: FakeProducer, index: int, *, is_written: bool = False, trouble: int | str = 0) -> None:
        self.record_count = 0
        self.name = name(index)
        self.is_done = False
        self.paused_until: float | None = None
        self.batches = 0
        self._producer = producer
        self._is_written = is_written
        self._trouble = trouble

    def begin(self) -> None:
        if self._is_written:
            self.is_done = True
        else:
            self._producer.sending.append(self.name)

    def produced(self, batch: AcknowledgedBatch) -> None:
        assert batch.partition == self.name
        self.batches += 1

    def ended(self, error: QuorateError | None) -> None:
        assert error is None
        if isinstance(self._trouble, str):
            raise QuorateError(self._trouble)
        if self._trouble:
            self._trouble -= 1
            self.paused_until = time.monotonic() + 0.01
        else:
            self.is_done = True

    def is_due(self, now: float) -> bool:
        return self.paused_until is not None and self.paused_until <= now

    def resume(self) -> None:
        self.paused_until = None
        self._producer.sending.append(self.name)


def write(producer: FakeProducer, *lanes: Sequence[FakeWriter]) -> list[int]:
    """The partitions, in the order in which they were done."""
    dealt = [deque(cast(Sequence[PartitionWriter], lane)) for lane in lanes]
    return [writer.name.partition for writer in write_in_lanes(dealt, cast(IdempotentProducer, producer))]


def test_lanes_write_at_the_same_time_and_each_in_order() -> None:
    producer = FakeProducer()
    lanes = [[FakeWriter(producer, 0), FakeWriter(producer, 2)], [FakeWriter(producer, 1), FakeWriter(producer, 3)]]

    assert sorted(write(producer, *lanes)) == [0, 1, 2, 3]
    assert producer.steps == [[0, 1], [2, 3]]
    assert [writer.batches for lane in lanes for writer in lane] == [1, 1, 1, 1]


def test_what_is_written_already_is_passed_over() -> None:
    producer = FakeProducer()
    written = [FakeWriter(producer, index, is_written=True) for index in range(3)]

    assert write(producer, [*written, FakeWriter(producer, 3)]) == [0, 1, 2, 3]
    assert producer.steps == [[3]]


def test_a_lane_that_pauses_holds_up_no_other() -> None:
    producer = FakeProducer()

    done = write(producer, [FakeWriter(producer, 0, trouble=2)], [FakeWriter(producer, 1), FakeWriter(producer, 2)])

    assert done == [1, 2, 0]
    assert producer.steps[:2] == [[0, 1], [2]]


def test_first_failure_ends_all_lanes_and_is_what_the_task_fails_with() -> None:
    producer = FakeProducer()
    lanes = [[FakeWriter(producer, 0), FakeWriter(producer, 2)], [FakeWriter(producer, 1, trouble="the disk is full")]]

    with pytest.raises(QuorateError, match="the disk is full"):
        write(producer, *lanes)
    assert producer.steps == [[0, 1]]
