"""Who gets what comes in on a channel, and what nobody gets."""

import pytest

from quorate.kernel.ids import NodeId
from quorate.transport.peers.channels import Channels, Sender
from quorate.transport.peers.errors import PeerProtocolError, PeerUnreachable
from quorate.transport.peers.frames import Channel

MEMBER, GUEST = Sender(NodeId(1), is_known=True), Sender(NodeId(2), is_known=False)


def test_a_request_reaches_who_answers_on_its_channel_and_nobody_else() -> None:
    channels = Channels()
    channels.answer_requests(Channel.KAFKA, lambda _, payload: b"kafka " + payload, of_guests=False)
    channels.answer_requests(Channel.READ_RANGE, lambda _, payload: b"range " + payload, of_guests=False)

    assert channels.request_received(MEMBER, Channel.KAFKA, b"a") == b"kafka a"
    assert channels.request_received(MEMBER, Channel.READ_RANGE, b"a") == b"range a"


def test_a_channel_that_nobody_answers_yet_refuses_so_that_the_asker_may_try_again() -> None:
    with pytest.raises(PeerUnreachable, match="REPLICA_FETCH"):
        Channels().request_received(MEMBER, Channel.REPLICA_FETCH, b"")


@pytest.mark.parametrize("channel", Channel)
def test_a_node_that_is_not_known_is_heard_on_no_channel_that_is_not_for_guests(channel: Channel) -> None:
    channels = Channels()
    for each in Channel:
        channels.answer_requests(
            each, lambda sender, _: str(sender.is_known).encode(), of_guests=each is Channel.CONTROLLER
        )

    assert channels.request_received(MEMBER, channel, b"") == b"True"
    if channel is Channel.CONTROLLER:
        assert channels.request_received(GUEST, channel, b"") == b"False"
    else:
        with pytest.raises(PeerUnreachable, match="not known"):
            channels.request_received(GUEST, channel, b"")


def test_a_message_reaches_who_takes_its_channel_and_is_hostile_on_any_other() -> None:
    channels, taken = Channels(), []
    channels.take_messages(Channel.RAFT, lambda sender, payload: taken.append((sender, bytes(payload))))

    channels.message_received(MEMBER.node_id, Channel.RAFT, memoryview(b"vote"))
    assert taken == [(1, b"vote")]
    with pytest.raises(PeerProtocolError, match="CONTROLLER"):
        channels.message_received(MEMBER.node_id, Channel.CONTROLLER, memoryview(b"vote"))
