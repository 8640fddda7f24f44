"""A cluster's metadata without its network: commands go in at a controller, and one node applies what it decides.

Whatever is decided is encoded, read and replayed as on real nodes, and each of these steps is timed. That the entries
travel, are written to disks and are voted on is left out: this is for sizes at which whole nodes do not fit.
"""

import gc
import time
from collections.abc import Callable, Sequence
from typing import TypeVar
from uuid import UUID

import msgspec

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import BrokerEpoch, DirectoryId, NodeId, Offset
from quorate.metadata.core import commands as c
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.quorum.entry_payload import decode_records, encode_records

Result = TypeVar("Result")

#: Every hundredth node, so that no id is taken for an index.
FIRST_NODE = 100


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Of one operation; all times are processor time."""

    entries: int = 0
    records: int = 0
    #: Of all entries, once; each goes to every other node.
    entry_bytes: int = 0
    largest_entry_bytes: int = 0
    #: To decide and to encode, on the quorum leader.
    controller_s: float = 0.0
    #: To read the records and to replay them, on every node.
    node_s: float = 0.0
    #: The most that one entry takes of that: to read it, which is done on the loop, and to replay it, by a worker
    #: where it is long.
    longest_read_s: float = 0.0
    longest_replay_s: float = 0.0

    def plus(self, other: "Cost") -> "Cost":
        return Cost(
            entries=self.entries + other.entries,
            records=self.records + other.records,
            entry_bytes=self.entry_bytes + other.entry_bytes,
            largest_entry_bytes=max(self.largest_entry_bytes, other.largest_entry_bytes),
            controller_s=self.controller_s + other.controller_s,
            node_s=self.node_s + other.node_s,
            longest_read_s=max(self.longest_read_s, other.longest_read_s),
            longest_replay_s=max(self.longest_replay_s, other.longest_replay_s),
        )


class AgreedCluster:
    def __init__(self) -> None:
        self._uuids = 0
        self.view = BrokerView(node_id=NodeId(FIRST_NODE), static_configs={})
        self._controller = Controller(self.view, self._new_uuid, lambda: 0)
        self.image = MetadataImage()
        self.delta = Delta()

    def submit(self, *commands: c.Command) -> Cost:
        """Decide the commands together, as one entry, and apply it."""
        (outcomes, records), decided_s = timed(lambda: self._controller.decide_all(self.image, commands))
        for outcome in outcomes:
            if isinstance(outcome, KafkaError):
                raise outcome.again()
        if not records:
            return Cost(controller_s=decided_s)
        payload, encoded_s = timed(lambda: encode_records(records))
        read, read_s = timed(lambda: decode_records(payload))
        (self.image, self.delta), replayed_s = timed(lambda: self.image.replay(read, Offset(self.image.version + 1)))
        return Cost(
            entries=1,
            records=len(records),
            entry_bytes=len(payload),
            largest_entry_bytes=len(payload),
            controller_s=decided_s + encoded_s,
            node_s=read_s + replayed_s,
            longest_read_s=read_s,
            longest_replay_s=replayed_s,
        )

    def join(self, node: NodeId) -> Cost:
        registered = self.submit(
            c.RegisterBroker(
                node_id=node,
                host=f"node-{node}.example",
                port=9092,
                rack=f"rack-{node % 3}",
                incarnation=self._new_uuid(),
                directory_id=DirectoryId(UUID(int=node)),
                peer_address=f"node-{node}.example:9093",
                fenced=True,
            )
        )
        return registered.plus(self.submit(c.UnfenceBroker(node_id=node, broker_epoch=self.epoch(node))))

    def epoch(self, node: NodeId) -> BrokerEpoch:
        return self.image.brokers[node].broker_epoch

    def _new_uuid(self) -> UUID:
        self._uuids += 1
        return UUID(int=(self._uuids * 0x9E3779B97F4A7C15F39CC0605CEDC834) % 2**128)


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    """What comes of it, and the processor time that it took, garbage collection left out.

    Nodes freeze what lives long, so that theirs looks at nothing twice; here it would look at whole images.
    """
    gc.disable()
    try:
        started = time.thread_time()
        result = work()
        return result, time.thread_time() - started
    finally:
        gc.enable()


def total(costs: Sequence[Cost]) -> Cost:
    result = Cost()
    for cost in costs:
        result = result.plus(cost)
    return result
