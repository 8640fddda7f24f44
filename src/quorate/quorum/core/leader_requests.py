"""What nodes ask of the quorum leader, and what it answers.

A node that does not lead answers every one of these with ``Redirect``, so that an asker may start with any node.
"""

import msgspec

from quorate.kernel.ids import BrokerEpoch, NodeId, Offset, QuorumLeader


class LeaderMessage(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What all of them share: a tag that names the kind."""


class Submit(LeaderMessage, frozen=True, kw_only=True, tag="submit"):
    """Commands for the controller, as ``metadata.core.command_codec`` has them."""

    commands: bytes
    validate_only: bool


class Submitted(LeaderMessage, frozen=True, kw_only=True, tag="submitted"):
    outcomes: bytes


class BrokerHeartbeat(LeaderMessage, frozen=True, kw_only=True, tag="heartbeat"):
    """A broker is alive. ``metadata_version`` is how far its image has come."""

    node_id: NodeId
    broker_epoch: BrokerEpoch
    metadata_version: Offset
    wants_to_stop: bool = False
    #: False while the broker's disk is full.
    has_room: bool = True


class HeartbeatAnswer(LeaderMessage, frozen=True, kw_only=True, tag="heartbeat-answer"):
    #: The registration that the broker speaks for is not the current one: another process has taken its id.
    is_superseded: bool = False
    #: The cluster has forgotten the broker for good: it was unregistered.
    is_removed: bool = False
    #: Nothing is led by the broker any more: it may stop without anybody noticing.
    may_stop: bool = False


class Promote(LeaderMessage, frozen=True, kw_only=True, tag="promote"):
    node_id: NodeId


class Remove(LeaderMessage, frozen=True, kw_only=True, tag="remove"):
    """Take a voter's vote away; a node that is no broker leaves the quorum altogether."""

    node_id: NodeId


class Done(LeaderMessage, frozen=True, kw_only=True, tag="done"):
    """A change of the membership is agreed on, or was not needed."""


class ChangeRefused(LeaderMessage, frozen=True, kw_only=True, tag="refused"):
    """A change of the membership that cannot be made; asking again will not help before something else changes."""

    reason: str


class Describe(LeaderMessage, frozen=True, kw_only=True, tag="describe"):
    """How far each member of the quorum has come."""


class MemberProgress(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    is_voter: bool
    log_end_offset: Offset
    #: Wall-clock times, -1 where unknown.
    last_heard_ms: int
    last_caught_up_ms: int


class Description(LeaderMessage, frozen=True, kw_only=True, tag="description"):
    leader: QuorumLeader
    high_watermark: Offset
    members: tuple[MemberProgress, ...]


class Redirect(LeaderMessage, frozen=True, kw_only=True, tag="redirect"):
    """Ask the leader, where one is known; nothing was done."""

    leader: QuorumLeader | None
    #: Where it listens for its peers. A node that joins, or was away for long, may not have heard of it.
    address: str = ""


LeaderRequest = Submit | BrokerHeartbeat | Promote | Remove | Describe
LeaderAnswer = Submitted | HeartbeatAnswer | Done | ChangeRefused | Description | Redirect

_encoder = msgspec.msgpack.Encoder()
_request_decoder: msgspec.msgpack.Decoder[LeaderRequest] = msgspec.msgpack.Decoder(LeaderRequest)
_answer_decoder: msgspec.msgpack.Decoder[LeaderAnswer] = msgspec.msgpack.Decoder(LeaderAnswer)


def encode(message: LeaderRequest | LeaderAnswer) -> bytes:
    return _encoder.encode(message)


def decode_request(payload: bytes) -> LeaderRequest:
    return _request_decoder.decode(payload)


def decode_answer(payload: bytes) -> LeaderAnswer:
    return _answer_decoder.decode(payload)
