"""A node that joins a cluster as a learner, by what it says alone: it has no process, and is never heard again."""

import socket

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId
from quorate.metadata.core.command_codec import decode_outcomes, encode_commands
from quorate.metadata.core.commands import RegisterBroker
from quorate.quorum.core import leader_requests as q
from quorate.transport.peers.frames import Channel, FrameKind, encode_frame, encode_request
from quorate.transport.peers.hello import Hello, encode_hello
from tests.eventually import eventually
from tests.fuzz.target import CLUSTER_ID
from tests.peers.child_process import free_port
from tests.peers.proven import prove, receive_frame
from tests.peers.quorate_cluster import QuorateCluster

_DEADLINE_S = 20


def join_as_learner(cluster: QuorateCluster, node_id: int, directory_id: DirectoryId) -> None:
    """Register it with the quorum leader, whichever node that is."""
    registration = RegisterBroker(
        node_id=NodeId(node_id),
        host="127.0.0.1",
        port=free_port(),
        incarnation=directory_id,
        directory_id=directory_id,
        peer_address=f"127.0.0.1:{free_port()}",
    )

    def ask_all() -> bool:
        return any(_is_registered(cluster, target, registration) for target in cluster.nodes)

    eventually(ask_all, f"node {node_id} to join")


def _is_registered(cluster: QuorateCluster, target: int, registration: RegisterBroker) -> bool:
    request = q.encode(q.Submit(commands=encode_commands([registration]), validate_only=False))
    host, port = str(cluster.nodes[target].settings["peer_listen"]).rsplit(":", 1)
    hello = Hello(
        cluster_id=CLUSTER_ID,
        node_id=registration.node_id,
        target_id=NodeId(target),
        incarnation=1,
        directory_id=registration.directory_id,
        target_directory_id=NO_DIRECTORY,
    )
    with socket.create_connection((host, int(port)), timeout=_DEADLINE_S) as connection:
        prove(connection, cluster.secrets, registration.node_id, target)
        connection.sendall(b"".join(encode_frame(FrameKind.HELLO, [encode_hello(hello)])))
        kind, _ = receive_frame(connection)
        assert kind is FrameKind.HELLO, "the learner was not let in"
        connection.sendall(b"".join(encode_request(1, Channel.CONTROLLER, [request])))
        kind = FrameKind.MESSAGE
        while kind is FrameKind.MESSAGE:  # To one that has joined the leader speaks at once.
            kind, body = receive_frame(connection)
        if kind is not FrameKind.RESPONSE:
            return False
        answer = q.decode_answer(body[8:])
        if not isinstance(answer, q.Submitted):
            return False
        (outcome,), _ = decode_outcomes(answer.outcomes, [registration])
        assert not isinstance(outcome, Exception), outcome
        return True
