"""Whatever a version can carry, it carries: every message, every version."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quorate.protocol.codec import decode, decode_versioned, encode, encode_versioned
from quorate.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from quorate.protocol.schema import VersionedMessage
from tests.unit.protocol.samples import Sampler, types_and_versions
from tests.unit.protocol.strategies import messages

EVERY_VERSION = pytest.mark.parametrize(
    ("message_type", "version"),
    list(types_and_versions()),
    ids=lambda value: str(value) if isinstance(value, int) else value.__name__,
)


@EVERY_VERSION
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
@given(data=st.data())
def test_decoding_gives_back_what_was_encoded(
    message_type: type[VersionedMessage], version: int, data: st.DataObject
) -> None:
    message = data.draw(messages(message_type, version))

    encoded = b"".join(encode(message, version))

    assert decode(message_type, encoded, version) == message


@EVERY_VERSION
def test_long_arrays_and_strings_survive(message_type: type[VersionedMessage], version: int) -> None:
    sampler = Sampler(f"long {message_type.__name__} {version}")
    for _ in range(5):
        message = sampler.message(message_type, version)

        assert decode(message_type, b"".join(encode(message, version)), version) == message


def test_message_behind_its_version() -> None:
    subscription = ConsumerProtocolSubscription(topics=["orders"], user_data=b"state", generation_id=4, rack_id="eu")

    stored = encode_versioned(subscription, 3)

    assert stored[:2] == b"\x00\x03"
    assert decode_versioned(ConsumerProtocolSubscription, stored) == ConsumerProtocolSubscription(
        topics=("orders",), user_data=b"state", generation_id=4, rack_id="eu"
    )


def test_newer_version_than_known_is_read_as_far_as_it_is_known() -> None:
    subscription = ConsumerProtocolSubscription(topics=("orders",), rack_id="eu")

    newer = b"\x00\x09" + encode_versioned(subscription, 3)[2:] + b"what version 9 added"

    assert decode_versioned(ConsumerProtocolSubscription, newer) == subscription
