"""The file of aborted transactions: Kafka's bytes, and what recovery, truncation and retention make of it."""

import pytest

from quorate.kernel.ids import Offset, ProducerId
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from quorate.storage.transactions import (
    DamagedTransactionIndex,
    TransactionIndexEntry,
    decode_entries,
    encode_entries,
)
from tests.simulation.committed_reader import last_stable_offset
from tests.simulation.disk import SimulatedDisk, content_of
from tests.unit.storage.batches import DIRECTORY, append_values, open_log
from tests.unit.storage.transactions import FIRST, SECOND, committed_values, end, write

SMALL_SEGMENTS = LogConfig(segment_bytes=300, index_interval_bytes=0)
#: As Apache Kafka writes it: version 0, producer id 7, first offset 100, last offset 200, last stable offset 201.
KAFKA_ENTRY = bytes.fromhex("0000 0000000000000007 0000000000000064 00000000000000c8 00000000000000c9")


def fill(log: PartitionLog) -> list[bytes]:
    """Several segments with aborted and committed transactions, and one that is open; the values to be seen."""
    for number in range(6):
        write(log, FIRST, number, b"aborted %d" % number)
        write(log, SECOND, number, b"kept %d" % number)
        end(log, FIRST, commit=False)
        end(log, SECOND, commit=True)
    write(log, FIRST, 6, b"open")
    return [b"kept %d" % number for number in range(6)]


def index_files(disk: SimulatedDisk) -> list[str]:
    return [f"{DIRECTORY}/{name}" for name in disk.list_directory(DIRECTORY) if name.endswith(".txnindex")]


def test_entries_have_the_bytes_that_apache_kafka_writes() -> None:
    entry = TransactionIndexEntry(ProducerId(7), Offset(100), Offset(200), Offset(201))

    assert encode_entries([entry, entry]) == KAFKA_ENTRY * 2
    assert decode_entries(KAFKA_ENTRY) == [entry]


@pytest.mark.parametrize("content", [KAFKA_ENTRY[:-1], KAFKA_ENTRY + b"\0", b"\0\1" + KAFKA_ENTRY[2:]])
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(DamagedTransactionIndex):
        decode_entries(content)


def test_a_log_without_aborted_transactions_has_no_file(disk: SimulatedDisk) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    append_values(log, *[b"plain"] * 10)
    write(log, FIRST, 0, b"a")
    end(log, FIRST, commit=True)
    log.close()

    assert index_files(disk) == []


@pytest.mark.parametrize("damage", ["none", "cut", "flipped", "swapped", "emptied of sense"])
def test_a_damaged_index_is_made_anew(disk: SimulatedDisk, damage: str) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    kept = fill(log)
    log.close()
    path = index_files(disk)[1]
    good = content_of(disk, path)
    bad = {
        "none": good,
        "cut": good[:-5],
        "flipped": b"\7" + good[1:],
        "swapped": good + good,
        "emptied of sense": b"\0" * len(good),
    }[damage]
    disk.replace(path, bad)

    log = open_log(disk, SMALL_SEGMENTS)

    assert committed_values(log) == kept
    assert content_of(disk, path) == good


def test_an_index_that_is_being_made_anew_is_not_forgotten_over_a_crash(disk: SimulatedDisk) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    kept = fill(log)
    log.close()
    for path in index_files(disk):
        disk.replace(path, content_of(disk, path)[:-5])

    open_log(disk, SMALL_SEGMENTS)
    disk.crash()

    assert committed_values(open_log(disk, SMALL_SEGMENTS)) == kept


@pytest.mark.parametrize("is_closed", [True, False])
def test_transactions_are_known_after_a_restart(disk: SimulatedDisk, is_closed: bool) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    kept = fill(log)
    log.sync()
    if is_closed:
        log.close()
    else:
        disk.crash()

    log = open_log(disk, SMALL_SEGMENTS)

    assert committed_values(log) == kept
    assert last_stable_offset(log) == 24
    end(log, FIRST, commit=True)
    assert committed_values(log) == [*kept, b"open"]


def test_a_log_cut_at_any_byte_shows_no_aborted_value(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    kept = fill(log)
    log.sync()
    path = f"{DIRECTORY}/00000000000000000000.log"
    content = content_of(disk, path)
    for size in range(0, len(content), 7):
        file = disk.open(path)
        file.truncate(0)
        file.append([content[:size]])

        shown = committed_values(open_log(disk))

        assert shown == kept[: len(shown)]


@pytest.mark.parametrize("offset", range(0, 25, 3))
def test_a_truncation_leaves_the_transactions_before_it(disk: SimulatedDisk, offset: int) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    kept = fill(log)
    log.sync()

    log.truncate_to(Offset(offset))
    before_restart = committed_values(log)
    log.close()
    reopened = open_log(disk, SMALL_SEGMENTS)

    assert committed_values(reopened) == before_restart == kept[: len(before_restart)]
    end(reopened, FIRST, commit=False)
    end(reopened, SECOND, commit=True)
    assert not [value for value in committed_values(reopened) if value is not None and value.startswith(b"aborted")]


def test_deleted_segments_take_their_aborted_transactions_with_them(disk: SimulatedDisk) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    kept = fill(log)
    before = len(index_files(disk))

    log.delete_records_before(Offset(12))
    log.sync()

    assert len(index_files(disk)) < before
    assert committed_values(log) == kept[3:]
