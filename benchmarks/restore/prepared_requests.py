"""The limit: Produce requests that were made before, sent as fast as the target takes them.

One connection to each leader, on which requests follow each other without waiting for answers; every answer is checked
for its order and its error code. Nothing is read, checked or changed while it is timed but the answers. With the
argument ``sha256`` all requests are hashed before the first is sent: no restore can prove what it has for less.
"""

import hashlib
import mmap
import os
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path

import msgspec

from benchmarks import wire
from benchmarks.channels import ANSWERS_BUFFER_SIZE_BYTES, Channel
from benchmarks.connection import RequestFailed
from benchmarks.contenders.jobs import Copied, serve_jobs
from benchmarks.generator import drive
from benchmarks.restore.restore_job import RestoreJob

_BATCH_START = struct.Struct(">qi")
_INDEX = "requests.json"
_ENDLESS_S = 3600.0
_HASHED_BYTES = 1024 * 1024  # At a time; the interpreter's lock is not held meanwhile.


class RequestFile(msgspec.Struct, frozen=True, kw_only=True):
    """All requests for one leader, frame behind frame, with correlation ids from 0 on."""

    host: str
    port: int
    name: str
    requests: int


def prepare(
    folder: Path,
    leaders: Mapping[tuple[str, int], tuple[str, int]],
    log_files: Mapping[tuple[str, int], Sequence[Path]],
) -> None:
    """Write the requests for partitions with these leaders: the batches of the log files, partitions in turns."""
    files: list[RequestFile] = []
    for number, address in enumerate(sorted(set(leaders.values()))):
        led = [partition for partition, leader in leaders.items() if leader == address]
        in_turns = chain.from_iterable(zip_longest(*(_requests(*each, log_files[each]) for each in led)))
        path = folder / f"{number}.requests"
        count = 0
        with path.open("wb") as file:
            for head, rest in (request for request in in_turns if request is not None):
                wire.patch_correlation_id(head, count)
                file.write(head)
                file.write(rest)
                count += 1
        files.append(RequestFile(host=address[0], port=address[1], name=path.name, requests=count))
    (folder / _INDEX).write_bytes(msgspec.json.encode(files))


def _requests(topic: str, partition: int, log_files: Sequence[Path]) -> Iterator[tuple[bytearray, bytes]]:
    for path in log_files:
        log = path.read_bytes()
        position = 0
        while position < len(log):
            size_bytes = _BATCH_START.unpack_from(log, position)[1] + _BATCH_START.size
            # As a producer sends it: it counts from 0. The offset is not under the checksum.
            batch = bytes(8) + log[position + 8 : position + size_bytes]
            head, rest = wire.produce_request(topic, partition, batch)
            yield bytearray(head), rest
            position += size_bytes


class PreparedChannel(Channel):
    def __init__(self, file: RequestFile, folder: Path, topic: str) -> None:
        super().__init__((file.host, file.port))
        with (folder / file.name).open("rb") as requests:
            self.unsent = [memoryview(mmap.mmap(requests.fileno(), 0, prot=mmap.PROT_READ))]
        self._requests = file.requests
        self._acknowledged = 0
        self._layout = wire.ProduceResponseLayout(topic)
        self._answers = memoryview(bytearray(ANSWERS_BUFFER_SIZE_BYTES))
        self._filled = 0

    def start(self) -> None:
        self.on_writable()

    def is_done(self) -> bool:
        return self._acknowledged == self._requests

    def on_readable(self) -> None:
        self._filled += self.receive_into(self._answers[self._filled :])
        size_bytes = self._layout.size_bytes
        whole = self._filled - self._filled % size_bytes
        for position in range(0, whole, size_bytes):
            _, correlation_id, _, error_code, _ = self._layout.fields.unpack_from(self._answers, position)
            if error_code or correlation_id != self._acknowledged:
                raise RequestFailed(f"Produce {self._acknowledged} got answer {correlation_id}, error {error_code}")
            self._acknowledged += 1
        self._answers[: self._filled - whole] = self._answers[whole : self._filled]
        self._filled -= whole


def send(job: RestoreJob, *, hashes: bool) -> Copied:
    folder = Path(job.folder)
    files = msgspec.json.decode((folder / _INDEX).read_bytes(), type=list[RequestFile])
    if hashes:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            for file in files:
                _hash(threads, folder / file.name)
    # Their names are of one length, and so are the answers.
    topic = job.target_topics[0]
    drive([PreparedChannel(file, folder, topic) for file in files], _ENDLESS_S)
    return Copied(records=job.records)


def _hash(threads: ThreadPoolExecutor, path: Path) -> None:
    """As many parts as there are cores, whatever the number of files."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content:
        share = -(-len(content) // (os.cpu_count() or 1))
        with memoryview(content) as view:
            parts = [view[start : start + share] for start in range(0, len(view), share)]
            list(threads.map(_hash_part, parts))
            for part in parts:
                part.release()


def _hash_part(part: memoryview) -> None:
    sha256 = hashlib.sha256()
    for start in range(0, len(part), _HASHED_BYTES):
        sha256.update(part[start : start + _HASHED_BYTES])


def main(arguments: list[str]) -> None:
    serve_jobs(partial(send, hashes=arguments == ["sha256"]), RestoreJob)


if __name__ == "__main__":
    main(sys.argv[1:])
