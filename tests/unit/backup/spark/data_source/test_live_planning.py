"""How the logs of a live cluster are cut into tasks."""

import pytest

from quorate.backup.spark.data_source.live_planning import LivePartition, pack_tasks
from quorate.backup.spark.data_source.options import parse_options
from quorate.client.config import ClientConfig
from quorate.kernel.ids import NO_TOPIC_ID, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicName, TopicPartition

MIB = 1024 * 1024
END = 10_000
NAME = TopicPartition(TopicName("orders"), PartitionIndex(0))


@pytest.mark.parametrize(
    ("local_start", "log_bytes", "tasks"),
    [(0, 10 * MIB, 10), (9_000, MIB, 10), (END, 0, 10), (0, None, 10), (0, 0, 1)],
)
def test_offsets_in_tiered_storage_count_as_much_as_those_on_the_leaders_disk(
    local_start: int, log_bytes: int | None, tasks: int
) -> None:
    """Where a leader has none on its disk, or does not tell their size, a record is taken to have 1000 bytes."""
    client = ClientConfig(bootstrap_servers=("127.0.0.1:9092",))
    options = parse_options({"bootstrap_servers": "127.0.0.1:9092", "max_bytes_per_task": str(MIB)})
    partition = LivePartition(
        name=NAME,
        topic_id=NO_TOPIC_ID,
        leader=NodeId(7),
        leader_epoch=LeaderEpoch(3),
        log_start_offset=Offset(0),
        end_offset=Offset(END),
        end_epoch=LeaderEpoch(3),
        log_bytes=log_bytes,
        local_log_start_offset=Offset(local_start),
    )

    packed = pack_tasks([partition], {NAME: (Offset(0), Offset(END))}, client, options)

    assert len(packed) == tasks
    spans = sorted((each.start_offset, each.end_offset) for task in packed for each in task.ranges)
    assert [start for start, _ in spans] == [0, *(end for _, end in spans[:-1])]
    assert spans[-1][1] == END
