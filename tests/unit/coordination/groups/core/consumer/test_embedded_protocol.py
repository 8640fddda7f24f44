import pytest

from quorate.coordination.groups.core.consumer.embedded_protocol import MalformedProtocol, subscribed_topics
from tests.unit.coordination.groups.core.conversation import subscription


def test_topics_are_read_and_later_fields_are_left_alone() -> None:
    assert subscribed_topics(subscription("orders", "payments")) == {"orders", "payments"}
    assert subscribed_topics(subscription()) == set()


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        b"\x00",
        b"\xff\xff\x00\x00\x00\x00",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\x00\x00\xff\xff\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x05abc",
        b"\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_bytes_that_are_no_subscription_are_refused(metadata: bytes) -> None:
    with pytest.raises(MalformedProtocol):
        subscribed_topics(metadata)
