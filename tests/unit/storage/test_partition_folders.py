import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.storage.partition_folders import partition_folder, partition_index


def test_a_folder_is_named_after_its_topic_and_partition() -> None:
    assert partition_folder("/data", TopicName("a-1"), PartitionIndex(12)) == "/data/a-1-12"
    assert partition_index("a-1-12") == 12


def test_the_name_of_the_metadata_log_leads_nowhere() -> None:
    with pytest.raises(KafkaError, match="reserved for the metadata log: delete this topic") as refused:
        partition_folder("/data", TopicName("__cluster_metadata"), PartitionIndex(0))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["meta.properties", "a-0-delete", "a-0.0f-stray", "a-", "-1", "a-1x", "a-٣"])
def test_other_names_are_not_those_of_a_partition(name: str) -> None:
    assert partition_index(name) is None
