"""Names of objects fit every legal topic, tell topics apart, and are believed only where they follow from the rest."""

from itertools import combinations
from uuid import UUID

import pytest

from quorate.backup.errors import NameRefused
from quorate.backup.objects.names import (
    attempt_name,
    is_name_of_segment,
    is_segment_name,
    manifest_name,
    manifest_number,
    partition_folder,
    segment_name,
    topic_label,
)
from quorate.kernel.ids import NO_TOPIC_ID, Offset, PartitionIndex, TopicId, TopicName

TOPIC_ID = TopicId(UUID(int=2**128 - 1))
LARGEST_PARTITION = PartitionIndex(2**31 - 1)
LARGEST_OFFSET = Offset(2**63 - 1)
ATTEMPT = attempt_name("f" * 32, "e" * 32)
LEGAL_TOPICS = ["a", "A" * 180, "a" * 181, "a" * 218, "a" * 219, "b" * 249, "...", "._-", "__consumer_offsets"]
LONGEST_PART = 255 - len(".partial")


@pytest.mark.parametrize("topic_id", [TOPIC_ID, NO_TOPIC_ID])
@pytest.mark.parametrize("topic", LEGAL_TOPICS)
def test_a_topic_name_over_218_characters_makes_folder_names_that_fit(topic: str, topic_id: TopicId) -> None:
    name = segment_name(TopicName(topic), topic_id, LARGEST_PARTITION, LARGEST_OFFSET, ATTEMPT)

    assert max(len(part) for part in name.split("/")) <= LONGEST_PART
    assert len(name) <= 1024  # What S3 takes.
    assert is_segment_name(name)
    assert is_name_of_segment(name, partition_folder(TopicName(topic), topic_id, LARGEST_PARTITION), LARGEST_OFFSET)


def test_a_short_topic_has_its_own_name_in_the_path() -> None:
    assert partition_folder(TopicName("orders"), TOPIC_ID, PartitionIndex(3)) == f"topics/orders~{TOPIC_ID}/3/"


def test_topics_whose_names_differ_in_case_or_at_their_end_have_folders_of_their_own_everywhere() -> None:
    """Clusters from before topic ids have none that could tell them apart; some storages ignore case."""
    topics = ["orders", "Orders", "ORDERS", "a" * 249, "A" * 249, "a" * 248 + "b", "a" * 248, "a" * 180]
    folders = [partition_folder(TopicName(topic), NO_TOPIC_ID, PartitionIndex(0)) for topic in topics]
    labels = [topic_label(TopicName(topic)) for topic in topics]

    for found in (folders, labels):
        for one, other in combinations(found, 2):
            assert one.lower() != other.lower()


@pytest.mark.parametrize("topic", ["", ".", "..", "../x", "a/b", "a b", "a\n", "é", "x" * 250, "a\0"])
def test_what_no_topic_can_be_called_makes_no_name(topic: str) -> None:
    with pytest.raises(NameRefused, match="cannot be used in an object's name"):
        partition_folder(TopicName(topic), TOPIC_ID, PartitionIndex(0))
    with pytest.raises(NameRefused, match="cannot be used in an object's name"):
        topic_label(TopicName(topic))


GOOD = segment_name(TopicName("orders"), TOPIC_ID, PartitionIndex(0), Offset(5), ATTEMPT)


@pytest.mark.parametrize(
    "name",
    [
        "../../x",
        "/etc/passwd",
        GOOD.replace("topics/", "topics/../topics/"),
        GOOD.replace("/0/", "/0/../1/"),
        GOOD.replace("/0/", "/00/"),
        GOOD.replace("/0/", "/1/"),
        GOOD.replace("orders", "Orders"),
        GOOD.replace("0005-", "0006-"),
        GOOD.replace(".qseg", ""),
        GOOD + "\n",
        GOOD + ".qseg",
        GOOD.replace(ATTEMPT, "../../a"),
        GOOD.replace(ATTEMPT, ""),
        "manifests/000001.json",
    ],
)
def test_a_name_that_does_not_follow_from_the_segment_is_not_its_name(name: str) -> None:
    folder = partition_folder(TopicName("orders"), TOPIC_ID, PartitionIndex(0))
    assert is_name_of_segment(GOOD, folder, Offset(5))
    assert not is_name_of_segment(name, folder, Offset(5))


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/passwd", "topics/../x", "topics/a/0/b", "manifests/000001.json", GOOD + "/a"]
)
def test_what_is_no_segment_has_no_segments_name(name: str) -> None:
    assert not is_segment_name(name)


@pytest.mark.parametrize("number", [1, 10, 999_999, 1_000_000, 10**12 - 1])
def test_the_name_of_a_manifest_tells_its_number(number: int) -> None:
    assert manifest_number(manifest_name(number)) == number


@pytest.mark.parametrize(
    "name",
    [
        "manifests/000000.json",
        "manifests/00001.json",
        "manifests/0000001.json",
        "manifests/000000000000.json",
        "manifests/1000000000000.json",
        "manifests/00000\u0661.json",
        "manifests/\u0661000000.json",
        "manifests/000001.json\n",
        "manifests/000001.checkpoint.json",
        "other/manifests/000001.json",
    ],
)
def test_a_number_that_is_not_written_as_a_manifests_is_none(name: str) -> None:
    assert manifest_number(name) is None
