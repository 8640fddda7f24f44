"""The two leaderships of a cluster, as two types that nothing converts into each other.

The quorum leader runs the controller and decides metadata; a partition leader takes writes. "Am I the quorum leader?"
asked where "do I lead this partition?" is meant does not pass the type checker.
"""

import msgspec

from quorate.kernel.ids import LeaderEpoch, NodeId, Term


class QuorumLeader(msgspec.Struct, frozen=True):
    """The one node that leads the metadata quorum in a term."""

    node_id: NodeId
    term: Term


class PartitionLeader(msgspec.Struct, frozen=True):
    """The one node that takes the writes of a partition in a leader epoch."""

    node_id: NodeId
    leader_epoch: LeaderEpoch
