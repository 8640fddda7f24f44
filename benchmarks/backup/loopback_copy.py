"""The limit: the same log bytes, sent over loopback and written to files that are as durable as the backup's.

No record, batch or checksum is looked at; the bytes go from the socket into a buffer and from there into a file, in as
many processes as there are cores. Each file is synced, renamed into place, and its folder synced, which is what the
backup does for a segment. With the argument ``sha256`` each file is hashed as well, which the backup cannot do without.
"""

import hashlib
import multiprocessing
import os
import resource
import socket
import sys
from functools import partial
from multiprocessing.pool import Pool

from benchmarks.backup.log_server import SIZE_BYTES
from benchmarks.contenders.jobs import Copied, Job, serve_jobs

_BUFFER_BYTES = 1024 * 1024


def copy_logs(workers: Pool, job: Job, *, hashes: bool) -> Copied:
    """``topics`` are paths of log files here. The records in them are not counted: nobody looks."""
    peaks = workers.map(partial(_copy_log, job, hashes), job.topics, chunksize=1)
    return Copied(records=job.records, peak_task_memory_bytes=max(peaks))


def _copy_log(job: Job, hashes: bool, path: str) -> int:
    name = path.replace("/", "-").strip("-")
    with socket.create_connection(("127.0.0.1", job.log_server_port)) as connection:
        connection.sendall(os.fsencode(path) + b"\n")
        left = int.from_bytes(connection.recv(SIZE_BYTES, socket.MSG_WAITALL))
        _write_durably(connection, left, os.path.join(job.folder, name), hashes=hashes)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _write_durably(connection: socket.socket, left: int, path: str, *, hashes: bool) -> None:
    sha256 = hashlib.sha256()
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    file = os.open(path + ".partial", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    while left:
        count = connection.recv_into(buffer[: min(left, _BUFFER_BYTES)], 0, socket.MSG_WAITALL)
        if not count:
            raise ConnectionError(f"{path} ends {left} bytes too early")
        view = buffer[:count]
        if hashes:
            sha256.update(view)
        while view:
            view = view[os.write(file, view) :]
        left -= count
    os.fsync(file)
    os.close(file)
    os.rename(path + ".partial", path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


def main(arguments: list[str]) -> None:
    hashes = arguments == ["sha256"]
    with multiprocessing.get_context("forkserver").Pool(os.cpu_count()) as workers:
        workers.map(abs, range(os.cpu_count() or 1))  # They are there before the first job.
        serve_jobs(lambda job: copy_logs(workers, job, hashes=hashes), Job)


if __name__ == "__main__":
    main(sys.argv[1:])
