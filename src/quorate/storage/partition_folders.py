"""Where the log of a partition lies in the data folder: the only place that turns a topic's name into a path.

A partition's folder is ``<topic>-<index>``, as in Apache Kafka. Whatever else a node keeps in its data folder has a
name that does not end in ``-<digits>``, so that no topic can be given a name that leads there.
"""

import re

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.kernel.topic_names import is_reserved

_PARTITION_FOLDER = re.compile(r".+-([0-9]+)")


def partition_folder(data_dir: str, topic: TopicName, index: PartitionIndex) -> str:
    """The path of the folder. A topic with a reserved name, which an earlier version could create, has none."""
    if is_reserved(topic):
        raise KafkaError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"The name {topic} is reserved for the metadata log: delete this topic.",
        )
    return f"{data_dir}/{topic}-{index}"


def partition_index(folder_name: str) -> PartitionIndex | None:
    """The partition that a folder of this name belongs to; None where it is not the folder of a partition."""
    found = _PARTITION_FOLDER.fullmatch(folder_name)
    return None if found is None else PartitionIndex(int(found[1]))
