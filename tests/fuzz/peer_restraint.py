"""What is not said to a peer port: whoever has the data folder of a member is trusted, and could do what it says.

Until nodes show each other who they are, a member can call elections and ask for changes. So the fuzz says as a member
only what changes nothing, or what no sound node would say.
"""

from struct import error as StructError  # noqa: N812 - an exception, whatever the standard library calls it
from struct import pack, unpack_from
from typing import Final

from quorate.kernel.errors import UNREADABLE
from quorate.protocol.apis import find_api
from quorate.quorum.core import leader_requests as q
from quorate.quorum.core.messages import VoteRequest, decode_message
from quorate.quorum.core.sanity import MAX_TERM
from quorate.transport.peers.frames import Channel, FrameKind
from tests.fuzz.restraint import Restraint
from tests.fuzz.world import World

#: No broker of a test has been given such an epoch.
_IMPOSSIBLE_EPOCH: Final = 1 << 40
_CORRELATION_BYTES: Final = 8


class PeerRestraint:
    def __init__(self, world: World, term: int, member_ids: frozenset[int]) -> None:
        self._requests = Restraint(world)
        self._term = term
        self._member_ids = member_ids

    def permits(self, frame: bytes, *, is_voter: bool = False) -> bool:
        """Whether a node may be sent this frame, given without its length.

        As a voter nothing is said that can be read: it could be believed to have entries, or to lead.
        """
        if not frame:
            return True
        try:
            if frame[0] == FrameKind.MESSAGE:
                return self._permits_message(frame[2:]) and not is_voter
            if frame[0] == FrameKind.REQUEST:
                channel, payload = frame[1 + _CORRELATION_BYTES], frame[2 + _CORRELATION_BYTES :]
                return self._permits_request(channel, payload) and not is_voter
        except (*UNREADABLE, StructError, IndexError):
            return True
        return True

    def _permits_message(self, payload: bytes) -> bool:
        message = decode_message(payload)
        is_pre_vote = isinstance(message, VoteRequest) and message.is_pre_vote
        return is_pre_vote or message.term <= self._term or message.term > MAX_TERM

    def _permits_request(self, channel: int, payload: bytes) -> bool:
        if channel == Channel.KAFKA:
            return self._permits_kafka(payload)
        if channel != Channel.CONTROLLER:
            return True
        request = q.decode_request(payload)
        match request:
            case q.Submit():
                return request.validate_only
            case q.BrokerHeartbeat():
                return not 0 <= request.broker_epoch < _IMPOSSIBLE_EPOCH
            case q.Promote() | q.Remove():
                return request.node_id not in self._member_ids
            case q.Describe():
                return True

    def _permits_kafka(self, payload: bytes) -> bool:
        key, version = unpack_from(">hh", payload)
        api = find_api(key)
        tags = b"\0" if api is not None and version >= api.flexible_from else b""
        return self._requests.permits(pack(">hhih", key, version, 0, -1) + tags + payload[4:])
