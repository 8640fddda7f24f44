"""DescribeLogDirs and AlterReplicaLogDirs by hand, on a node with one log directory."""

from collections.abc import Iterator, Sequence

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from quorate.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tests.compat.clients.confluent import ConfluentClient
from tests.compat.raw_connection import RawConnection
from tests.compat.raw_records import batch, produce
from tests.eventually import eventually


@pytest.fixture
def connection(bootstrap: str) -> Iterator[RawConnection]:
    with RawConnection(bootstrap) as opened:
        yield opened


@pytest.fixture
def created(bootstrap: str, connection: RawConnection, topic: str) -> str:
    """A topic of one partition with a record."""
    ConfluentClient(bootstrap).create_topic(topic)
    eventually(lambda: produce(connection, topic, batch(1)).error_code == ErrorCode.NONE, "the topic's leader")
    return topic


def described(
    connection: RawConnection, topic: str, partitions: Sequence[int], version: int = 4
) -> DescribeLogDirsResult:
    wanted = DescribableLogDirTopic(topic=topic, partitions=partitions)
    [directory] = connection.ask(DescribeLogDirsRequest(topics=(wanted,)), version, DescribeLogDirsResponse).results
    return directory


def test_only_partitions_that_are_there_are_described(connection: RawConnection, created: str) -> None:
    for version in range(1, 5):
        directory = described(connection, created, [0, 9], version)
        [found] = directory.topics
        [partition] = found.partitions
        assert directory.error_code == ErrorCode.NONE
        assert (found.name, partition.partition_index, partition.offset_lag) == (created, 0, 0)
        assert partition.partition_size == len(batch(1))
        assert not partition.is_future_key
    assert not described(connection, f"{created}.no", [0]).topics


def test_room_on_the_volume_is_reported(connection: RawConnection, created: str) -> None:
    directory = described(connection, created, [0])

    assert 0 < directory.usable_bytes <= directory.total_bytes


def test_replica_moves_only_to_the_directory_where_it_is(connection: RawConnection, created: str) -> None:
    here = described(connection, created, [0]).log_dir
    for version in (1, 2):
        assert moved(connection, here, created, version) == ErrorCode.NONE
        assert moved(connection, f"{here}-no", created, version) == ErrorCode.LOG_DIR_NOT_FOUND
        assert moved(connection, here, f"{created}.no", version) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert described(connection, created, [0]).log_dir == here


def moved(connection: RawConnection, path: str, topic: str, version: int) -> int:
    wanted = AlterReplicaLogDir(path=path, topics=(AlterReplicaLogDirTopic(name=topic, partitions=(0,)),))
    answer = connection.ask(AlterReplicaLogDirsRequest(dirs=(wanted,)), version, AlterReplicaLogDirsResponse)
    return answer.results[0].partitions[0].error_code
