"""Bits that flip on the disk: each is found, nothing wrong is read, and what is sound stays readable."""

from itertools import accumulate

import pytest

from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.records.record import iterate_records
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from quorate.storage.reading import DamagedRecords, UncheckedSegment
from quorate.storage.segment_checksums import write_checksums
from quorate.storage.segment_repair import FilePart, repair
from quorate.storage.small_files import find_damaged
from tests.log_times import offset_for_timestamp
from tests.simulation.disk import SimulatedDisk, content_of
from tests.unit.storage.batches import DIRECTORY, append, append_values, batch_of, values_in
from tests.unit.storage.transactions import FIRST as PRODUCER
from tests.unit.storage.transactions import committed_values, end, write

SIZE_BYTES = len(batch_of(b"x"))
VALUES = [b"%d" % value for value in range(8)]
#: Three batches a segment.
CONFIG = LogConfig(segment_bytes=3 * SIZE_BYTES, index_interval_bytes=0)
ONE_SEGMENT = LogConfig(index_interval_bytes=0)
FIRST = f"{DIRECTORY}/00000000000000000000"
SECOND = f"{DIRECTORY}/00000000000000000003"


def open_untrusted(disk: SimulatedDisk, config: LogConfig = CONFIG) -> PartitionLog:
    return PartitionLog.open(disk, DIRECTORY, config, trusts_disk=False)


def closed_log(disk: SimulatedDisk, config: LogConfig = CONFIG) -> None:
    log = open_untrusted(disk, config)
    append_values(log, *VALUES)
    log.sync()
    log.close()


def check_all(disk: SimulatedDisk, log: PartitionLog) -> list[tuple[int, int]]:
    """Check every segment; the offsets of what has rotted."""
    for segment in log.stored_segments:
        check = log.begin_check(segment)
        report = check.finish()
        assert log.note_check(check)
        if report.indexes_are_damaged:
            assert log.install_repair(repair(disk, log.plan_repair(segment, report), None))
    return [(damaged.first_offset, damaged.end_offset) for damaged in log.damage]


def parts_of(disk: SimulatedDisk, contents: list[bytes]) -> list[FilePart]:
    """Batches in a file, as they come from another replica."""
    disk.replace("/data/spool", b"".join(contents))
    file = disk.open("/data/spool")
    ends = list(accumulate(map(len, contents)))
    return [FilePart(file, end - len(content), end) for content, end in zip(contents, ends, strict=True)]


def sum_up(disk: SimulatedDisk, log: PartitionLog) -> None:
    """As the scrub does with what it has found to be sound."""
    for segment in log.stored_segments:
        summed = log.begin_summing(segment)
        if summed is not None:
            write_checksums(disk, summed)
            log.note_summed(segment)


def readable_values(log: PartitionLog) -> dict[int, bytes]:
    """What can be read, offset by offset."""
    found = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            piece = log.read(offset, max_bytes=1, up_to_offset=log.log_end_offset, minimum_one_batch=True)
        except DamagedRecords:
            offset = Offset(offset + 1)
            continue
        for record in iterate_records(piece.read()):
            found[int(record.offset)] = bytes(record.value or b"")
            offset = Offset(record.offset + 1)
    return found


def test_what_is_from_before_is_not_read_before_it_was_checked(disk: SimulatedDisk) -> None:
    closed_log(disk)

    log = open_untrusted(disk)
    for offset in range(8):
        with pytest.raises(UncheckedSegment):
            log.read(Offset(offset), max_bytes=1000, up_to_offset=Offset(8))
    with pytest.raises(UncheckedSegment):
        offset_for_timestamp(log, 0)
    append_values(log, b"new")

    (record,) = iterate_records(log.read(Offset(8), max_bytes=1000, up_to_offset=Offset(9)).read())
    assert record.value == b"new", "what was written in this life is"
    assert check_all(disk, log) == []
    assert values_in(log) == [*VALUES, b"new"]


@pytest.mark.parametrize("config", [CONFIG, ONE_SEGMENT, LogConfig(cleanup_policy=frozenset({"compact"}))])
def test_every_flipped_bit_of_a_log_is_found_and_none_is_read(disk: SimulatedDisk, config: LogConfig) -> None:
    closed_log(disk, config)
    path = f"{FIRST}.log"
    sound = content_of(disk, path)
    expected = dict(enumerate(VALUES))

    for position in range(len(sound)):
        disk.rot(path, position, position % 8)
        log = open_untrusted(disk, config)
        assert log.log_end_offset == 8, "nothing is cut off after an orderly stop"
        assert check_all(disk, log), f"a flip at {position} was not found"
        assert readable_values(log).items() <= expected.items(), f"a flip at {position} was read"
        disk.replace(path, sound)


def test_without_checksums_the_batches_tell(disk: SimulatedDisk) -> None:
    """Of a segment that was rolled and never scrubbed, or that an earlier version wrote."""
    closed_log(disk)
    disk.remove(f"{FIRST}.checksum")
    path = f"{FIRST}.log"
    sound = content_of(disk, path)

    for position in range(len(sound)):
        disk.rot(path, position, position % 8)
        log = open_untrusted(disk)
        damage = check_all(disk, log)
        assert len(damage) == 1, f"a flip at {position}: {damage}"
        assert len(readable_values(log)) == 7, "all but the damaged batch"
        disk.replace(path, sound)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_flipped_bit_of_an_index_is_found_and_mended(disk: SimulatedDisk, suffix: str) -> None:
    closed_log(disk)
    log = open_untrusted(disk)
    check_all(disk, log)
    sum_up(disk, log)
    log.close()
    sound = content_of(disk, FIRST + suffix)

    for position in range(len(sound)):
        disk.rot(FIRST + suffix, position, 0)
        log = open_untrusted(disk)
        check = log.begin_check(log.stored_segments[0])
        report = check.finish()
        log.note_check(check)
        if content_of(disk, FIRST + suffix) != sound:
            assert report.indexes_are_damaged, f"a flip at {position} was not found"
            assert log.install_repair(repair(disk, log.plan_repair(log.stored_segments[0], report), []))
        assert content_of(disk, FIRST + suffix) == sound
        check_all(disk, log)
        sum_up(disk, log)
        assert values_in(log) == VALUES


@pytest.mark.parametrize(
    "name",
    [
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "leader-epoch-checkpoint",
        "00000000000000000008.snapshot",
        "00000000000000000006.checksum",
        "00000000000000000006.index",
        "00000000000000000006.timeindex",
    ],
)
def test_no_flipped_bit_of_a_file_beside_the_log_keeps_it_from_opening(disk: SimulatedDisk, name: str) -> None:
    closed_log(disk)
    names = disk.list_directory(DIRECTORY)
    folder = {each: content_of(disk, f"{DIRECTORY}/{each}") for each in names}
    assert name in folder

    for position in range(len(folder[name])):
        disk.rot(f"{DIRECTORY}/{name}", position, position % 8)
        log = open_untrusted(disk)
        assert check_all(disk, log) == []
        assert values_in(log) == VALUES
        assert log.epochs == [(1, 0)]
        log.repair_small_files(find_damaged(disk, DIRECTORY))
        log.sync()
        log.close()
        assert open_untrusted(disk).recovery.repaired == (), "it was mended"
        for each in set(disk.list_directory(DIRECTORY)) | set(folder):
            disk.remove(f"{DIRECTORY}/{each}")
            if each in folder:
                disk.replace(f"{DIRECTORY}/{each}", folder[each])


@pytest.mark.parametrize("config", [CONFIG, ONE_SEGMENT])
def test_what_has_rotted_is_filled_from_another_replica_byte_for_byte(disk: SimulatedDisk, config: LogConfig) -> None:
    closed_log(disk, config)
    path = f"{FIRST}.log"
    sound = content_of(disk, path)
    for position in (0, 8, 12, SIZE_BYTES + 40, 2 * SIZE_BYTES + 3):
        disk.rot(path, position, 0)
        log = open_untrusted(disk, config)
        append_values(log, b"later")
        check_all(disk, log)
        segment = log.stored_segments[0]
        assert segment.damage
        check = log.begin_check(segment)
        report = check.finish()
        log.note_check(check)
        plan = log.plan_repair(segment, report)
        missing = [sound[damaged.start : damaged.end] for damaged in plan.damage]

        assert log.install_repair(repair(disk, plan, parts_of(disk, missing)))

        assert content_of(disk, path)[: len(sound)] == sound
        assert log.damage == []
        assert check_all(disk, log) == []
        assert values_in(log) == [*VALUES, b"later"]
        log.truncate_to(Offset(8))
        log.close()
        for name in disk.list_directory(DIRECTORY):
            disk.remove(f"{DIRECTORY}/{name}")
        closed_log(disk, config)


def test_a_log_that_was_never_checked_is_not_vouched_for_when_it_closes(disk: SimulatedDisk) -> None:
    closed_log(disk, ONE_SEGMENT)
    disk.rot(f"{FIRST}.log", 3, 0)

    log = open_untrusted(disk, ONE_SEGMENT)
    append_values(log, b"later")
    log.sync()
    log.close()

    log = open_untrusted(disk, ONE_SEGMENT)
    assert check_all(disk, log) == [(0, 9)], "the flip in the base offset is still found, by the chunk that it is in"


def test_an_epoch_that_the_log_does_not_know_is_damage(disk: SimulatedDisk) -> None:
    log = open_untrusted(disk, ONE_SEGMENT)
    append_values(log, *VALUES[:4])
    log.assign_epoch_start(LeaderEpoch(5))
    for value in VALUES[4:]:
        append(log, batch_of(value), epoch=LeaderEpoch(5))
    disk.rot(f"{FIRST}.log", 5 * SIZE_BYTES + 15, 0)

    assert check_all(disk, log) == [(5, 6)], "also in what was written in this life, when it is scrubbed"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_flipped_bit_of_an_index_that_grows_is_found_and_vouched_for_by_nobody(
    disk: SimulatedDisk, suffix: str
) -> None:
    closed_log(disk, ONE_SEGMENT)
    log = open_untrusted(disk, ONE_SEGMENT)
    append_values(log, b"later")
    sound = content_of(disk, FIRST + suffix)
    disk.rot(FIRST + suffix, 5, 0)

    check = log.begin_check(log.stored_segments[0])
    report = check.finish()
    assert report.indexes_are_damaged
    log.note_check(check)
    assert log.install_repair(repair(disk, log.plan_repair(log.stored_segments[0], report), None))
    assert content_of(disk, FIRST + suffix)[: len(sound)] == sound
    assert check_all(disk, log) == []
    assert values_in(log) == [*VALUES, b"later"]


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_has_rotted_since_it_was_stored_is_not_sealed(disk: SimulatedDisk, suffix: str) -> None:
    closed_log(disk, ONE_SEGMENT)
    log = open_untrusted(disk, ONE_SEGMENT)
    append_values(log, b"later")
    sound = content_of(disk, FIRST + suffix)
    disk.rot(FIRST + suffix, 5, 0)
    log.close()

    assert content_of(disk, FIRST + suffix)[: len(sound)] == sound
    log = open_untrusted(disk, ONE_SEGMENT)
    assert check_all(disk, log) == []
    assert values_in(log) == [*VALUES, b"later"]


def test_after_a_crash_a_batch_of_an_epoch_that_was_never_stored_is_cut_off(disk: SimulatedDisk) -> None:
    """No CRC covers the epoch, and nothing sums up a log that was not closed."""
    log = open_untrusted(disk, ONE_SEGMENT)
    log.assign_epoch_start(LeaderEpoch(1))
    append_values(log, *VALUES)
    log.sync()
    disk.rot(f"{FIRST}.log", 6 * SIZE_BYTES + 15, 1)

    log = PartitionLog.open(disk, DIRECTORY, ONE_SEGMENT, trusts_disk=False, trusts_epochs=False)
    assert log.log_end_offset == 6
    assert log.epochs == [(1, 0)]


def test_a_flipped_bit_of_a_transaction_index_that_nothing_sums_up_commits_nothing(disk: SimulatedDisk) -> None:
    """As in a segment that was sealed shortly before the process was killed."""
    log = open_untrusted(disk)
    write(log, PRODUCER, 0, b"aborted")
    end(log, PRODUCER, commit=False)
    append_values(log, *VALUES)
    log.sync()
    assert len(log.stored_segments) > 2
    index = f"{FIRST}.txnindex"
    sound = content_of(disk, index)
    killed = disk.list_directory(DIRECTORY)
    assert sound
    assert f"{FIRST}.checksum".rpartition("/")[2] not in killed

    for position in range(len(sound)):
        disk.rot(index, position, position % 8)
        log = open_untrusted(disk)
        check_all(disk, log)
        assert committed_values(log) == VALUES, f"after a flip at {position}"
        assert content_of(disk, index) == sound


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_flipped_bit_of_the_transaction_index_of_the_only_segment_commits_nothing(
    disk: SimulatedDisk, is_killed: bool
) -> None:
    """A log of one segment has no stored start. It is as much our own as one that has, and no more trusted."""
    log = open_untrusted(disk, ONE_SEGMENT)
    write(log, PRODUCER, 0, b"aborted")
    end(log, PRODUCER, commit=False)
    log.sync()
    log.close()
    log = open_untrusted(disk, ONE_SEGMENT)
    append_values(log, *VALUES)
    log.sync()
    if not is_killed:
        log.close()
    index = f"{FIRST}.txnindex"
    sound = content_of(disk, index)
    assert sound

    for position in range(len(sound)):
        disk.rot(index, position, position % 8)
        log = open_untrusted(disk, ONE_SEGMENT)
        check_all(disk, log)
        assert committed_values(log) == VALUES, f"after a flip at {position}"
        assert content_of(disk, index) == sound


def test_without_checksums_the_transaction_index_of_the_only_segment_is_made_again(disk: SimulatedDisk) -> None:
    log = open_untrusted(disk, ONE_SEGMENT)
    write(log, PRODUCER, 0, b"aborted")
    end(log, PRODUCER, commit=False)
    append_values(log, *VALUES)
    log.sync()
    log.close()
    disk.remove(f"{FIRST}.checksum")
    disk.rot(f"{FIRST}.txnindex", 10, 6)

    log = open_untrusted(disk, ONE_SEGMENT)
    check_all(disk, log)
    assert committed_values(log) == VALUES
