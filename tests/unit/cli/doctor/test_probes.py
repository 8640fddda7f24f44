"""What the doctor sends: a batch that nobody may store, and groups for every coordinator."""

import pytest

from quorate.cli.doctor.examination import groups_by_partition, unacceptable_batch
from quorate.cli.doctor.observations import LeaderClaim
from quorate.coordination.core.partitioning import partition_for
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, NodeId, PartitionIndex, TopicName, TopicPartition
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.records.validation import validate_produced

CLAIM = LeaderClaim(NodeId(7), LeaderEpoch(0))


def test_batch_is_refused_for_its_checksum() -> None:
    with pytest.raises(KafkaError) as refused:
        validate_produced(unacceptable_batch(), produce_version=9)

    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def test_every_partition_of_the_offsets_topic_gets_a_group() -> None:
    partitions = [TopicPartition(CONSUMER_OFFSETS, PartitionIndex(index)) for index in range(50)]
    other = TopicPartition(TopicName("orders"), PartitionIndex(0))

    groups = groups_by_partition(dict.fromkeys([*partitions, other], CLAIM))

    assert set(groups) == set(partitions)
    assert all(partition_for(group, 50) == name.partition for name, group in groups.items())


def test_no_groups_where_partitions_are_missing_from_the_answer() -> None:
    assert groups_by_partition({TopicPartition(CONSUMER_OFFSETS, PartitionIndex(3)): CLAIM}) == {}
    assert groups_by_partition({}) == {}
