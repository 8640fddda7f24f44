"""What a node's own file says of the quorum: who forms it at first, and where this node is for the others."""

from collections.abc import Mapping

import msgspec

from quorate.kernel.address import Address
from quorate.kernel.ids import NodeId
from quorate.quorum.core.membership import Membership


class QuorumConfig(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    #: Where other nodes connect to; a node by itself has none.
    peer_listen: Address | None
    #: What other nodes are told; None for the address that the node listens on.
    peer_advertised: Address | None
    #: The nodes that form the quorum when the cluster starts for the first time. Empty for a node by itself.
    voters: Mapping[NodeId, Address]

    def has_other_voters(self, membership: Membership | None, is_whole: bool) -> bool:
        """Whether another node can have what this one has lost of the metadata log.

        By the latest membership in the log, or else the first one; where the log is not whole, there may be later ones.
        """
        voters = self.voters.keys() if membership is None else membership.voters
        return any(voter != self.node_id for voter in voters) or (not is_whole and self.peer_listen is not None)
