"""The load's TLS, against Python's own over a pair of sockets."""

import socket
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.certificates import Certificates, make_certificates
from benchmarks.connection import RequestFailed
from benchmarks.streams import TlsStream

ANSWER = bytes(range(256)) * 400
LONG = bytes(range(256)) * 40_000


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def talk(
    certificates: Certificates,
    serve: Callable[[ssl.SSLSocket], object],
    load: Callable[[TlsStream], None],
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> object:
    """Each has an end of its own; returns what ``serve`` returns."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.key_store)
    context.maximum_version = version
    near, far = socket.socketpair()
    far.settimeout(30)

    def served() -> object:
        with context.wrap_socket(far, server_side=True) as secured:
            return serve(secured)

    with ThreadPoolExecutor(1) as threads, near:
        serving = threads.submit(served)
        load(TlsStream(near, certificates.trust))
        return serving.result(30)


def test_what_the_socket_does_not_take_is_sent_when_it_has_room(certificates: Certificates) -> None:
    def serve(secured: ssl.SSLSocket) -> bytes:
        assert secured.recv(1) == b"s"
        received = bytearray(b"s")
        while len(received) < 1 + len(LONG):
            received += secured.recv(1 << 20)
        return bytes(received)

    def load(stream: TlsStream) -> None:
        unsent = [memoryview(LONG)]
        assert stream.sendmsg([memoryview(b"s")]) == 1
        was_full = False
        while unsent or stream.has_unsent:
            taken = stream.sendmsg(unsent)
            was_full = was_full or stream.has_unsent
            unsent = [unsent[0][taken:]] if unsent and taken < len(unsent[0]) else []
        assert was_full

    assert talk(certificates, serve, load) == b"s" + LONG


def test_a_read_brings_all_that_has_come(certificates: Certificates) -> None:
    def load(stream: TlsStream) -> None:
        room = memoryview(bytearray(2 * len(ANSWER)))
        received = 0
        while received < len(ANSWER):
            try:
                received += stream.recv_into(room[received:])
            except BlockingIOError:
                continue
        assert room[:received] == ANSWER

    talk(certificates, lambda secured: secured.sendall(ANSWER), load)


def test_an_answer_that_is_longer_than_its_room_ends_the_run(certificates: Certificates) -> None:
    def load(stream: TlsStream) -> None:
        room = memoryview(bytearray(100))
        while True:
            try:
                stream.recv_into(room)
            except BlockingIOError:
                continue

    with pytest.raises(RequestFailed, match="more than the 100 bytes"):
        talk(certificates, lambda secured: secured.sendall(ANSWER), load)


def test_both_systems_have_to_encrypt_alike(certificates: Certificates) -> None:
    with pytest.raises(RequestFailed, match=r"not TLSv1\.3 with TLS_AES_256_GCM_SHA384"):
        talk(certificates, lambda secured: secured.recv(1), lambda _: None, ssl.TLSVersion.TLSv1_2)
