"""Images are compared by what is new in them, and told apart wherever that is."""

from msgspec.structs import replace

from quorate.kernel.ids import NodeId, Offset, PartitionIndex, TopicName
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.snapshot import decode_image, encode_image
from tests.simulation.cluster.equal_images import EqualImages
from tests.unit.metadata.core.cluster import ORDERS, Cluster


def copied(image: MetadataImage) -> MetadataImage:
    return decode_image(encode_image(image))


def test_images_that_share_nothing_are_equal_where_they_hold_the_same() -> None:
    cluster = Cluster()
    cluster.create((7, 100), (100, 4001))
    images = EqualImages()
    for _ in range(2):
        assert images.are_equal(cluster.image, copied(cluster.image))


def test_one_difference_is_found_also_behind_what_was_compared_before() -> None:
    cluster = Cluster()
    cluster.create((7, 100), (100, 4001))
    cluster.create((7,), name="payments")
    image, other = cluster.image, copied(cluster.image)
    images = EqualImages()
    assert images.are_equal(image, other)

    orders = other.topics[ORDERS]
    partitions = dict(orders.partitions)
    partitions[PartitionIndex(0)] = replace(partitions[PartitionIndex(0)], leader=NodeId(100))
    topics = {**other.topics, ORDERS: replace(orders, partitions=partitions)}
    fewer = {name: topic for name, topic in other.topics.items() if name != TopicName("payments")}
    for different in (
        replace(other, topics=topics),
        replace(other, topics=fewer),
        replace(other, version=Offset(other.version + 1)),
        replace(other, brokers={}),
        replace(other, next_producer_id=1),
    ):
        assert not images.are_equal(image, different)
        assert not images.are_equal(different, image)
    assert images.are_equal(image, other)
