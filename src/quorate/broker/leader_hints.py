"""Who leads instead, for answers to requests that came to the wrong node (KIP-951). Read from the image alone."""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NodeId, PartitionIndex, PartitionLeader, TopicName
from quorate.metadata.core.image import MetadataImage

HINTED_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class _Endpoint(Protocol):
    def __init__(self, *, node_id: int, host: str, port: int, rack: str | None) -> None: ...


EndpointT = TypeVar("EndpointT", bound=_Endpoint)


def leader_hint(image: MetadataImage, topic: str, index: int, error: ErrorCode) -> PartitionLeader | None:
    """The leader to name in an answer with this error, where there is one that can be reached."""
    if error not in HINTED_ERRORS:
        return None
    leader = image.partition_leader(TopicName(topic), PartitionIndex(index))
    return leader if leader is not None and leader.node_id in image.brokers else None


def endpoints(image: MetadataImage, leaders: Iterable[int], kind: type[EndpointT], listener: str) -> list[EndpointT]:
    """Where the named leaders are for who came by the listener."""
    brokers = [image.brokers[NodeId(node_id)] for node_id in sorted(set(leaders))]
    return [
        kind(node_id=broker.node_id, host=where.host, port=where.port, rack=broker.rack)
        for broker in brokers
        if (where := broker.endpoint(listener)) is not None
    ]
