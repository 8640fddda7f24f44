"""The one truth: what the committed entries add up to, replayed apart from all nodes, and what must hold in it."""

import msgspec

from quorate.kernel.ids import NO_NODE, NodeId, Offset, PartitionIndex, TopicId, TopicName
from quorate.metadata.core import records as r
from quorate.metadata.core.image import MetadataImage, Topic
from quorate.quorum.core.entries import Entry, EntryKind
from quorate.quorum.entry_payload import decode_records
from tests.simulation.cluster.equal_images import EqualImages
from tests.simulation.cluster.findings import Findings


class Truth:
    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        #: By version: after how many entries.
        self.images: list[MetadataImage] = [MetadataImage()]
        self.created: dict[TopicId, TopicName] = {}
        self.deleted: set[TopicId] = set()
        #: Replicas that a record has taken from a node, be it to give them back later.
        self.removed_replicas: set[tuple[TopicId, PartitionIndex, NodeId]] = set()
        #: The highest leader epoch that each deleted topic of the name had.
        self._deleted_epochs: dict[TopicName, dict[TopicId, int]] = {}
        self._replicas: dict[tuple[TopicId, PartitionIndex], tuple[NodeId, ...]] = {}
        self.configs: set[tuple[TopicId, str, str | None]] = set()
        self._equal_images = EqualImages()

    @property
    def latest(self) -> MetadataImage:
        return self.images[-1]

    def extend(self, entry: Entry) -> None:
        """The next entry is committed."""
        version = Offset(entry.offset + 1)
        if entry.kind is not EntryKind.COMMAND:
            self.images.append(msgspec.structs.replace(self.latest, version=version))
            return
        records = decode_records(entry.payload)
        image, delta = self.latest.replay(records, version)
        self.images.append(image)
        for topic in delta.deleted_topics:
            highest = max(state.leader_epoch for state in topic.partitions.values())
            self._deleted_epochs.setdefault(topic.name, {})[topic.topic_id] = highest
        for record in records:
            self._take_note(record)
        whole = bool(delta.changed_brokers)
        names = image.topics if whole else dict.fromkeys(changed.topic for changed in delta.changed_partitions)
        for name in names:
            if (found := image.topics.get(name)) is not None:
                self._check_topic(image, found)

    def check_image(self, node_id: NodeId, image: MetadataImage) -> None:
        """No two nodes' images ever disagree at the same version."""
        if image.version >= len(self.images):
            self._report(f"node {node_id} shows version {image.version}, but {len(self.images) - 1} is the latest")
        elif not self._equal_images.are_equal(image, self.images[image.version]):
            self._report(f"node {node_id} shows another image at version {image.version}")

    def _take_note(self, record: r.AnyRecord) -> None:
        match record:
            case r.TopicCreated(name=name, topic_id=topic_id):
                if topic_id in self.created:
                    self._report(f"topic id {topic_id} of {name} is created again; deleted: {topic_id in self.deleted}")
                self.created[topic_id] = name
            case r.TopicDeleted(topic_id=topic_id):
                self.deleted.add(topic_id)
            case r.PartitionChanged():
                self._take_note_of_partition(record)
            case r.TopicConfigChanged(topic_id=topic_id, key=key, value=value):
                self.configs.add((topic_id, key, value))
            case _:
                pass

    def _take_note_of_partition(self, record: r.PartitionChanged) -> None:
        if record.partition_epoch == 0:
            self._check_new_partition(record)
        key = (record.topic_id, record.partition)
        for node in set(self._replicas.get(key, ())) - set(record.replicas):
            self.removed_replicas.add((*key, node))
        self._replicas[key] = record.replicas

    def _check_new_partition(self, record: r.PartitionChanged) -> None:
        name = self.created[record.topic_id]
        if record.leader == NO_NODE:
            self._report(f"partition {record.partition} of {name} starts unled")
        for topic_id, epoch in self._deleted_epochs.get(name, {}).items():
            if topic_id != record.topic_id and epoch >= record.leader_epoch:
                self._report(f"{name} is made anew at leader epoch {record.leader_epoch}, but {epoch} was taken")

    def _check_topic(self, image: MetadataImage, topic: Topic) -> None:
        for index, state in topic.partitions.items():
            where = f"{topic.name}-{index} at version {image.version}"
            if not state.isr or not set(state.isr) <= set(state.replicas):
                self._report(f"{where}: in sync {state.isr}, replicas {state.replicas}")
            if state.leader == NO_NODE:
                if any(image.is_active(node) for node in state.isr):
                    self._report(f"{where} has no leader, although one of {state.isr} is active")
            elif not image.is_live(state.leader) or state.leader not in state.isr:
                self._report(f"{where} is led by {state.leader}, which is fenced or not in sync")

    def _report(self, text: str) -> None:
        self._findings.report("one truth", text)
