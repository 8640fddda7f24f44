"""What is remembered of topics that are gone, for ever or for as long as there is room.

A log is deleted where a committed record says that its topic was, and never because the image does not know the topic:
an image that lacks one may be one that was lost and begun anew. A node that was down meanwhile learns it from here,
since a snapshot has no history. And a topic that is made anew begins above the leader epochs of its namesakes: clients
ignore metadata with a lower one, and would write to the old leader for ever.

What is oldest is forgotten first. A node that was away for that long sets the log aside instead of deleting it; the
epochs of forgotten names are a floor for every new topic.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import TypeVar

import msgspec

from quorate.kernel.ids import LeaderEpoch, TopicId, TopicName
from quorate.metadata.core.image_parts import Topic

Key = TypeVar("Key")

REMEMBERED_TOPICS = 10_000
_NONE_YET = LeaderEpoch(-1)


class Deletions(msgspec.Struct, frozen=True, kw_only=True):
    #: The ids of deleted topics, oldest first. The values say nothing: it is a set that keeps its order.
    topic_ids: Mapping[TopicId, None] = MappingProxyType({})
    #: The highest leader epoch that a topic of the name had when it was deleted, by the time of its last deletion.
    leader_epochs: Mapping[TopicName, LeaderEpoch] = MappingProxyType({})
    #: The highest of those that were forgotten.
    forgotten_leader_epoch: LeaderEpoch = _NONE_YET

    def first_leader_epoch(self, name: TopicName) -> LeaderEpoch:
        """Where the partitions of a new topic of this name begin."""
        return LeaderEpoch(max(self.leader_epochs.get(name, _NONE_YET), self.forgotten_leader_epoch) + 1)

    def after(self, deleted: Sequence[Topic], room: int = REMEMBERED_TOPICS) -> "Deletions":
        """With these topics deleted too, none of which is forgotten at once: their nodes are about to ask."""
        topic_ids, leader_epochs = dict(self.topic_ids), dict(self.leader_epochs)
        forgotten, room = self.forgotten_leader_epoch, max(room, len(deleted))
        for topic in deleted:
            topic_ids[topic.topic_id] = None
            epochs = (state.leader_epoch for state in topic.partitions.values())
            leader_epochs[topic.name] = max(leader_epochs.pop(topic.name, _NONE_YET), max(epochs, default=_NONE_YET))
        for topic_id in _oldest(topic_ids, room):
            del topic_ids[topic_id]
        for name in _oldest(leader_epochs, room):
            forgotten = max(forgotten, leader_epochs.pop(name))
        return Deletions(topic_ids=topic_ids, leader_epochs=leader_epochs, forgotten_leader_epoch=forgotten)


def _oldest(table: Mapping[Key, object], room: int) -> list[Key]:
    return list(islice(table, max(0, len(table) - room)))
