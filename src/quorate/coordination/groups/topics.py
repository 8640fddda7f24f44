"""The cluster's topics as the group coordinator sees them: a thin view of the metadata image."""

from collections.abc import Mapping

from quorate.coordination.groups.core.consumer.topics import TopicShape
from quorate.kernel.ids import TopicId, TopicName
from quorate.metadata.core.image import Delta, MetadataImage

#: The topics that match a pattern, and the version of the names in which they were looked up.
Matches = Mapping[str, tuple[int, frozenset[TopicName]]]


class ImageTopics:
    def __init__(self, image: MetadataImage, names_version: int, matches: Matches) -> None:
        self._image = image
        self.names_version = names_version
        self._matches = matches

    def after(self, image: MetadataImage, delta: Delta) -> "ImageTopics":
        """The view of the next image."""
        known = self._image.topic_names
        is_new = any(changed.topic_id not in known for changed in delta.changed_partitions)
        names_change = bool(delta.deleted_topics) or is_new
        return ImageTopics(image, image.version if names_change else self.names_version, self._matches)

    @property
    def version(self) -> int:
        return self._image.version

    def shape(self, name: TopicName) -> TopicShape | None:
        topic = self._image.topics.get(name)
        return None if topic is None else TopicShape(topic_id=topic.topic_id, partition_count=len(topic.partitions))

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        return self._image.topic_names.get(topic_id)

    def matching(self, pattern: str) -> frozenset[TopicName] | None:
        names_version, names = self._matches.get(pattern, (None, None))
        return names if names_version == self.names_version else None

    @property
    def names(self) -> Mapping[TopicName, object]:
        """Of an image, which never changes: another thread may read them."""
        return self._image.topics
