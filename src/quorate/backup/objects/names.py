"""How the objects of a backup are named, below its folder.

A segment's name ends with the attempt that wrote it, so that a task which runs twice never writes one object twice. All
before that follows from what the segment holds, so a name that a manifest gives is checked against it.

Every name fits: a part of it is never longer than what file systems take (255 bytes), and of two topics whose names
differ only in case, or behind where a name was cut, each has a folder of its own, by the topic's id or by a hash of the
name where clusters have no ids.
"""

import functools
import hashlib
import re

from quorate.backup.errors import BackupError, NameRefused
from quorate.backup.objects.stored_documents import MAX_MANIFEST_NUMBER
from quorate.kernel.ids import NO_TOPIC_ID, Offset, PartitionIndex, TopicId, TopicName

MANIFESTS = "manifests/"
TOPICS = "topics/"
PROBES = "probes/"

# What stands in the place of a manifest that was pruned, so that its number is never given again.
PRUNED_CONTENT = b'{"pruned": true}\n'

# Only as ``manifest_name`` writes it.
_MANIFEST = re.compile(r"manifests/((?!000000)[0-9]{6}|[1-9][0-9]{6,11})\.json")
_CHECKPOINT = re.compile(r"manifests/(\d{6,12})\.checkpoint\.json")
_LAYER = re.compile(r"manifests/(\d{6,12})-([A-Za-z0-9_-]{1,64})\.layer\.json")
_PRUNED_RANGE = re.compile(r"manifests/(\d{6,12})-(\d{6,12})\.pruned")
_SAFE_SEGMENT = re.compile(r"[A-Za-z0-9._-]{1,249}")
_ATTEMPT = re.compile(r"[A-Za-z0-9_-]{1,100}")
_SEGMENT = re.compile(
    r"topics/[A-Za-z0-9._-]{1,180}(~[0-9a-f]{16})?~[0-9a-f-]{36}/\d{1,10}/\d{20}-[A-Za-z0-9_-]{1,100}\.qseg"
)
_RUN_OF_SEGMENT = re.compile(r"topics/.*/\d{20}-([A-Za-z0-9_]+)-[^/]*")
_LABEL_LENGTH = 180  # With a hash and an id behind it, a folder's name has 235 characters at most.
_HASH_LENGTH = 16
_RUN_LENGTH = 8
_UNIQUE_LENGTH = 12


def manifest_name(number: int) -> str:
    if number > MAX_MANIFEST_NUMBER:
        raise BackupError(f"manifest {number} cannot be stored: numbers end at {MAX_MANIFEST_NUMBER}")
    return f"{MANIFESTS}{number:06d}.json"


@functools.lru_cache(maxsize=4096)  # A round of a continuous backup lists them twice, and most are those of the last.
def manifest_number(name: str) -> int | None:
    """None for any object that is not a manifest."""
    match = _MANIFEST.fullmatch(name)
    return int(match[1]) if match else None


def checkpoint_name(number: int) -> str:
    """Where a manifest that is stored as a delta is stored whole, too, once the manifest that it follows is pruned."""
    return f"{MANIFESTS}{number:06d}.checkpoint.json"


def checkpoint_number(name: str) -> int | None:
    """None for any object that is not a checkpoint."""
    match = _CHECKPOINT.fullmatch(name)
    number = int(match[1]) if match else None
    return number if number and name == checkpoint_name(number) else None


def layer_name(number: int, run_id: str) -> str:
    """What manifests repeat of the manifest that this run has published, or was about to, under this number."""
    return f"{MANIFESTS}{number:06d}-{run_id}.layer.json"


def is_layer_name(name: str) -> bool:
    match = _LAYER.fullmatch(name)
    return match is not None and int(match[1]) > 0 and name == layer_name(int(match[1]), match[2])


def pruned_range_name(numbers: range) -> str:
    """The object that replaces the marks of all these numbers, once no run can be at work that began before them."""
    return f"{MANIFESTS}{numbers[0]:06d}-{numbers[-1]:06d}.pruned"


def pruned_range(name: str) -> range | None:
    """None for any object that does not stand for marks."""
    match = _PRUNED_RANGE.fullmatch(name)
    numbers = range(int(match[1]), int(match[2]) + 1) if match else range(0)
    return numbers if numbers and name == pruned_range_name(numbers) else None


def attempt_name(run_id: str, unique: str) -> str:
    """For one attempt of one task of a run: no other has it."""
    return f"{run_id[:_RUN_LENGTH]}-{unique[:_UNIQUE_LENGTH]}"


def run_of(name: str) -> str | None:
    """What tells the run that wrote a segment, whole or in part; None for other objects."""
    match = _RUN_OF_SEGMENT.fullmatch(name)
    return match[1] if match else None


def segment_name(
    topic: TopicName, topic_id: TopicId, partition: PartitionIndex, base_offset: Offset, attempt: str
) -> str:
    if not _ATTEMPT.fullmatch(attempt):
        raise ValueError(f"attempt {attempt!r} cannot be used in an object's name")
    return f"{partition_folder(topic, topic_id, partition)}{base_offset:020d}-{attempt}.qseg"


def is_segment_name(name: str) -> bool:
    """Whether a segment can have this name, be it of any topic."""
    return _SEGMENT.fullmatch(name) is not None


def is_name_of_segment(name: str, folder: str, base_offset: Offset) -> bool:
    """Whether it is what ``segment_name`` makes of these, for some attempt; ``folder`` is that of the partition."""
    begin = f"{folder}{base_offset:020d}-"
    attempt = name.removeprefix(begin).removesuffix(".qseg")
    return name == f"{begin}{attempt}.qseg" and _ATTEMPT.fullmatch(attempt) is not None


def partition_folder(topic: TopicName, topic_id: TopicId, partition: PartitionIndex) -> str:
    if not is_safe_segment(topic):
        raise NameRefused(f"topic name {topic!r} cannot be used in an object's name")
    is_told_apart = topic_id != NO_TOPIC_ID and len(topic) <= _LABEL_LENGTH
    label = topic if is_told_apart else topic_label(topic)
    return f"{TOPICS}{label}~{topic_id}/{partition}/"


def topic_label(topic: TopicName) -> str:
    """A part of a path that only this topic has, short enough to take a suffix."""
    if not is_safe_segment(topic):
        raise NameRefused(f"topic name {topic!r} cannot be used in an object's name")
    return f"{topic[:_LABEL_LENGTH]}~{hashlib.sha256(topic.encode()).hexdigest()[:_HASH_LENGTH]}"


def probe_name(run_id: str) -> str:
    return f"{PROBES}put-if-absent-{run_id}"


def is_safe_segment(text: str) -> bool:
    """Whether the text can stand between two slashes on every storage: topic names can, and ids of backups."""
    return _SAFE_SEGMENT.fullmatch(text) is not None and text not in (".", "..")
