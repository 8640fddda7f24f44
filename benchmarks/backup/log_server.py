"""Sends the brokers' log files as they are, with ``sendfile``: the source for the limit, in place of the brokers.

A request is one line with the path of a file; the answer is its size in 8 bytes and then the file. It is a process of
its own, so that its CPU time can be told apart, as that of the brokers is.
"""

import os
import socket
import sys
import threading
from pathlib import Path

SIZE_BYTES = 8


def _send_files(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as requests:
        for line in requests:
            with Path(os.fsdecode(line.rstrip(b"\n"))).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                connection.sendall(size.to_bytes(SIZE_BYTES))
                connection.sendfile(file, 0, size)


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        sys.stdout.write(f"{server.getsockname()[1]}\n")
        sys.stdout.flush()
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=_send_files, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
