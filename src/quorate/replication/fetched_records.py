"""What a leader's answer means for the replica that asked: the rules' decisions, carried out on its log."""

import enum
import logging

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer
from quorate.records.batch import read_header
from quorate.replication.core import follower as f
from quorate.replication.core.leader_events import HighWatermarkAdvanced
from quorate.replication.partition import Partition
from quorate.storage.log import PartitionLog
from quorate.storage.reading import DamagedRecords, UncheckedSegment

logger = logging.getLogger(__name__)


class Taken(enum.Enum):
    """What became of a leader's answer."""

    DONE = "done"  # Ask again.
    SYNCING = "syncing"  # Ask again when the log is on the disk.
    BACK_OFF = "back off"  # Ask again after a while.


def take(partition: Partition, answer: f.FetchAnswered, records: Buffer) -> Taken:
    following = partition.following
    if following is None or partition.failure is not None:
        return Taken.BACK_OFF
    taken = Taken.DONE
    try:
        for effect in following.step(answer, partition.replica_log, partition.high_watermark):
            taken = _carry_out(partition, following, effect, records)
    except f.CommittedRecordsWouldBeLost as error:
        _give_up(partition, error)
        return Taken.BACK_OFF
    except (UncheckedSegment, DamagedRecords) as error:
        partition.sound_again(error)  # What cannot be read cannot be cut either.
        return Taken.BACK_OFF
    except KafkaError as error:
        partition.room.write_failed(error.__cause__)
        if partition.room.refusal is not None and partition.log.is_usable:
            return Taken.BACK_OFF  # That is told once, for the node. Somebody may make room.
        if partition.log.is_usable:
            logger.error("not appended partition=%s epoch=%s error=%s", partition, partition.leader_epoch, error)
        else:
            _give_up(partition, error)
        return Taken.BACK_OFF
    return taken


def _give_up(partition: Partition, error: Exception) -> None:
    logger.error("replica failed partition=%s epoch=%s error=%s", partition, partition.leader_epoch, error)
    partition.fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))


def _carry_out(partition: Partition, following: f.FollowerReplica, effect: f.FollowerEffect, records: Buffer) -> Taken:
    match effect:
        case f.AppendRecords():
            return _append(partition, following, records)
        case f.TruncateTo(offset=offset):
            logger.info("truncated partition=%s epoch=%s end=%s", partition, partition.leader_epoch, offset)
            _report_loss(partition, offset)
            partition.log.truncate_to(offset)
            partition.high_watermark = min(partition.high_watermark, offset)  # Less only after an unclean election.
        case f.TruncateFullyAndStartAt(offset=offset):
            logger.info("starts anew partition=%s epoch=%s start=%s", partition, partition.leader_epoch, offset)
            _report_loss(partition, offset)
            partition.log.truncate_fully_and_start_at(offset)
        case f.AdvanceLogStart(offset=offset):
            partition.log.delete_records_before(offset)
        case HighWatermarkAdvanced(offset=offset):
            partition.advance_high_watermark(offset)
        case f.BackOff():
            return Taken.BACK_OFF
    return Taken.DONE


def _report_loss(partition: Partition, offset: Offset) -> None:
    if offset < partition.high_watermark:
        logger.error(
            "committed records lost partition=%s epoch=%s from=%s to=%s",
            partition,
            partition.leader_epoch,
            offset,
            partition.high_watermark,
        )


def _append(partition: Partition, following: f.FollowerReplica, records: Buffer) -> Taken:
    partition.room.require()
    _append_where_the_leader_has_it(partition.log, records)
    for effect in following.step(f.RecordsAppended(), partition.replica_log, partition.high_watermark):
        _carry_out(partition, following, effect, b"")
    if partition.may_ask:
        return Taken.DONE
    partition.request_sync()
    return Taken.SYNCING


def _append_where_the_leader_has_it(log: PartitionLog, records: Buffer) -> None:
    """Deleted records may end inside of a batch. The leader keeps the batch whole, and so must an empty log."""
    first = read_header(records)
    start = log.log_start_offset
    if start == log.log_end_offset and first.base_offset < start <= first.last_offset:
        log.truncate_fully_and_start_at(first.base_offset)
    log.append_as_follower(records)
    if log.log_start_offset < start:
        log.delete_records_before(start)
