"""Transactions in a log: where it is stable, what a reader of committed records sees, and what is fenced."""

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, ProducerEpoch
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from quorate.storage.producer_snapshots import decode_snapshot, encode_snapshot
from quorate.storage.transactions import TransactionIndexEntry
from tests.simulation.committed_reader import last_stable_offset
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.batches import append, append_values, open_log, produced
from tests.unit.storage.transactions import FIRST, SECOND, committed_values, end, write


@pytest.fixture
def log(disk: SimulatedDisk) -> PartitionLog:
    return open_log(disk)


def aborted_in(log: PartitionLog, offset: int, max_bytes: int = 1 << 20) -> list[TransactionIndexEntry]:
    piece = log.read(Offset(offset), max_bytes=max_bytes, up_to_offset=log.log_end_offset, minimum_one_batch=True)
    return log.aborted_transactions(piece, Offset(offset))


def test_the_log_is_stable_up_to_the_first_open_transaction(log: PartitionLog) -> None:
    append_values(log, b"plain")
    write(log, FIRST, 0, b"a", b"b")
    write(log, SECOND, 0, b"c")

    assert last_stable_offset(log) == 1

    end(log, FIRST, commit=True)
    assert last_stable_offset(log) == 3

    end(log, SECOND, commit=False)
    assert last_stable_offset(log) == 6


def test_a_marker_decides_nothing_before_it_is_committed(log: PartitionLog) -> None:
    write(log, FIRST, 0, b"a", b"b")
    end(log, FIRST, commit=True)

    assert last_stable_offset(log, Offset(2)) == 0
    assert last_stable_offset(log, Offset(3)) == 3


def test_a_truncation_behind_a_marker_does_not_commit_it(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=300, index_interval_bytes=0))
    write(log, FIRST, 0, b"a", b"b")
    end(log, FIRST, commit=True)
    append_values(log, *[b"plain"] * 8)
    log.sync()  # There is a snapshot from behind the marker now, which knows of no open transaction.

    log.truncate_to(Offset(10))

    assert last_stable_offset(log, Offset(2)) == 0
    log.truncate_to(Offset(2))
    assert last_stable_offset(log) == 0
    end(log, FIRST, commit=True)
    assert last_stable_offset(log) == 3


def test_only_committed_values_are_read_from_interleaved_transactions(log: PartitionLog) -> None:
    write(log, FIRST, 0, b"aborted 0")
    write(log, SECOND, 0, b"kept 1")
    write(log, FIRST, 1, b"aborted 2")
    end(log, FIRST, commit=False)
    write(log, FIRST, 2, b"kept 4")
    append_values(log, b"plain 5")
    end(log, SECOND, commit=True)
    end(log, FIRST, commit=True)
    write(log, SECOND, 1, b"open 8")

    kept = [b"kept 1", b"kept 4", b"plain 5"]
    assert committed_values(log) == kept
    assert committed_values(log, max_bytes=1 << 20) == kept


def test_readers_are_told_of_the_aborted_transactions_in_what_they_read_and_no_others(log: PartitionLog) -> None:
    write(log, FIRST, 0, b"a")
    write(log, SECOND, 0, b"b")
    end(log, FIRST, commit=False)
    end(log, SECOND, commit=False)
    write(log, FIRST, 1, b"c")
    end(log, FIRST, commit=False)

    first = TransactionIndexEntry(FIRST, Offset(0), Offset(2), Offset(1))
    second = TransactionIndexEntry(SECOND, Offset(1), Offset(3), Offset(4))
    third = TransactionIndexEntry(FIRST, Offset(4), Offset(5), Offset(6))
    assert aborted_in(log, 0) == [first, second, third]
    assert aborted_in(log, 0, max_bytes=1) == [first]
    assert aborted_in(log, 3) == [second, third]
    assert aborted_in(log, 4) == [third]


def test_a_marker_without_a_transaction_aborts_nothing(log: PartitionLog) -> None:
    end(log, FIRST, commit=False)
    append_values(log, b"plain")

    assert aborted_in(log, 0) == []
    assert last_stable_offset(log) == 2


def test_a_marker_of_an_old_producer_epoch_is_fenced(log: PartitionLog) -> None:
    write(log, FIRST, 0, b"a", epoch=3)

    with pytest.raises(KafkaError) as caught:
        end(log, FIRST, commit=True, epoch=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.log_end_offset == 1


def test_a_marker_of_an_old_coordinator_is_fenced(log: PartitionLog) -> None:
    write(log, FIRST, 0, b"a")
    end(log, FIRST, commit=True, coordinator_epoch=5)
    write(log, FIRST, 1, b"b")

    with pytest.raises(KafkaError) as caught:
        end(log, FIRST, commit=False, coordinator_epoch=4)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_with_a_new_epoch_lets_sequences_start_again(log: PartitionLog) -> None:
    write(log, FIRST, 0, b"a", b"b")
    end(log, FIRST, commit=True, epoch=1, transaction_version=2)

    with pytest.raises(KafkaError) as caught:
        write(log, FIRST, 2, b"late", epoch=0)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(log, FIRST, 0, b"next", epoch=1).base_offset == 3


def test_with_epoch_bumps_a_late_marker_does_not_end_the_next_transaction(log: PartitionLog) -> None:
    write(log, FIRST, 0, b"a")
    end(log, FIRST, commit=True, epoch=1, transaction_version=2)
    end(log, FIRST, commit=True, epoch=1, transaction_version=2)  # The answer to the first was lost.
    write(log, FIRST, 0, b"next", epoch=1)

    with pytest.raises(KafkaError) as caught:
        end(log, FIRST, commit=True, epoch=1, transaction_version=2)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_writes_nothing_outside_of_its_open_transaction(log: PartitionLog) -> None:
    write(log, FIRST, 0, b"a")

    with pytest.raises(KafkaError) as caught:
        append(log, produced(1, producer_id=FIRST))
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


def test_a_producer_with_an_open_transaction_is_not_forgotten(log: PartitionLog) -> None:
    write(log, FIRST, 0, b"a")
    for day in range(3):
        log.expire_producers(day * 86_400_000)

    assert log.producers.has_open_transaction(FIRST, ProducerEpoch(0))
    end(log, FIRST, commit=True)
    for day in range(3, 6):
        log.expire_producers(day * 86_400_000)
    assert log.producers.get(FIRST) is None


def test_a_snapshot_keeps_the_open_transaction_and_the_coordinator_epoch(log: PartitionLog) -> None:
    append_values(log, b"plain")
    write(log, FIRST, 0, b"a")
    end(log, SECOND, commit=True, coordinator_epoch=9)

    states = decode_snapshot(encode_snapshot(log.producers))

    first, second = states.get(FIRST), states.get(SECOND)
    assert first is not None
    assert second is not None
    assert (first.transaction_start, second.transaction_start) == (1, None)
    assert (first.coordinator_epoch, second.coordinator_epoch) == (-1, 9)
    assert states.open_transactions.first_unstable_offset == 1


def test_a_follower_knows_what_its_leader_knows(disk: SimulatedDisk, log: PartitionLog) -> None:
    write(log, FIRST, 0, b"aborted")
    write(log, SECOND, 0, b"open")
    end(log, FIRST, commit=False)
    content = log.read(Offset(0), max_bytes=1 << 20, up_to_offset=log.log_end_offset).read()

    follower = PartitionLog.open(disk, "/data/follower-0", log.config)
    follower.append_as_follower(content)

    assert last_stable_offset(follower) == last_stable_offset(log) == 1
    assert aborted_in(follower, 0) == aborted_in(log, 0) != []


@pytest.mark.parametrize(("truncated_to", "stable"), [(5, 1), (4, 1), (3, 0), (2, 0), (1, 0)])
def test_a_truncation_opens_transactions_again_that_ended_behind_it(
    log: PartitionLog, truncated_to: int, stable: int
) -> None:
    write(log, FIRST, 0, b"aborted 0")
    write(log, SECOND, 0, b"open 1")
    write(log, FIRST, 1, b"aborted 2")
    end(log, FIRST, commit=False)
    write(log, SECOND, 1, b"open 4")

    log.truncate_to(Offset(truncated_to))

    assert last_stable_offset(log) == stable
    end(log, FIRST, commit=True)
    end(log, SECOND, commit=True)
    aborted = [FIRST] if truncated_to > 3 else []
    assert [entry.producer_id for entry in aborted_in(log, 0)] == aborted
