"""An address that is taken before anybody may connect to it: nobody else gets it, and clients are refused."""

import socket

import pytest

from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.transport.reserved_address import ReservedAddress

HOST = "127.0.0.1"


@pytest.fixture
def address() -> Address:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
    return Address(HOST, port)


def bind_again(address: Address) -> socket.socket:
    """As another node would, whose earlier life used the address."""
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.bind((address.host, address.port))
    return other


def test_nobody_else_gets_the_address_and_clients_are_refused_until_it_is_opened(address: Address) -> None:
    with ReservedAddress(address) as reserved:
        with pytest.raises(QuorateError, match=f"cannot listen on {address}: Address already in use; end what"):
            ReservedAddress(address)
        with pytest.raises(OSError, match="Address already in use"):
            bind_again(address)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address.host, address.port))
        [listener] = reserved.open()
        with listener:
            listener.listen()
            socket.create_connection((address.host, address.port)).close()


def test_an_address_that_was_not_opened_is_given_back(address: Address) -> None:
    with ReservedAddress(address):
        pass
    bind_again(address).close()


def test_an_address_that_somebody_listens_on_is_taken_and_the_sentence_says_for_what(address: Address) -> None:
    with bind_again(address) as other:
        other.listen()
        with pytest.raises(QuorateError) as refusal:
            ReservedAddress(address, "for peers")
    expected = (
        f"cannot listen for peers on {address}: Address already in use; end what listens there, or choose another"
    )
    assert str(refusal.value).startswith(expected)


def test_connections_of_an_earlier_life_are_not_in_the_way(address: Address) -> None:
    """The side that closes first keeps the connection's ports for a minute (TIME_WAIT)."""
    with bind_again(address) as earlier:
        earlier.listen()
        with socket.create_connection((address.host, address.port)):
            accepted, _ = earlier.accept()
            accepted.close()
    with ReservedAddress(address) as reserved:
        [listener] = reserved.open()
        with listener:
            listener.listen()


def test_a_name_that_nobody_knows_is_one_sentence() -> None:
    with pytest.raises(QuorateError, match=r"cannot listen on nosuch.invalid:9092: .*; choose another address"):
        ReservedAddress(Address("nosuch.invalid", 9092))
