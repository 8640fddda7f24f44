"""A small cluster's metadata for tests: commands go in, images come out."""

from collections.abc import Iterable
from uuid import UUID

from quorate.kernel.ids import NodeId, Offset
from quorate.metadata.commands import Command, RegisterBroker
from quorate.metadata.controller import Controller, Decision
from quorate.metadata.effective_configs import BrokerView
from quorate.metadata.image import Delta, MetadataImage


class Cluster:
    """Carries out decisions at once, as if every record were committed the moment it is decided."""

    def __init__(self, nodes: Iterable[int] = (7, 100, 4001), **static_configs: str) -> None:
        self._uuids = iter(range(1, 10_000))
        view = BrokerView(
            node_id=NodeId(7), static_configs={name.replace("_", "."): value for name, value in static_configs.items()}
        )
        self.controller = Controller(view, lambda: UUID(int=next(self._uuids)))
        self.view = view
        self.image = MetadataImage()
        self.delta = Delta()
        for node in nodes:
            self.do(RegisterBroker(node_id=NodeId(node), host=f"host-{node}", port=9092, fenced=False))

    def do(self, command: Command) -> Decision:
        decision = self.controller.decide(self.image, command)
        version = Offset(self.image.version + len(decision.records))
        self.image, self.delta = self.image.replay(decision.records, version)
        return decision
