"""What a command and the keeper of a warm Spark say to each other: frames of MessagePack on a Unix socket."""

import select
import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from quorate.backup.spark.session.settings import SparkSettings

#: The exit status of a keeper that has found another one.
TAKEN: Final = 3
MAX_FIRST_BYTES: Final = 4096  # Of a stranger's frame: whoever has shown no token gets no more memory than this.
MAX_BYTES: Final = 2**31 - 1
_LENGTH: Final = struct.Struct(">I")
_PEEK: Final = getattr(socket, "MSG_DONTWAIT", 0) | socket.MSG_PEEK


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper is told on its standard input."""

    settings: SparkSettings
    keep_warm_s: float


class CommandHello(msgspec.Struct, frozen=True, tag=True):
    token: str
    keep_warm_s: float | None  # None: only looks, and is no command that Spark is kept for.


class Slots(msgspec.Struct, frozen=True, tag=True):
    """How many tasks run at once?"""


class RunJob(msgspec.Struct, frozen=True, tag=True):
    work: bytes  # Pickled, for the workers alone.
    tasks: Sequence[bytes]
    environment: dict[bytes, bytes]  # Of the command.
    folder: bytes | None
    umask: int


class Query(msgspec.Struct, frozen=True, tag=True):
    action: bytes  # Pickled.


class Stop(msgspec.Struct, frozen=True, tag=True):
    pass


class Starting(msgspec.Struct, frozen=True, tag=True):
    """Said once a second until Spark is ready."""


class SparkReady(msgspec.Struct, frozen=True, tag=True):
    pass


class Status(msgspec.Struct, frozen=True, tag=True):
    """The answer to whoever only looks."""

    pid: int
    state: str
    commands: int
    jobs: int  # Those that it has run so far.
    age_s: float
    ends_in_s: float | None  # None while commands use it.
    master: str


class CommandRefused(msgspec.Struct, frozen=True, tag=True):
    """The connection ends with it."""

    message: str


class JobProgress(msgspec.Struct, frozen=True, tag=True):
    """Said about once a second while a job runs, so that silence means that something hangs."""

    finished_count: int = 0
    finished: Sequence[tuple[int, int, int]] = ()
    advanced: Sequence[tuple[int, int, int]] = ()
    task_count: int = 0  # Of a query, once Spark has planned it.


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The job failed, as it would have on any Spark."""

    message: str


class JobDone(msgspec.Struct, frozen=True, tag=True):
    rows: Sequence[bytes] = ()
    count: int = 0


REQUESTS: Final = msgspec.msgpack.Decoder(CommandHello | Slots | RunJob | Query | Stop)
ANSWERS: Final = msgspec.msgpack.Decoder(
    Starting | SparkReady | Status | CommandRefused | JobProgress | Failed | JobDone
)


class ChannelLost(Exception):
    """The other side has gone, is silent, or says what nobody understands."""


class KeeperSilence(ChannelLost):
    """It is still there and says nothing."""


class WarmChannel:
    """One side of a connection."""

    def __init__(self, connection: socket.socket, decoder: "msgspec.msgpack.Decoder[Any]") -> None:
        self._socket = connection
        self._decoder = decoder

    def send(self, message: msgspec.Struct) -> None:
        data = msgspec.msgpack.encode(message)
        if len(data) > MAX_BYTES:
            raise ChannelLost(f"a message of {len(data)} bytes is too long")
        try:
            self._socket.settimeout(None)
            self._socket.sendall(_LENGTH.pack(len(data)) + data)
        except OSError as error:
            raise ChannelLost(str(error)) from None

    def receive(self, timeout_s: float | None = None, max_bytes: int = MAX_BYTES) -> Any:
        """The next message; ``ChannelLost`` where there is none. Silence of more than the timeout is a loss, too."""
        try:
            self._socket.settimeout(timeout_s)
            (size_bytes,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
            if size_bytes > max_bytes:
                raise ChannelLost(f"a message of {size_bytes} bytes is too long")
            return self._decoder.decode(self._exactly(size_bytes))
        except TimeoutError:
            raise KeeperSilence(f"no word for {timeout_s:g} s") from None
        except (OSError, msgspec.MsgspecError) as error:
            raise ChannelLost(str(error)) from None

    def _exactly(self, size_bytes: int) -> bytearray:
        data = bytearray()
        while len(data) < size_bytes:
            piece = self._socket.recv(min(size_bytes - len(data), 1 << 20))
            if not piece:
                raise ChannelLost("the connection has ended")
            data += piece
        return data

    def has_ended(self) -> bool:
        """Whether the other side has closed; does not wait."""
        try:
            return not self._socket.recv(1, _PEEK)
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            return True

    def takes_more(self) -> bool:
        """Whether a small message would not have to wait: who reads nothing, as one that was stopped, is told less."""
        return bool(select.select([], [self._socket], [], 0)[1])

    def end_sending(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()
