"""The process that keeps a warm Spark: it starts the JVM, runs the jobs of commands on it, and ends when it is idle.

Nothing ties it to the command that started it. It ends by itself when nobody has used it for the time that was asked
for, when its JVM has ended or hangs, and when its folder was taken away. Its JVM sees it end, however it ends.
"""

import os
import secrets
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from quorate.backup.spark.warm.messages import (
    MAX_FIRST_BYTES,
    REQUESTS,
    TAKEN,
    Channel,
    ChannelLost,
    Hello,
    Order,
    Ready,
    Refused,
    Starting,
    Status,
    Stop,
)
from quorate.backup.spark.warm.place import PlaceUnusable, WarmPlace, sweep
from quorate.backup.spark.warm.usage import Usage
from quorate.backup.spark.warm.warm_jvm import WarmJvm
from quorate.kernel.decoding import decode_msgpack
from quorate.kernel.errors import QuorateError

_TAKEN_FOR_S: Final = 5.0  # As long as one that is ending may need.
_LOCK_POLL_S: Final = 0.05
_TURN_S: Final = 0.25
_STARTING_SAID_S: Final = 1.0
_HELLO_TIMEOUT_S: Final = 10.0
_START_TIMEOUT_S: Final = 180.0
_LAST_WORDS_S: Final = 0.5


class Keeper:
    def __init__(self, place: WarmPlace, order: Order) -> None:
        self._place = place
        self._order = order
        self._token = place.write_token()
        self._listener = place.listen()
        self._usage = Usage(time.monotonic(), order.keep_warm_s)
        self._guard = threading.Lock()  # Of the usage, and of whether connections are still taken.
        self._is_ending = False
        self._settled = threading.Event()  # Spark is ready, or will not be.
        self._failure: str | None = None
        self._jvm = WarmJvm(place.spark_folder, order.settings)
        place.note(os.getpid(), None)

    def keep(self) -> None:
        """Until its time is over."""
        threading.Thread(target=self._accept, daemon=True).start()
        too_late = threading.Timer(_START_TIMEOUT_S, self._jvm.kill)  # Whoever waits for it has gone by then.
        too_late.daemon = True
        too_late.start()
        try:
            try:
                self._jvm.start(lambda pid: self._place.note(os.getpid(), pid))
            except (QuorateError, OSError) as error:
                self._failure = str(error)
            too_late.cancel()
            self._settled.set()
            while self._failure is None and not self._is_over():
                time.sleep(_TURN_S)
        finally:
            self._end()

    def _is_over(self) -> bool:
        with self._guard:
            ends_in_s = self._usage.ends_in_s(time.monotonic())
            is_useless = not self._jvm.is_well() or (self._usage.commands == 0 and not self._place.is_still_there())
            self._is_ending = is_useless or ends_in_s <= 0
            return self._is_ending

    def _end(self) -> None:
        """First nobody finds it any more, then its JVM ends, and the place is the next one's at last."""
        with self._guard:
            self._is_ending = True
        with suppress(OSError):
            if self._place.is_still_there():
                self._place.socket_path.unlink(missing_ok=True)
        self._listener.close()
        if self._failure is not None:
            time.sleep(_LAST_WORDS_S)  # For those who wait to be told.
        self._jvm.end()
        if self._place.is_still_there():
            self._place.remove()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        channel = Channel(connection, REQUESTS)
        try:
            hello = channel.receive(_HELLO_TIMEOUT_S, MAX_FIRST_BYTES)
            if not isinstance(hello, Hello) or not secrets.compare_digest(hello.token.encode(), self._token.encode()):
                channel.send(Refused("the token is another one's"))
            elif hello.keep_warm_s is None:
                self._show(channel)
            else:
                self._serve_command(channel, hello.keep_warm_s)
        except ChannelLost:
            pass
        finally:
            channel.close()

    def _show(self, channel: Channel) -> None:
        now_s = time.monotonic()
        with self._guard:
            usage = self._usage
            state = "ready" if self._settled.is_set() else "starting"
            status = Status(
                pid=os.getpid(),
                state=state if usage.commands == 0 or state == "starting" else "in use",
                commands=usage.commands,
                jobs=usage.jobs,
                age_s=now_s - usage.began_s,
                ends_in_s=usage.ends_in_s(now_s) if usage.commands == 0 else None,
                master=self._order.settings.master,
            )
        channel.send(status)
        if isinstance(channel.receive(_HELLO_TIMEOUT_S), Stop):
            with self._guard:
                self._usage.stop()
            if not self._settled.is_set():
                self._jvm.kill()

    def _serve_command(self, channel: Channel, keep_warm_s: float) -> None:
        with self._guard:
            if self._is_ending:
                return
            self._usage.came(keep_warm_s)
        try:
            while not self._settled.wait(_STARTING_SAID_S):
                channel.send(Starting())
            if self._failure is not None:
                channel.send(Refused(self._failure))
            elif self._jvm.answers():
                channel.send(Ready())
                self._jvm.serve(channel, self._job_begins)
        finally:
            with self._guard:
                self._usage.left(time.monotonic())

    def _job_begins(self) -> None:
        with self._guard:
            self._usage.jobs += 1


def take_place(place: WarmPlace) -> bool:
    """Wait a little for a keeper that is just ending; one that listens is there to stay."""
    give_up_s = time.monotonic() + _TAKEN_FOR_S
    while time.monotonic() < give_up_s:
        with suppress(FileNotFoundError):
            place.make()
            if place.lock():
                return True
        if place.socket_path.exists():
            return False
        time.sleep(_LOCK_POLL_S)
    return False


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    order = decode_msgpack(sys.stdin.buffer.read(), Order)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    place = WarmPlace(Path(sys.argv[1]))
    try:
        if not take_place(place):
            return TAKEN
        place.clear()
        sweep()
        keeper = Keeper(place, order)
        log = os.open(place.folder / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    except (OSError, PlaceUnusable) as error:
        words = str(error) if isinstance(error, PlaceUnusable) else f"{place.folder}: {error.strerror}"
        os.write(1, words.encode(errors="replace"))
        return 1
    # Until here the command reads what goes wrong.
    os.dup2(log, 1)
    os.dup2(log, 2)
    keeper.keep()
    return 0


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # Threads of commands that have gone may still be at work.
