"""The controller: hands each command to the module that decides it, and estimates how much work that is.

``decide`` reads an image and changes nothing; replaying the records is what makes a decision true. A command that
cannot be granted raises ``KafkaError`` with the code that the client is to see.
"""

from collections.abc import Callable, Sequence
from typing import assert_never
from uuid import UUID

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import ProducerId, QuorumLeader, new_cluster_id
from quorate.metadata.core import commands as c
from quorate.metadata.core import records as r
from quorate.metadata.core.brokers import (
    begin_controlled_shutdown,
    change_broker_room,
    fence_broker,
    register_broker,
    unfence_broker,
    unregister_broker,
)
from quorate.metadata.core.client_quotas import decide_client_quota
from quorate.metadata.core.config_changes import decide_broker_configs, decide_group_configs, decide_topic_configs
from quorate.metadata.core.decisions import Answer, CarriedOut, Decision, Outcomes, ProducerIdBlock, done
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.elections import ElectionRules, decide_elections
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.placement import LeaderPlacement
from quorate.metadata.core.rebalancing import decide_drain, decide_rebalance
from quorate.metadata.core.replica_changes import decide_for_leader, decide_reassignments
from quorate.metadata.core.topics import create_partitions, create_topic, delete_topic

_ContentCommand = (
    c.FormCluster
    | c.CreateTopic
    | c.DeleteTopic
    | c.CreatePartitions
    | c.AlterTopicConfigs
    | c.AlterBrokerConfigs
    | c.AlterGroupConfigs
    | c.AlterClientQuota
    | c.AllocateProducerIds
)
#: Each command after the first is decided on an image of its own, for which the tables of topics are copied.
_TOPICS_PER_UNIT = 50


class Controller:
    def __init__(
        self,
        view: BrokerView,
        new_uuid: Callable[[], UUID],
        leader_placement: LeaderPlacement = LeaderPlacement.SPREAD,
    ) -> None:
        self._view = view
        self._new_uuid = new_uuid
        self._leader_placement = leader_placement

    def decide(
        self, image: MetadataImage, command: c.Command, *, quorum_leader: QuorumLeader | None = None
    ) -> Decision[Answer]:
        """The records that carry the command out. The quorum leader matters to the policy that favours it, only."""
        favoured = quorum_leader if self._leader_placement is LeaderPlacement.QUORUM_LEADER else None
        rules = ElectionRules(view=self._view, favoured=favoured)
        match command:
            case c.RegisterBroker():
                return register_broker(image, rules, command)
            case c.UnfenceBroker():
                return unfence_broker(image, rules, command)
            case c.FenceBroker():
                return fence_broker(image, rules, command)
            case c.BeginControlledShutdown():
                return begin_controlled_shutdown(image, rules, command)
            case c.ChangeBrokerRoom():
                return change_broker_room(image, rules, command)
            case c.UnregisterBroker():
                return unregister_broker(image, rules, command)
            case c.AlterIsr() | c.ResignLeadership():
                return decide_for_leader(image, rules, command)
            case c.ElectLeaders():
                return decide_elections(image, rules, command)
            case c.AlterPartitionReassignments():
                return decide_reassignments(image, rules, command)
            case c.DrainBroker():
                return decide_drain(image, rules, command)
            case c.RebalancePartitions():
                return decide_rebalance(image, rules, command)
            case _:
                return self._decide_contents(image, rules, command)

    def decide_all(
        self, image: MetadataImage, commands: Sequence[c.Command], quorum_leader: QuorumLeader | None = None
    ) -> tuple[Outcomes, list[r.AnyRecord]]:
        """Decide each command on top of those before it."""
        draft = image
        outcomes: Outcomes = []
        records: list[r.AnyRecord] = []
        for number, command in enumerate(commands, 1):
            try:
                decision = self.decide(draft, command, quorum_leader=quorum_leader)
            except KafkaError as error:
                outcomes.append(error)
                continue
            outcomes.append(decision.answer)
            records.extend(decision.records)
            if decision.records and number < len(commands):
                draft, _ = draft.replay(decision.records, draft.version)
        return outcomes, records

    def _decide_contents(
        self, image: MetadataImage, rules: ElectionRules, command: "_ContentCommand"
    ) -> Decision[Answer]:
        """Commands about the cluster's contents, not its nodes."""
        match command:
            case c.FormCluster(cluster_id=cluster_id):
                return _form_cluster(image, cluster_id or new_cluster_id(self._new_uuid()))
            case c.CreateTopic():
                return create_topic(image, rules, command, self._new_uuid)
            case c.DeleteTopic(topic_id=topic_id):
                return delete_topic(image, topic_id)
            case c.CreatePartitions():
                return create_partitions(image, rules, command)
            case c.AlterTopicConfigs():
                return done(*decide_topic_configs(image, rules, command))
            case c.AlterBrokerConfigs():
                return done(*decide_broker_configs(image, self._view, command))
            case c.AlterGroupConfigs():
                return done(*decide_group_configs(image, self._view, command))
            case c.AlterClientQuota():
                return done(*decide_client_quota(image, command))
            case c.AllocateProducerIds(count=count):
                return _allocate_producer_ids(image, count)
            case _:
                assert_never(command)


def _form_cluster(image: MetadataImage, cluster_id: str) -> Decision[CarriedOut]:
    if image.cluster_id:
        return done()
    return done(r.ClusterFormed(cluster_id=cluster_id))


def _allocate_producer_ids(image: MetadataImage, count: int) -> Decision[ProducerIdBlock]:
    first = image.next_producer_id
    records = (r.ProducerIdsAllocated(next_producer_id=ProducerId(first + count)),)
    return Decision(records=records, answer=ProducerIdBlock(first))


def cost_of(image: MetadataImage, commands: Sequence[c.Command]) -> int:
    """About how much work a decision is, so that a worker can be given what would hold up the loop.

    The unit is a partition that is looked at or changed, a few microseconds.
    """
    between = len(image.topics) // _TOPICS_PER_UNIT
    return sum(_cost(image, command) for command in commands) + (len(commands) - 1) * between


def _cost(image: MetadataImage, command: c.Command) -> int:
    match command:
        case c.CreateTopic(partition_count=count, assignments=assignments):
            return max(1, count, len(assignments or ()))
        case c.CreatePartitions(total_count=count):
            return max(1, count)
        case c.DeleteTopic(topic_id=topic_id):
            topic = image.topic_by_id(topic_id)
            return 1 if topic is None else 1 + len(topic.partitions)
        case c.AlterIsr(changes=changes):
            return len(changes)
        case c.ElectLeaders(partitions=partitions):
            return _all_partitions(image) if partitions is None else len(partitions)
        case c.AlterPartitionReassignments(reassignments=reassignments):
            return len(reassignments)
        case c.RebalancePartitions():
            return _all_partitions(image)
        case _:
            node = getattr(command, "node_id", None)
            return 1 if node is None else 1 + image.replica_count(node)


def _all_partitions(image: MetadataImage) -> int:
    return sum(len(topic.partitions) for topic in image.topics.values())
