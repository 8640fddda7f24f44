"""The controller: hands each command to the module that decides it, and estimates how much work that is.

``decide`` reads an image and changes nothing; replaying the records is what makes a decision true. A command that
cannot be granted raises ``KafkaError`` with the code that the client is to see.

What clients create and delete in a second has a quota, ``controller_mutation_rate`` (KIP-599). It is one of the whole
cluster, so all that is changed is counted where it is decided. Whoever leads the quorum next starts with full buckets,
as with Apache Kafka. A client that knows THROTTLING_QUOTA_EXCEEDED is refused while its bucket is overdrawn, and may
overdraw a bucket by any number of partitions; for one that does not, changes are made and it is held back afterwards.
"""

from collections.abc import Callable, Sequence
from typing import cast
from uuid import UUID

import msgspec

from quorate.kernel.errors import KafkaError, ThrottlingError
from quorate.kernel.ids import ProducerId, QuorumLeader, TopicId, new_cluster_id
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
from quorate.metadata.core.client_quotas import CONTROLLER_MUTATION_RATE, decide_client_quota
from quorate.metadata.core.config_changes import decide_broker_configs, decide_group_configs, decide_topic_configs
from quorate.metadata.core.decisions import Answer, CarriedOut, CreatedTopic, Decision, Outcomes, ProducerIdBlock, done
from quorate.metadata.core.effective_configs import BrokerView, broker_value
from quorate.metadata.core.elections import ElectionRules, decide_elections
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.placement import LeaderPlacement
from quorate.metadata.core.quota_entities import ClientQuotas
from quorate.metadata.core.rate_quotas import QuotaTable, RateQuota, WindowConfig
from quorate.metadata.core.rebalancing import decide_drain, decide_rebalance
from quorate.metadata.core.replica_changes import decide_for_leader, decide_reassignments
from quorate.metadata.core.security_changes import decide_security
from quorate.metadata.core.security_commands import DeleteAcls, RemoveExpiredTokens, SecurityCommand
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
    | SecurityCommand
)
#: Each command after the first is decided on an image of its own, for which the tables of topics are copied.
_TOPICS_PER_UNIT = 50


class Controller:
    def __init__(
        self,
        view: BrokerView,
        new_uuid: Callable[[], UUID],
        now_ms: Callable[[], int],
        leader_placement: LeaderPlacement = LeaderPlacement.SPREAD,
    ) -> None:
        self._view = view
        self._new_uuid = new_uuid
        self._now_ms = now_ms
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

    def mutation_quotas(self, image: MetadataImage) -> "MutationQuotas":
        """For a quorum leader that starts to count what clients change."""
        window = WindowConfig(
            sample_count=cast(int, broker_value(image, self._view, "controller.quota.window.num")),
            sample_size_ms=cast(int, broker_value(image, self._view, "controller.quota.window.size.seconds")) * 1000,
        )
        return MutationQuotas(window)

    def decide_all(
        self,
        image: MetadataImage,
        commands: Sequence[c.Command],
        quorum_leader: QuorumLeader | None = None,
        charge: Callable[[MetadataImage, c.Command, Decision[Answer]], Decision[Answer]] | None = None,
    ) -> tuple[Outcomes, list[r.AnyRecord]]:
        """Decide each command on top of those before it. Whom it is for is charged with each that is granted."""
        draft = image
        outcomes: Outcomes = []
        records: list[r.AnyRecord] = []
        for number, command in enumerate(commands, 1):
            try:
                decision = self.decide(draft, command, quorum_leader=quorum_leader)
                if charge is not None:
                    decision = charge(draft, command, decision)
            except KafkaError as error:
                outcomes.append(error.again())
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
                return decide_security(image, self._view, command, self._now_ms())


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
        case DeleteAcls():
            return 1 + len(image.security.acls)
        case RemoveExpiredTokens():
            return 1 + len(image.security.tokens)
        case _:
            node = getattr(command, "node_id", None)
            return 1 if node is None else 1 + image.replica_count(node)


def _all_partitions(image: MetadataImage) -> int:
    return sum(len(topic.partitions) for topic in image.topics.values())


class MutationQuotas:
    def __init__(self, window: WindowConfig) -> None:
        self._rates = RateQuota(window.bucket_ms)
        self._known: ClientQuotas | None = None

    def charge(
        self, image: MetadataImage, command: c.Command, decision: Decision[Answer], now_ms: float
    ) -> Decision[Answer]:
        """Count what a decision that was made on the image changes; ``ThrottlingError`` where it is not to be made."""
        if not isinstance(command, c.CreateTopic | c.CreatePartitions | c.DeleteTopic):
            return decision
        client, mutations = command.charged_to, _mutations(image, command, decision)
        if client is msgspec.UNSET or not mutations:
            return decision
        if image.client_quotas is not self._known:
            self._known = image.client_quotas
            self._rates.replace(QuotaTable(self._known, CONTROLLER_MUTATION_RATE))
        if not self._rates.limits:
            return decision
        return self._charge(client, mutations, decision, now_ms)

    def _charge(self, client: c.Charge, mutations: int, decision: Decision[Answer], now_ms: float) -> Decision[Answer]:
        if client.is_strict:
            overdrawn_ms = self._rates.charge(client.user, client.client_id, 0, now_ms)
            if overdrawn_ms:
                raise ThrottlingError(overdrawn_ms)
        wait_ms = self._rates.charge(client.user, client.client_id, mutations, now_ms)
        if client.is_strict or not wait_ms:
            return decision
        answer = cast(CarriedOut | CreatedTopic, decision.answer)
        return Decision(records=decision.records, answer=msgspec.structs.replace(answer, throttle_time_ms=wait_ms))


def _mutations(
    image: MetadataImage, command: c.CreateTopic | c.CreatePartitions | c.DeleteTopic, decision: Decision[Answer]
) -> int:
    """How many partitions come or go. What was decided before, and is asked for again, changes nothing."""
    if not decision.records:
        return 0
    match command:
        case c.CreateTopic():
            return len(cast(CreatedTopic, decision.answer).topic.partitions)
        case c.CreatePartitions():
            return len(decision.records)
        case c.DeleteTopic(topic_id=topic_id):
            return _partition_count(image, topic_id)


def _partition_count(image: MetadataImage, topic_id: TopicId) -> int:
    topic = image.topic_by_id(topic_id)
    return 0 if topic is None else len(topic.partitions)
