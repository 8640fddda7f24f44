from random import Random
from uuid import UUID

import pytest

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, TopicId
from quorate.storage import checkpoints
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from tests.simulation.disk import SimulatedDisk, content_of
from tests.unit.storage.batches import DIRECTORY, append_values

TOPIC_ID = TopicId(UUID("f47ac10b-58cc-4372-a567-0e02b2c3d479"))


def test_offsets_are_read_back(disk: SimulatedDisk) -> None:
    assert checkpoints.read_offset(disk, "/data/offset") is None

    checkpoints.write_offset(disk, "/data/offset", Offset(42))

    assert checkpoints.read_offset(disk, "/data/offset") == 42


def test_epochs_are_kept_in_the_format_of_kafka(disk: SimulatedDisk) -> None:
    assert checkpoints.read_epochs(disk, "/data/epochs") is None
    epochs = [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(3), Offset(120))]

    checkpoints.write_epochs(disk, "/data/epochs", epochs)

    content = content_of(disk, "/data/epochs")
    assert content.rstrip() == b"0\n2\n0 0\n3 120"
    assert [line.split() for line in content.splitlines()] == [[b"0"], [b"2"], [b"0", b"0"], [b"3", b"120"]]
    assert checkpoints.read_epochs(disk, "/data/epochs") == epochs


def test_the_topic_id_is_kept_in_the_format_of_kafka(disk: SimulatedDisk) -> None:
    assert checkpoints.read_topic_id(disk, "/data") is None

    checkpoints.write_topic_id(disk, "/data", TOPIC_ID)

    lines = content_of(disk, "/data/partition.metadata").splitlines()
    assert lines[:2] == [b"version: 0", b"topic_id: 9HrBC1jMQ3KlZw4CssPUeQ"], "Kafka reads no further"
    assert checkpoints.read_topic_id(disk, "/data") == TOPIC_ID


@pytest.mark.parametrize("content", [b"", b"0\n", b"7\n42\n", b"0\nx\n", b"0\n1\n2\n3\n", b"\xff\xfe"])
def test_a_damaged_checkpoint_is_named_and_not_guessed_at(disk: SimulatedDisk, content: bytes) -> None:
    disk.replace("/data/offset", content)
    disk.replace("/data/epochs", content + b" ")

    with pytest.raises(KafkaError, match="/data/offset is damaged"):
        checkpoints.read_offset(disk, "/data/offset")
    with pytest.raises(KafkaError, match="damaged"):
        checkpoints.read_epochs(disk, "/data/epochs")


@pytest.mark.parametrize("content", [b"", b"version: 0\n", b"version: 0\ntopic_id: 9HrB", b"\0" * 40, b"\xff\xfe"])
def test_a_topic_id_that_a_power_cut_left_in_pieces_counts_as_none(disk: SimulatedDisk, content: bytes) -> None:
    disk.replace("/data/partition.metadata", content)

    assert checkpoints.read_topic_id(disk, "/data") is None

    checkpoints.write_topic_id(disk, "/data", TOPIC_ID)
    assert checkpoints.read_topic_id(disk, "/data") == TOPIC_ID


def test_files_without_a_crc_are_read(disk: SimulatedDisk) -> None:
    disk.replace("/data/offset", b"0\n42\n")
    disk.replace("/data/epochs", b"0\n2\n0 0\n3 120\n")
    disk.replace("/data/partition.metadata", b"version: 0\ntopic_id: 9HrBC1jMQ3KlZw4CssPUeQ")

    assert checkpoints.read_offset(disk, "/data/offset") == 42
    assert checkpoints.read_epochs(disk, "/data/epochs") == [(0, 0), (3, 120)]
    assert checkpoints.read_topic_id(disk, "/data") == TOPIC_ID


@pytest.mark.parametrize("kind", ["offset", "epochs", "no epochs", "topic id"])
def test_no_flipped_bit_of_a_checkpoint_goes_unnoticed(disk: SimulatedDisk, kind: str) -> None:
    def read() -> object:
        match kind:
            case "offset":
                return checkpoints.read_offset(disk, "/data/file")
            case "topic id":
                return checkpoints.read_topic_id(disk, "/data")
            case _:
                return checkpoints.read_epochs(disk, "/data/file")

    path = "/data/partition.metadata" if kind == "topic id" else "/data/file"
    match kind:
        case "offset":
            checkpoints.write_offset(disk, path, Offset(1234567))
        case "topic id":
            checkpoints.write_topic_id(disk, "/data", TOPIC_ID)
        case _:
            epochs = [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(3), Offset(120))] if kind == "epochs" else []
            checkpoints.write_epochs(disk, path, epochs)
    content = content_of(disk, path)

    for bit in range(8 * len(content)):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        disk.replace(path, bytes(flipped))
        try:
            found = read()
        except KafkaError:
            continue
        assert found is None, f"bit {bit} made {bytes(flipped)!r} {found!r}"


def test_a_topic_id_that_a_killed_process_has_written_is_made_durable_by_the_next_one() -> None:
    """Otherwise a power cut leaves records that count in a folder of which nobody knows whose it is."""
    for seed in range(20):
        disk = SimulatedDisk(Random(seed))
        disk.make_directory("/data")
        disk.sync_directory("")
        PartitionLog.open(disk, DIRECTORY, LogConfig()).store_topic_id(TOPIC_ID)  # And the process is killed.
        log = PartitionLog.open(disk, DIRECTORY, LogConfig())
        append_values(log, b"acknowledged")
        log.sync()
        disk.crash()
        assert checkpoints.read_topic_id(disk, DIRECTORY) == TOPIC_ID, f"seed {seed}"
