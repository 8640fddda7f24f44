"""The keys of a tokens' issuer: of a bounded size, in bounded time, and from nowhere that nobody vouches for."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from quorate.broker.issuer_keys import read_key_set
from quorate.kernel.errors import QuorateError

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n"


@contextmanager
def issuer(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    with connection, suppress(OSError):
                        connection.recv(65536)
                        serve(connection)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/keys"
        listening.shutdown(socket.SHUT_RDWR)
    thread.join(30)


def drip(head: bytes) -> Callable[[socket.socket], None]:
    """A byte now and then, for as long as somebody listens."""

    def serve(connection: socket.socket) -> None:
        connection.sendall(head)
        connection.settimeout(0.05)
        while True:
            connection.sendall(b"x")
            with suppress(TimeoutError):
                if not connection.recv(1):
                    return

    return serve


def test_a_document_is_read() -> None:
    with issuer(lambda connection: connection.sendall(HEAD + b"{}")) as url:
        assert read_key_set(url) == b"{}"


@pytest.mark.parametrize("head", [HEAD, b"HTTP/1.1 200 OK\r\nX: "], ids=["content", "headers"])
def test_an_issuer_that_sends_a_byte_now_and_then_is_cut_off(head: bytes) -> None:
    with issuer(drip(head)) as url, pytest.raises(QuorateError, match=r"it did not come within 0.3 s"):
        read_key_set(url, deadline_s=0.3)


def test_more_than_a_megabyte_is_no_key_set() -> None:
    with (
        issuer(lambda connection: connection.sendall(HEAD + b"x" * (2 << 20))) as url,
        pytest.raises(QuorateError, match="longer than"),
    ):
        read_key_set(url)


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/keys", "file:///etc/passwd", "gopher://127.0.0.1/"])
def test_nobody_is_sent_to_what_is_not_http(target: str) -> None:
    def serve(connection: socket.socket) -> None:
        connection.sendall(f"HTTP/1.1 302 Found\r\nLocation: {target}\r\n\r\n".encode())

    with issuer(serve) as url, pytest.raises(QuorateError, match="it cannot be read"):
        read_key_set(url)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "keys")
    with pytest.raises(QuorateError, match="is no file"):
        read_key_set(f"file://{tmp_path}/keys")


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    for url in (f"file://{tmp_path}/none", "http://127.0.0.1:1/keys", "http://[", "https://"):
        with pytest.raises(QuorateError) as caught:
            read_key_set(url)
        assert len(str(caught.value).splitlines()) == 1
