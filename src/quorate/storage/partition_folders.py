"""The folders of partitions: where each lies in the data folder, and how one is removed or set aside.

Only this module turns a topic's name into a path. A partition's folder is ``<topic>-<index>``, as in Apache Kafka.
Whatever else a node keeps in its data folder has a name that does not end in ``-<digits>``, so that no topic can be
given a name that leads there.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from itertools import count

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import PartitionIndex, TopicId, TopicName
from quorate.kernel.ports import Disk
from quorate.kernel.topic_names import is_reserved
from quorate.storage.file_names import parent_of

DELETED_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"

_MAX_NAME_BYTES = 255  # On every file system that matters.
_DIGEST_CHARS = 16
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


def remove_logs(disk: Disk, directories: Sequence[str]) -> None:
    """Remove each folder, renamed first in one step: one that is half removed is never taken for a log."""
    doomed = [_with_suffix(directory, DELETED_SUFFIX) for directory in directories]
    for directory, target in zip(directories, doomed, strict=True):
        disk.remove_tree(target)
        disk.rename(directory, target)
    for parent in dict.fromkeys(map(parent_of, directories)):
        disk.sync_directory(parent)
    for target in doomed:
        disk.remove_tree(target)


def set_aside(disk: Disk, directory: str, topic_id: TopicId) -> str:
    """Keep a log under a name that no other log has, and that none is opened by; returns its path."""
    parent, _, name = directory.rpartition("/")
    topic, _, index = name.rpartition("-")
    for attempt in count():
        number = f".{attempt}" if attempt else ""
        stray = _with_suffix(f"{parent}/{topic}", f"-{index}.{topic_id.hex}{number}{STRAY_SUFFIX}")
        if not disk.list_directory(stray):
            break
    disk.rename(directory, stray)
    disk.sync_directory(parent)
    return stray


def _with_suffix(directory: str, suffix: str) -> str:
    """The path of the folder under another name, which no other folder has with this suffix.

    Where its own would be too long for a disk, a digest of it stands in place of its end: the partitions of the longest
    topic names differ only there.
    """
    parent, _, name = directory.rpartition("/")
    room = _MAX_NAME_BYTES - len(suffix)
    if len(name) > room:
        digest = sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
        name = f"{name[: room - _DIGEST_CHARS - 1]}.{digest}"
    return f"{parent}/{name}{suffix}"
