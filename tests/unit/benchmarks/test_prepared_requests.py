"""The requests that the limit sends: the batches of a log, each once, to the leader of its partition."""

import struct
from pathlib import Path
from random import Random

import msgspec

from benchmarks import wire
from benchmarks.restore.prepared_requests import RequestFile, prepare
from quorate.protocol.codec import decode
from quorate.protocol.frames import decode_request_header
from quorate.protocol.messages.produce import ProduceRequest
from quorate.records.batch import check_crc, read_header

TOPIC = "target"
LEADERS = {(TOPIC, 0): ("127.0.0.1", 1000), (TOPIC, 1): ("127.0.0.1", 2000), (TOPIC, 2): ("127.0.0.1", 1000)}


def log_of(folder: Path, partition: int, batches: int) -> Path:
    """A log whose offsets go up, as a broker leaves it."""
    path = folder / f"{partition}.log"
    content = [wire.build_batch(2, 10 + partition, Random(number), 1) for number in range(batches)]
    path.write_bytes(b"".join(struct.pack(">q", 2 * number) + batch[8:] for number, batch in enumerate(content)))
    return path


def frames(path: Path) -> list[tuple[int, int, bytes]]:
    """Correlation id, partition and batch of each request in a file."""
    content, found, position = path.read_bytes(), [], 0
    while position < len(content):
        (size_bytes,) = struct.unpack_from(">i", content, position)
        frame = content[position + 4 : position + 4 + size_bytes]
        header = decode_request_header(frame)
        request = decode(ProduceRequest, frame, header.api_version, header.body_position)
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        assert topic.name == TOPIC
        assert isinstance(data.records, memoryview)
        found.append((header.correlation_id, data.index, bytes(data.records)))
        position += 4 + size_bytes
    return found


def test_each_leader_gets_its_partitions_in_turns_with_batches_that_count_from_0(tmp_path: Path) -> None:
    logs = {(TOPIC, partition): [log_of(tmp_path, partition, batches)] for partition, batches in enumerate((3, 2, 1))}

    prepare(tmp_path, LEADERS, logs)

    files = msgspec.json.decode((tmp_path / "requests.json").read_bytes(), type=list[RequestFile])
    assert [(file.port, file.requests) for file in files] == [(1000, 4), (2000, 2)]
    first, second = (frames(tmp_path / file.name) for file in files)
    assert [(number, partition) for number, partition, _ in first] == [(0, 0), (1, 2), (2, 0), (3, 0)]
    assert [(number, partition) for number, partition, _ in second] == [(0, 1), (1, 1)]
    for _, _, batch in first + second:
        header = read_header(batch)
        check_crc(batch, 0, header)
        assert (header.base_offset, header.record_count) == (0, 2)
