"""The textual form of addresses: to listen at, and to connect to."""

import pytest

from quorate.kernel.address import Address, parse_address, parse_remote_address
from quorate.kernel.errors import QuorateError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:1", Address("localhost", 1)),
        ("[::1]:65535", Address("::1", 65535)),
        (":9092", Address("", 9092)),
        ("localhost:0", Address("localhost", 0)),
    ],
)
def test_an_address_reads_back_as_written(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "host", "host:", "host:x", "host:65536", "host:1:1", "::1:9092", "host:-1", "host:²", " :1:"]
)
def test_a_text_that_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(QuorateError, match="host:port"):
        parse_address(text)
    with pytest.raises(QuorateError, match="host:port"):
        parse_remote_address(text)


@pytest.mark.parametrize("text", ["a:1", "[::1]:9092", "10.0.0.1:65535"])
def test_an_address_to_connect_to_reads_back_as_written(text: str) -> None:
    assert str(parse_remote_address(text)) == text


def test_spaces_around_an_address_in_a_list_are_dropped() -> None:
    assert parse_remote_address(" a:1\n") == Address("a", 1)


@pytest.mark.parametrize("text", [":9092", "[]:9092", "a:0"])
def test_nobody_can_connect_to_what_is_only_for_listening(text: str) -> None:
    parse_address(text)
    with pytest.raises(QuorateError, match="host:port"):
        parse_remote_address(text)
