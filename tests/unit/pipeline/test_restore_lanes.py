"""The lanes of a restore's task: written at the same time, and ended by the first failure."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import pytest

from quorate.backup.storage_url import StorageLocation
from quorate.client.config import parse_client_config
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicId, TopicName
from quorate.pipeline import restore_write_task
from quorate.pipeline.restore_stream import PartitionAssignment
from quorate.pipeline.restore_write_task import Lanes, WriteSettings

TOPIC = TopicName("orders")
TIMEOUT_S = 30


class NoClient:
    def idempotent_producer(self, identity: object) -> object:
        return identity


def lanes_in(folder: Path) -> Lanes:
    location = StorageLocation(f"file://{folder}")
    settings = WriteSettings(
        restore_id="1",
        location=location,
        restores=location,
        client=parse_client_config({"bootstrap_servers": ["127.0.0.1:1"]}),
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        topic_ids={TOPIC: TopicId(UUID(int=1))},
    )
    client = cast(KafkaClient, NoClient())
    return Lanes(settings, client, client)


def partitions(*indexes: int) -> list[PartitionAssignment]:
    return [PartitionAssignment(topic=TOPIC, partition=PartitionIndex(index), sources=[]) for index in indexes]


def writers(monkeypatch: pytest.MonkeyPatch, write: Callable[[int, Callable[[int], None]], None]) -> None:
    """Each writer does what ``write`` does with its partition and the function that it tells of what it sends."""

    class Writer:
        def __init__(
            self, _c: Any, _p: Any, _s: Any, assignment: PartitionAssignment, _claim: Any, **more: Any
        ) -> None:
            self.partition = assignment.partition
            self._on_sent = more["on_sent"]

        def write(self) -> None:
            write(self.partition, self._on_sent)

    monkeypatch.setattr(restore_write_task, "PartitionWriter", Writer)


def write(lanes: Lanes, *dealt: list[PartitionAssignment]) -> list[int]:
    claims = [[cast(Any, None)] * len(lane) for lane in dealt]
    return [cast(Any, writer).partition for writer in lanes.write(dealt, claims)]


def test_lanes_write_at_the_same_time_and_each_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(2)

    def work(_partition: int, _on_sent: Callable[[int], None]) -> None:
        together.wait(TIMEOUT_S)

    writers(monkeypatch, work)

    assert write(lanes_in(tmp_path), partitions(0, 2), partitions(1, 3)) == [0, 2, 1, 3]


def test_first_failure_ends_all_lanes_and_is_what_the_task_fails_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    is_under_way = threading.Event()

    def work(partition: int, on_sent: Callable[[int], None]) -> None:
        begun.append(partition)
        if partition == 1:
            assert is_under_way.wait(TIMEOUT_S)
            raise QuorateError("the disk is full")
        while True:
            on_sent(1)
            is_under_way.set()

    writers(monkeypatch, work)

    with pytest.raises(QuorateError, match="the disk is full"):
        write(lanes_in(tmp_path), partitions(0, 2), partitions(1))
    assert sorted(begun) == [0, 1]
