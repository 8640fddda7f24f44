"""What another node may say to this one: its messages and requests are read and judged before anything is done.

Whoever reaches the peer port can say anything. What no sound node says raises ``PeerProtocolError``, which ends the
connection that it came by; nothing of it is kept.
"""

from collections.abc import Sequence
from typing import Final

from quorate.kernel.errors import UNREADABLE
from quorate.kernel.ids import MAX_NODE_ID, NO_DIRECTORY, NodeId
from quorate.metadata.core import commands as c
from quorate.metadata.core.command_codec import decode_commands
from quorate.metadata.core.records import BrokerEndpoint
from quorate.metadata.core.security_commands import RemoveExpiredTokens
from quorate.metadata.core.snapshot import decode_image
from quorate.quorum.core import leader_requests as q
from quorate.quorum.core.entries import Entry, EntryKind, Snapshot
from quorate.quorum.core.messages import AppendRequest, InstallSnapshot, Message, decode_message
from quorate.quorum.core.sanity import is_address
from quorate.quorum.entry_payload import decode_records
from quorate.transport.peers.errors import PeerProtocolError

_MAX_HOST_CHARS: Final = 255
_MAX_LISTENERS: Final = 100
_MAX_PRODUCER_IDS: Final = 1_000_000
_INT32_MAX: Final = 2**31 - 1
#: The quorum leader alone decides these, and asks nobody.
_OF_THE_LEADER: Final = (
    c.FormCluster,
    c.FenceBroker,
    c.UnfenceBroker,
    c.BeginControlledShutdown,
    RemoveExpiredTokens,
)


def read_message(sender: NodeId, payload: memoryview) -> Message:
    """A message of the node at the other end, whose metadata can be read."""
    try:
        message = decode_message(payload)
    except UNREADABLE as error:
        raise PeerProtocolError(f"malformed message: {error}") from None
    if message.sender != sender:
        raise PeerProtocolError(f"a message of node {message.sender} from node {sender}")
    return message


def check_metadata(message: Message) -> None:
    """What is committed is replayed on every node, and cannot be taken back: it has to be readable beforehand."""
    try:
        if isinstance(message, AppendRequest):
            _check_entries(message.entries)
        elif isinstance(message, InstallSnapshot):
            _check_snapshot(message.snapshot)
    except PeerProtocolError:
        raise
    except Exception as error:  # Whatever reading it raises, it cannot be read.
        raise PeerProtocolError(f"metadata that cannot be read: {type(error).__name__}") from None


def read_request(sender: NodeId, payload: bytes, *, is_known: bool) -> q.LeaderRequest:
    """A request to the quorum leader. A node that is not known yet may do nothing but join."""
    try:
        request = q.decode_request(payload)
        commands = decode_commands(request.commands) if isinstance(request, q.Submit) else []
    except UNREADABLE as error:
        raise PeerProtocolError(f"malformed request: {error}") from None
    if isinstance(request, q.BrokerHeartbeat) and request.node_id != sender:
        raise PeerProtocolError(f"a heartbeat of node {request.node_id} from node {sender}")
    if isinstance(request, q.Promote | q.Remove) and not 0 <= request.node_id <= MAX_NODE_ID:
        raise PeerProtocolError(f"there is no node {request.node_id}")
    for command in commands:
        reason = command_objection(command, sender)
        if reason is not None:
            raise PeerProtocolError(reason)
    if not is_known and not _is_joining(request, commands):
        raise PeerProtocolError(f"node {sender} is not known here, and asks for more than to join")
    return request


def _is_joining(request: q.LeaderRequest, commands: list[c.Command]) -> bool:
    if isinstance(request, q.Submit):
        return all(isinstance(command, c.RegisterBroker) for command in commands)
    return isinstance(request, q.BrokerHeartbeat)


def command_objection(command: c.Command, sender: NodeId) -> str | None:
    """Why no node sends this command to the quorum leader."""
    match command:
        case c.RegisterBroker():
            return _registration_objection(command, sender)
        case c.AlterIsr(node_id=node_id) if node_id != sender:
            return f"in-sync replicas of node {node_id} from node {sender}"
        case c.ResignLeadership(node_id=node_id) if node_id != sender:
            return f"a resignation of node {node_id} from node {sender}"
        case c.AllocateProducerIds(count=count) if not 0 < count <= _MAX_PRODUCER_IDS:
            return f"{count} producer ids at once"
        case c.CreateTopic(partition_count=partitions, replication_factor=replicas) if (
            not -1 <= partitions <= _INT32_MAX or not -1 <= replicas <= _INT32_MAX
        ):
            return f"a topic of {partitions} partitions with {replicas} replicas"
        case c.CreatePartitions(total_count=partitions) if not -_INT32_MAX <= partitions <= _INT32_MAX:
            return f"a topic of {partitions} partitions"
        case _ if isinstance(command, _OF_THE_LEADER):
            return f"{type(command).__name__} is for the quorum leader to decide"
        case _:
            return None


def _registration_objection(command: c.RegisterBroker, sender: NodeId) -> str | None:
    """A registration reaches every node, and clients: there it must be a place that can be dialled."""
    if command.node_id != sender or not 0 <= command.node_id <= MAX_NODE_ID:
        return f"a registration of node {command.node_id} from node {sender}"
    if command.directory_id == NO_DIRECTORY or not command.fenced:
        return f"a registration of node {command.node_id} without a data folder, or without its fence"
    if not _is_host(command.host) or not 0 < command.port <= 65535 or not _is_host(command.rack or "a"):
        return f"a registration of node {command.node_id} where no client can reach it"
    if not _are_endpoints(command.endpoints):
        return f"a registration of node {command.node_id} with endpoints that no client can reach"
    if not command.peer_address or not is_address(command.peer_address):
        return f"a registration of node {command.node_id} where no peer can reach it"
    return None


def _are_endpoints(endpoints: Sequence[BrokerEndpoint]) -> bool:
    names = {each.listener for each in endpoints}
    return len(names) == len(endpoints) <= _MAX_LISTENERS and all(
        _is_host(each.listener) and _is_host(each.host) and 0 < each.port <= 65535 for each in endpoints
    )


def _is_host(text: str) -> bool:
    return 0 < len(text) <= _MAX_HOST_CHARS and text.isprintable()


def _check_entries(entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        if entry.kind is EntryKind.COMMAND:
            decode_records(entry.payload)


def _check_snapshot(snapshot: Snapshot) -> None:
    if decode_image(snapshot.payload).version != snapshot.meta.end_offset:
        raise PeerProtocolError("a snapshot whose metadata ends elsewhere than it does")
