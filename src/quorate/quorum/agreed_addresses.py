"""Where the other nodes are, by what the cluster has agreed on or else the configuration. Pure."""

from collections.abc import Mapping

from quorate.kernel.address import Address, parse_address
from quorate.kernel.ids import NodeId
from quorate.metadata.core.image import Broker
from quorate.quorum.core.membership import Membership
from quorate.quorum.core.sanity import is_address


class AgreedAddresses:
    def __init__(self, node_id: NodeId, voters: Mapping[NodeId, Address]) -> None:
        self._node_id = node_id
        self._voters = voters
        #: As they were when last asked for, and what they came from: neither of these ever changes.
        self._found: dict[NodeId, Address] = {}
        self._membership: Membership | None = None
        self._brokers: Mapping[NodeId, Broker] = {}

    def of(self, membership: Membership, brokers: Mapping[NodeId, Broker]) -> Mapping[NodeId, Address]:
        """Read anew only where the cluster has agreed on something else: it is asked for again and again."""
        if membership is not self._membership or brokers is not self._brokers:
            self._membership, self._brokers = membership, brokers
            self._found = self._read(membership, brokers)
        return self._found

    def _read(self, membership: Membership, brokers: Mapping[NodeId, Broker]) -> dict[NodeId, Address]:
        known = dict(self._voters)
        places = [(member.node_id, member.address) for member in membership.members]
        places += [(broker.node_id, broker.peer_address) for broker in brokers.values()]
        known.update({node_id: parse_address(place) for node_id, place in places if place and is_address(place)})
        known.pop(self._node_id, None)
        return known
