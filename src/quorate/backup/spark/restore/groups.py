"""Consumer groups of a restore: translated, committed at the target, and brought back to what they were. Does I/O."""

from collections.abc import Sequence

from quorate.backup.manifests.manifest import GroupEntry, GroupOffset, Manifest
from quorate.backup.planning.cluster_snapshot import TopicSelection
from quorate.backup.restore.checks import group_refusals
from quorate.backup.restore.ledger import GroupSnapshot, RestoreLedger
from quorate.backup.restore.offset_map import TranslatedGroup, translate_group
from quorate.backup.restore.plan import RestorePlan
from quorate.client.admin.groups import OffsetAndMetadata
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import TopicName, TopicPartition


class RestoreGroups:
    def __init__(self, ledger: RestoreLedger, restore_id: str, plan: RestorePlan, manifest: Manifest) -> None:
        self._ledger = ledger
        self._restore_id = restore_id
        self._plan = plan
        self._manifest = manifest

    def translate(self, selection: TopicSelection) -> list[TranslatedGroup]:
        """Where each selected group goes on; those without an offset in a restored topic are not here."""
        plan, restore_id = self._plan, self._restore_id
        maps = {topic.name: self._ledger.offset_map(restore_id, plan.map_id, topic.name) for topic in plan.topics}
        newest: dict[TopicName, int] = {}
        for topic in self._manifest.topics:
            newest[topic.name] = max(topic.generation, newest.get(topic.name, 0))
        translated = [translate_group(group, plan, maps, newest) for group in self._selected(selection)]
        return [group for group in translated if group.offsets]

    def apply(self, client: KafkaClient, selection: TopicSelection) -> list[TranslatedGroup]:
        """Commit at the target, and read back what was committed. What was there before is kept, the first time."""
        groups = self.translate(selection)
        refuse_active(client, [group.group for group in groups])
        for group in groups:
            self._ledger.put_group_snapshot(self._restore_id, _snapshot(client, group.group, self._topics()))
        for group in groups:
            _commit(client, group)
        return groups

    def rollback(self, client: KafkaClient) -> list[str]:
        """Give the groups the offsets that they had in the restored topics before the first commit."""
        before = self._ledger.group_snapshots(self._restore_id)
        if not before:
            raise QuorateError(f"restore {self._restore_id} has committed no group's offsets: there is nothing to undo")
        refuse_active(client, [each.group for each in before])
        for snapshot in before:
            earlier = {TopicPartition(each.topic, each.partition): each for each in snapshot.offsets}
            added = [
                name
                for name in client.groups.offsets(snapshot.group)
                if name.topic in self._topics() and name not in earlier
            ]
            if added:
                client.groups.delete_offsets(snapshot.group, added)
            if earlier:
                committed = {
                    name: OffsetAndMetadata(offset=each.offset, leader_epoch=each.leader_epoch, metadata=each.metadata)
                    for name, each in earlier.items()
                }
                client.groups.commit_offsets(snapshot.group, committed)
        return [each.group for each in before]

    def _selected(self, selection: TopicSelection) -> list[GroupEntry]:
        return [group for group in self._manifest.groups if selection.selects(group.group)]

    def _topics(self) -> set[TopicName]:
        return {topic.name for topic in self._plan.topics}


def refuse_active(client: KafkaClient, groups: Sequence[str]) -> None:
    described = client.groups.describe(groups)
    for sentence in group_refusals(group for group, each in described.items() if each.is_active):
        raise QuorateError(sentence)


def _snapshot(client: KafkaClient, group: str, topics: set[TopicName]) -> GroupSnapshot:
    return GroupSnapshot(
        group=group,
        offsets=[
            GroupOffset(
                topic=name.topic,
                partition=name.partition,
                offset=found.offset,
                leader_epoch=found.leader_epoch,
                metadata=found.metadata or "",
            )
            for name, found in sorted(client.groups.offsets(group).items())
            if name.topic in topics
        ],
    )


def _commit(client: KafkaClient, group: TranslatedGroup) -> None:
    wanted = {
        TopicPartition(each.topic, each.partition): OffsetAndMetadata(offset=each.offset, metadata=each.metadata)
        for each in group.offsets
    }
    client.groups.commit_offsets(group.group, wanted)
    found = client.groups.offsets(group.group)
    for name, committed in wanted.items():
        if name not in found or found[name].offset != committed.offset:
            raise QuorateError(f"group {group.group} has not the offset in {name} that was committed: run it again")
