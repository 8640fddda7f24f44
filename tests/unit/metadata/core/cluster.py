"""A small cluster's metadata for tests: commands go in, images come out."""

from collections.abc import Iterable, Mapping
from typing import cast
from uuid import UUID

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import BrokerEpoch, DirectoryId, NodeId, Offset, PartitionIndex, QuorumLeader, Term, TopicName
from quorate.metadata.core.commands import (
    AlterIsr,
    BeginControlledShutdown,
    ChangeBrokerRoom,
    Command,
    CreateTopic,
    FenceBroker,
    IsrChange,
    IsrMember,
    RegisterBroker,
    UnfenceBroker,
)
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.decisions import (
    AcceptedRegistration,
    AnswerT_co,
    CarriedOut,
    Decision,
    PartitionOutcome,
    TaggedCommand,
)
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.image import Delta, MetadataImage, PartitionState, TopicIdPartition
from quorate.metadata.core.placement import LeaderPlacement

ORDERS = TopicName("orders")


class Cluster:
    """Carries out decisions at once, as if every record were committed the moment it is decided."""

    def __init__(self, nodes: Iterable[int] = (7, 100, 4001), **static_configs: str) -> None:
        self._uuids = iter(range(1, 100_000))
        view = BrokerView(
            node_id=NodeId(7), static_configs={name.replace("_", "."): value for name, value in static_configs.items()}
        )
        self.now_ms = 0
        self.controller = Controller(view, self.new_uuid, lambda: self.now_ms)
        self.view = view
        self.quorum_leader: QuorumLeader | None = None
        self.image = MetadataImage()
        self.delta = Delta()
        for node in nodes:
            self.register(node)

    @classmethod
    def with_racks(cls, racks: Mapping[int, str | None]) -> "Cluster":
        cluster = cls(nodes=())
        for node, rack in racks.items():
            cluster.register(node, rack=rack)
        return cluster

    def new_uuid(self) -> UUID:
        return UUID(int=next(self._uuids))

    def favour_quorum_leader(self, node: int) -> None:
        """From now on, partitions are led by this node where it is a replica."""
        self.controller = Controller(self.view, self.new_uuid, lambda: self.now_ms, LeaderPlacement.QUORUM_LEADER)
        self.quorum_leader = QuorumLeader(NodeId(node), Term(3))

    def do(self, command: TaggedCommand[AnswerT_co]) -> Decision[AnswerT_co]:
        decision = self.controller.decide(self.image, cast(Command, command), quorum_leader=self.quorum_leader)
        version = Offset(self.image.version + len(decision.records))
        self.image, self.delta = self.image.replay(decision.records, version)
        return cast(Decision[AnswerT_co], decision)

    def refusal(self, command: Command) -> KafkaError | None:
        """The error that refuses the command; None if it was carried out."""
        try:
            self.do(command)
        except KafkaError as error:
            return error
        return None

    def register(
        self, node: int, *, rack: str | None = None, fenced: bool = False, start: int = 0, folder: int = 0
    ) -> Decision[AcceptedRegistration]:
        return self.do(
            RegisterBroker(
                node_id=NodeId(node),
                host=f"host-{node}",
                port=9092,
                rack=rack,
                incarnation=UUID(int=start),
                directory_id=DirectoryId(UUID(int=folder)),
                peer_address=f"host-{node}:9093",
                fenced=fenced,
            )
        )

    def fence(self, node: int) -> Decision[CarriedOut]:
        return self.do(FenceBroker(node_id=NodeId(node), broker_epoch=self.epoch(node)))

    def unfence(self, node: int) -> Decision[CarriedOut]:
        return self.do(UnfenceBroker(node_id=NodeId(node), broker_epoch=self.epoch(node)))

    def shut_down(self, node: int) -> Decision[CarriedOut]:
        return self.do(BeginControlledShutdown(node_id=NodeId(node), broker_epoch=self.epoch(node)))

    def change_room(self, node: int, *, has_room: bool) -> Decision[CarriedOut]:
        return self.do(ChangeBrokerRoom(node_id=NodeId(node), broker_epoch=self.epoch(node), has_room=has_room))

    def epoch(self, node: int) -> BrokerEpoch:
        return self.image.brokers[NodeId(node)].broker_epoch

    def create(self, *placements: tuple[int, ...], name: str = ORDERS, **configs: str) -> None:
        """A topic with these replicas."""
        self.do(
            CreateTopic(
                name=name,
                assignments={
                    PartitionIndex(index): tuple(map(NodeId, replicas)) for index, replicas in enumerate(placements)
                },
                configs={key.replace("_", "."): value for key, value in configs.items()},
            )
        )

    def state(self, partition: int = 0, topic: str = ORDERS) -> PartitionState:
        return self.image.topics[TopicName(topic)].partitions[PartitionIndex(partition)]

    def name(self, partition: int = 0, topic: str = ORDERS) -> TopicIdPartition:
        found = self.image.topics[TopicName(topic)]
        return TopicIdPartition(found.topic_id, found.name, PartitionIndex(partition))

    def isr_change(self, isr: Iterable[int], partition: int = 0) -> IsrChange:
        """What the leader would propose on the present state."""
        state = self.state(partition)
        return IsrChange(
            topic_id=self.image.topics[ORDERS].topic_id,
            partition=PartitionIndex(partition),
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            new_isr=tuple(IsrMember(node_id=NodeId(node), broker_epoch=self.epoch(node)) for node in isr),
        )

    def alter_isr(self, *changes: IsrChange, leader: int | None = None) -> PartitionOutcome:
        """Propose as the leader of the first partition; returns the outcome of the first change."""
        node = self.state(changes[0].partition).leader if leader is None else NodeId(leader)
        return self.do(AlterIsr(node_id=node, broker_epoch=self.epoch(node), changes=changes)).answer.partitions[0]
